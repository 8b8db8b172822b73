"""The rows of the doctor as a table, and its exit code."""

from __future__ import annotations

import dataclasses

from orchestrator import doctor
from orchestrator.cli.terminal import clean_line, print_json, print_text


def run_doctor(*, as_json: bool) -> int:
    """Print every check; 1 when something is broken, else 0."""
    checks = doctor.examine()
    broken = any(check.status == doctor.BROKEN for check in checks)
    if as_json:
        print_json({"healthy": not broken, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        print_text("\n".join(_row(check) for check in checks))
    return int(broken)


def _row(check: doctor.Check) -> str:
    row = f"{check.status:<8}  {check.name:<16}  {clean_line(check.found)}"
    return f"{row}\n{'':<28}-> {clean_line(check.remedy)}" if check.remedy else row
