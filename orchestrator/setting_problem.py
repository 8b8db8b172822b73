"""What is wrong with a setting, in words for whoever set it."""

from __future__ import annotations

from pydantic import ValidationError


def setting_problem(error: ValidationError) -> str:
    """The first problem, in one sentence; settings are named as the environment names them."""
    problem = error.errors(include_url=False, include_input=False)[0]
    message = problem["msg"].removeprefix("Value error, ")
    where = "_".join(str(part) for part in problem["loc"])
    return f"DOCEXPRESS_{where.upper()}: {message}" if where else message
