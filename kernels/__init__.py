"""The mathematics of docexpress: weighted key-value entries, attention over them, how to keep few of them.

Needs torch alone. Knows no service, and never imports transformers.
"""
