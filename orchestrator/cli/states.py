"""Stored states: state list | show | export | import | delete."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli.display import PlainLines
from orchestrator.cli.errors import UsageProblem
from orchestrator.cli.figures import count, duration, moment, size
from orchestrator.cli.session import open_session
from orchestrator.cli.tables import print_table
from orchestrator.cli.terminal import clean_line, is_terminal, print_json, print_text
from orchestrator.embedded.home import STORE_ONLY
from orchestrator.service import StateInfo

SHORT_NAME = 12  # hexadecimal digits; any unambiguous beginning of a name will do


def list_states(*, as_json: bool) -> None:
    """All stored states, the newest first."""
    with open_session(PlainLines(), STORE_ONLY) as session:
        found = session.service.states()
    if as_json:
        print_json([dataclasses.asdict(state) for state in found])
        return
    rows = [
        [
            state.name[:SHORT_NAME],
            f"{state.tokens_seen:,}",
            f"{state.cache_entries:,}",
            size(state.size),
            state.model,
            moment(state.created),
            "kept" if state.kept else "passing",
        ]
        for state in found
    ]
    print_table(["STATE", "TOKENS", "ENTRIES", "SIZE", "MODEL", "CREATED", "USE"], rows)


def show(name: str, *, as_json: bool) -> None:
    """Everything a state says of itself. Raises ObjectMissing."""
    with open_session(PlainLines(), STORE_ONLY) as session:
        state = session.service.show_state(name)
    if as_json:
        print_json(dataclasses.asdict(state))
        return
    rows = _facts(state)
    width = max(len(fact) for fact, _ in rows)
    print_text("\n".join(f"{fact:<{width}}  {value}" for fact, value in rows))


def export(name: str, file: Path, *, as_json: bool) -> None:
    """Write a state to one file, whole or not at all."""
    with open_session(PlainLines(), STORE_ONLY) as session:
        written = session.service.export_state(name, file)
    if as_json:
        print_json({"file": str(file), "bytes": written})
    else:
        print_text(f"{file}: {size(written)}")


def import_(file: Path, *, as_json: bool) -> None:
    """Store a state from a file; a damaged or foreign one is refused."""
    with open_session(PlainLines(), STORE_ONLY) as session:
        state = session.service.import_state(file)
    if as_json:
        print_json(dataclasses.asdict(state))
    else:
        print_text(state.name)


def delete(name: str | None, *, everything: bool, yes: bool, as_json: bool) -> None:
    """Delete one state, or every stored object (documents and tokens too)."""
    if everything == (name is not None):
        raise UsageProblem("give the name of a state, or --all")
    if everything and not yes:
        _confirm()
    with open_session(PlainLines(), STORE_ONLY) as session:
        if name is None:
            deleted = session.service.delete_all()
        else:
            session.service.delete_state(name)
            deleted = 1
    if as_json:
        print_json({"deleted": deleted})
    else:
        print_text(f"{count(deleted, 'object')} deleted")


def _confirm() -> None:
    if not is_terminal(sys.stdin):
        raise UsageProblem("deleting everything needs --yes")
    typer.confirm("Delete all stored states, documents and tokens?", abort=True, err=True)


def _facts(state: StateInfo) -> list[tuple[str, str]]:
    own = [
        ("name", state.name),
        ("model", state.model),
        ("tokens seen", f"{state.tokens_seen:,}"),
        ("entries", f"{state.cache_entries:,} per KV head and layer"),
        ("size", size(state.size)),
        ("created", moment(state.created)),
        ("expires in", duration(state.expires_in)),
        ("use", "kept, the final state of a job" if state.kept else "passing, until the next one is stored"),
    ]
    return own + _flat(state.meta)


def _flat(values: Mapping[str, Any], path: str = "") -> list[tuple[str, str]]:
    """What the manifest holds besides, one fact a line: `plan.policy  express`."""
    facts: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            facts += _flat(value, f"{path}{name}.")
        else:
            facts.append((path + name, clean_line(str(value))))
    return facts
