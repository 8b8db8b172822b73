"""Every key of the cache store, built in one place: `docexpress:{format}:{tenant}:...`.

A tenant's name is part of each of its keys, so that no lookup can cross from one tenant to another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

FORMAT_VERSION: Final = 1
ROOT = f"docexpress:{FORMAT_VERSION}"

Kind = Literal["document", "tokens", "state", "checkpoint"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TENANT_PATTERN = r"[a-z0-9][a-z0-9_-]{0,62}"
NAME_PATTERN = r"[0-9a-f]{64}"

# Not a tenant's name, because the keys of the worker registry and of the orchestrator stand there.
RESERVED_TENANTS = frozenset({"workers", "worker", "celery", "orchestrator"})


def check_tenant(tenant: str) -> str:
    """The tenant's name itself; ValueError says what is allowed."""
    if not re.fullmatch(TENANT_PATTERN, tenant) or tenant in RESERVED_TENANTS:
        raise ValueError(
            f"tenant is {tenant!r}; allowed are 1 to 63 of a-z, 0-9, - and _, not starting with - or _, "
            f"and none of {', '.join(sorted(RESERVED_TENANTS))}"
        )
    return tenant


def check_kind(kind: str) -> Kind:
    """The kind itself; ValueError names the kinds there are."""
    for known in KINDS:
        if kind == known:
            return known
    raise ValueError(f"kind is {kind!r}; allowed are {', '.join(KINDS)}")


def check_name(name: str) -> str:
    """The object's name itself; ValueError unless it is a SHA-256 in lower-case hex."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(f"object name is {name[:80]!r}; allowed are 64 lower-case hexadecimal digits")
    return name


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """The keys of one tenant. Raises ValueError for a bad tenant, kind or object name."""

    tenant: str

    def __post_init__(self) -> None:
        check_tenant(self.tenant)

    @property
    def expiry(self) -> str:
        """Sorted set: member -> Unix time in ms at which it expires."""
        return f"{ROOT}:{self.tenant}:expiry"

    @property
    def book(self) -> str:
        """Hash: member -> record of its bytes and parts (see `scripts`), and `total` -> bytes of all."""
        return f"{ROOT}:{self.tenant}:book"

    @property
    def budget(self) -> str:
        """String: the bytes that this tenant may store; without it the settings' budget counts."""
        return f"{ROOT}:{self.tenant}:budget"

    def member(self, kind: str, name: str) -> str:
        """The object in the tenant's index."""
        return f"{check_kind(kind)}:{check_name(name)}"

    def manifest(self, kind: str, name: str) -> str:
        return f"{ROOT}:{self.tenant}:{self.member(kind, name)}"

    def upload(self, generation: str) -> str:
        """The member of the tenant's index that reserves the bytes of an upload in progress."""
        return f"upload:{generation}"

    def part(self, kind: str, name: str, generation: str, index: int) -> str:
        """The generation is drawn anew for every upload: writers of the same object never touch each other's
        parts, so a manifest always refers to the bytes that were written together with it.
        """
        return f"{self.manifest(kind, name)}:{generation}:{index}"
