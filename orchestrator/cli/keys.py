"""Keys of the HTTP API: create, list, revoke."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from cache_store.connection import connect
from orchestrator.api_keys import ApiKey, ApiKeys
from orchestrator.cli.display import PlainLines
from orchestrator.cli.figures import moment
from orchestrator.cli.session import open_session
from orchestrator.cli.tables import print_table
from orchestrator.cli.terminal import print_json, print_text
from orchestrator.embedded.home import STORE_ONLY


def create(tenant: str, name: str, requests_per_minute: int, *, as_json: bool) -> None:
    """Raises OptionError."""
    with _keys() as keys:
        key, secret = keys.create(tenant, name, requests_per_minute)
    if as_json:
        print_json(dataclasses.asdict(key) | {"key": secret})
    else:
        print_text(secret)


def list_keys(*, as_json: bool) -> None:
    with _keys() as keys:
        found = keys.all()
    if as_json:
        print_json([dataclasses.asdict(key) for key in found])
        return
    rows = [_row(key) for key in found]
    print_table(["ID", "TENANT", "PER MINUTE", "CREATED", "NAME"], rows)


def revoke(key_id: str, *, as_json: bool) -> None:
    """Raises OptionError."""
    with _keys() as keys:
        key = keys.revoke(key_id)
    if as_json:
        print_json({"id": key.id, "tenant": key.tenant})
    else:
        print_text(f"{key.id} revoked")


def _row(key: ApiKey) -> list[str]:
    return [key.id, key.tenant, str(key.requests_per_minute or "any"), moment(key.created), key.name]


@contextmanager
def _keys() -> Iterator[ApiKeys]:
    with (
        open_session(PlainLines(), STORE_ONLY) as session,
        connect(session.connection.redis_url) as client,
    ):
        yield ApiKeys(client)
