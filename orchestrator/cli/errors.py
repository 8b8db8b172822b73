"""What a command itself refuses.

UsageProblem    arguments that do not go together, or not here; one sentence, exit code 2
"""


class UsageProblem(Exception):
    """Arguments that do not go together, or not in this environment."""
