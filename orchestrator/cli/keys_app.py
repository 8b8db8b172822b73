"""docexpress keys ...: who may use the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options as opt

keys_app = typer.Typer(
    help="Create, list and revoke keys of the HTTP API; say how much a tenant may store.",
    no_args_is_help=False,
)


@keys_app.command()
def create(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose documents it opens.")] = "default",
    name: Annotated[str, typer.Option(metavar="TEXT", help="To recognize it by.")] = "",
    requests_per_minute: Annotated[
        int, typer.Option(min=0, metavar="N", help="More are refused; 0 is no limit.")
    ] = 0,
    byte_budget: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What the tenant may store, over all of its keys, as 2GiB."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Create a key and print it, this once: only its hash is kept."""
    from orchestrator.cli import keys

    keys.create(tenant, name, requests_per_minute, byte_budget, as_json=as_json)


@keys_app.command("list")
def list_(as_json: opt.Json = False) -> None:
    """List the keys, without what is secret of them."""
    from orchestrator.cli import keys

    keys.list_keys(as_json=as_json)


@keys_app.command()
def budget(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="As `docexpress keys list` shows it.")],
    size: Annotated[
        str | None,
        typer.Argument(metavar="[SIZE]", help="As 2GiB; `default` for DOCEXPRESS_TENANT_BYTE_BUDGET."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Show what a tenant stores and may store, or set the latter; what is stored stays."""
    from orchestrator.cli import keys

    keys.budget(tenant, size, as_json=as_json)


@keys_app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `docexpress keys list` shows it.")],
    as_json: opt.Json = False,
) -> None:
    """Make a key worthless from now on."""
    from orchestrator.cli import keys

    keys.revoke(key_id, as_json=as_json)
