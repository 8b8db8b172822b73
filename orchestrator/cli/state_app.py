"""docexpress state ...: the commands on stored states."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options as opt

state_app = typer.Typer(
    help="Look at stored states, move them between machines, delete them.", no_args_is_help=False
)

Name = Annotated[str, typer.Argument(metavar="STATE", help="A state's name, or an unambiguous beginning.")]


@state_app.command("list")
def list_(as_json: opt.Json = False) -> None:
    """List the stored states."""
    from orchestrator.cli import states

    states.list_states(as_json=as_json)


@state_app.command()
def show(name: Name, as_json: opt.Json = False) -> None:
    """Show everything a state says of itself."""
    from orchestrator.cli import states

    states.show(name, as_json=as_json)


@state_app.command()
def export(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
    as_json: opt.Json = False,
) -> None:
    """Write a state to one file."""
    from orchestrator.cli import states

    states.export(name, file, as_json=as_json)


@state_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `state export` wrote.")],
    as_json: opt.Json = False,
) -> None:
    """Store a state from a file."""
    from orchestrator.cli import states

    states.import_(file, as_json=as_json)


@state_app.command()
def delete(
    name: Annotated[
        str | None, typer.Argument(metavar="[STATE]", help="A state's name.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete every state, document and token list.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Delete a state, or all of them."""
    from orchestrator.cli import states

    states.delete(name, everything=everything, yes=yes, as_json=as_json)
