"""What can go wrong with stored objects.

StoreError
├── ObjectMissing      the object is not there, or a part of it is gone: rebuild it
├── ObjectDamaged      bytes do not match their checksum, or a manifest is not one: dropped, rebuild it
├── FormatMismatch     whole, but made by another model, plan or format version: never load it
├── TransferError      a file is not an exported state, or cannot be read or written
├── BudgetExceeded     the tenant's byte budget has no room for the object
│   ├── LargerThanBudget  nor would it have, were the tenant to delete everything
│   └── StoreFull         the server itself has reached its memory limit
└── StoreUnavailable   the server cannot be reached or refuses to work

Every message is one sentence that can be shown to a user; none of them carries a password or a key's content.
Arguments that can never be right (names, tenants, sizes) raise ValueError instead.
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything that reading or writing stored objects raises."""


class ObjectMissing(StoreError):
    """The object does not exist (any more)."""


class ObjectDamaged(StoreError):
    """The object existed but was not what its manifest promised; it has been dropped."""


class FormatMismatch(StoreError):
    """The object belongs to another model, plan, shape or format version."""


class TransferError(StoreError):
    """A file to import is not a whole exported state, or a file could not be read or written."""


class BudgetExceeded(StoreError):
    """The tenant's byte budget has no room for the object."""


class LargerThanBudget(BudgetExceeded):
    """The object alone is larger than the tenant's whole budget."""


class StoreFull(BudgetExceeded):
    """The server has reached its memory limit, whatever the tenant's budget says."""


class StoreUnavailable(StoreError):
    """The server cannot be reached, or refuses to work."""
