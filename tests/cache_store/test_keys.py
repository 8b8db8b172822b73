"""Keys: the tenant is in each of them, and nothing unchecked gets into one."""

from __future__ import annotations

import pytest

from cache_store.keys import KINDS, TenantKeys, check_kind, check_name, check_tenant
from tests.cache_store.helpers import name_of


@pytest.mark.parametrize("tenant", ["default", "a", "0-9_z", "a" * 63])
def test_allowed_tenants(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize(
    "tenant",
    [
        "",
        "-a",
        "_a",
        "A",
        "a:b",
        "a*",
        "a b",
        "a\n",
        "ä",
        "a" * 64,
        "workers",
        "worker",
        "celery",
        "orchestrator",
        "../a",
    ],
)
def test_refused_tenants(tenant: str) -> None:
    with pytest.raises(ValueError, match=r"tenant is .* allowed are"):
        TenantKeys(tenant)


@pytest.mark.parametrize("name", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n", "*"])
def test_refused_names(name: str) -> None:
    with pytest.raises(ValueError, match="object name is"):
        check_name(name)


def test_refused_kind_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="allowed are document, tokens, state, checkpoint"):
        check_kind("upload")


def test_every_key_begins_with_format_and_tenant() -> None:
    keys = TenantKeys("alice")
    made = [keys.expiry, keys.book, keys.budget]
    for kind in KINDS:
        made += [keys.manifest(kind, name_of("x")), keys.part(kind, name_of("x"), "0" * 32, 7)]
    assert all(key.startswith("docexpress:1:alice:") for key in made)
    assert len(set(made)) == len(made)
