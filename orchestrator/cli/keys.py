"""Keys of the HTTP API: create, list, revoke; and how many bytes their tenants may store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ByteSize, TypeAdapter, ValidationError

from cache_store.connection import connect
from cache_store.store import Usage
from orchestrator.api_keys import ApiKey, ApiKeys
from orchestrator.cli.display import PlainLines
from orchestrator.cli.figures import moment, size
from orchestrator.cli.session import open_session
from orchestrator.cli.tables import print_table
from orchestrator.cli.terminal import print_json, print_text
from orchestrator.embedded.home import STORE_ONLY
from orchestrator.errors import OptionError
from orchestrator.service import Service

DEFAULT = "default"


def create(
    tenant: str, name: str, requests_per_minute: int, byte_budget: str | None, *, as_json: bool
) -> None:
    """Raises OptionError."""
    count = None if byte_budget is None else _bytes(byte_budget)
    with _opened() as (service, keys):
        if byte_budget is not None:
            _of_tenant(service, tenant).set_budget(count)
        key, secret = keys.create(tenant, name, requests_per_minute)
    if as_json:
        print_json(dataclasses.asdict(key) | {"key": secret})
    else:
        print_text(secret)


def list_keys(*, as_json: bool) -> None:
    with _opened() as (service, keys):
        found = keys.all()
        usages = {tenant: service.of_tenant(tenant).usage() for tenant in {key.tenant for key in found}}
    if as_json:
        print_json([dataclasses.asdict(key) | _figures(usages[key.tenant]) for key in found])
        return
    rows = [_row(key, usages[key.tenant]) for key in found]
    print_table(["ID", "TENANT", "PER MINUTE", "STORED", "BUDGET", "CREATED", "NAME"], rows)


def budget(tenant: str, wanted: str | None, *, as_json: bool) -> None:
    """Raises OptionError."""
    count = None if wanted is None else _bytes(wanted)
    with _opened() as (service, _):
        view = _of_tenant(service, tenant)
        if wanted is not None:
            view.set_budget(count)
        usage = view.usage()
    if as_json:
        print_json({"tenant": tenant} | _figures(usage))
    else:
        print_text(f"{tenant} stores {size(usage.bytes)} of {size(usage.budget)}")


def revoke(key_id: str, *, as_json: bool) -> None:
    """Raises OptionError."""
    with _opened() as (_, keys):
        key = keys.revoke(key_id)
    if as_json:
        print_json({"id": key.id, "tenant": key.tenant})
    else:
        print_text(f"{key.id} revoked")


def _row(key: ApiKey, usage: Usage) -> list[str]:
    rate = str(key.requests_per_minute or "any")
    return [
        *(key.id, key.tenant, rate),
        *(size(usage.bytes), size(usage.budget)),
        *(moment(key.created), key.name),
    ]


def _figures(usage: Usage) -> dict[str, Any]:
    return {"stored_bytes": usage.bytes, "byte_budget": usage.budget}


def _of_tenant(service: Service, tenant: str) -> Service:
    """Raises OptionError."""
    try:
        return service.of_tenant(tenant)
    except ValueError as error:
        raise OptionError(str(error), "tenant") from None


def _bytes(text: str) -> int | None:
    """A number of bytes as people write it, None for the default. Raises OptionError."""
    if text == DEFAULT:
        return None
    try:
        count = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        count = -1
    if count < 0:
        raise OptionError(f"the byte budget is {text[:40]!r}, but must be a size as 2GiB", "byte_budget")
    return count


@contextmanager
def _opened() -> Iterator[tuple[Service, ApiKeys]]:
    with (
        open_session(PlainLines(), STORE_ONLY) as session,
        connect(session.connection.redis_url) as client,
    ):
        yield session.service, ApiKeys(client)
