"""Why a document is not read, before its name is known.

Unreadable    the predicate of a sentence ("is empty or blank"); the door puts the name before it
"""

from __future__ import annotations


class Unreadable(Exception):
    """`str(error)` follows a document's name and makes a sentence of it that may be shown to a user."""
