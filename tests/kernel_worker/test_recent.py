"""What was used last is found without being sought; failures are not kept."""

from __future__ import annotations

import pytest

from kernel_worker.recent import Recent


def test_the_least_recently_used_is_sought_again() -> None:
    recent, sought = Recent[str, str](2), list[str]()

    def get(key: str) -> str:
        def find() -> str:
            sought.append(key)
            return key.upper()

        return recent.get(key, find)

    assert [get(key) for key in "abacab"] == list("ABACAB")
    assert sought == list("abcb")


def test_a_failure_is_not_kept() -> None:
    recent = Recent[str, int](2)
    with pytest.raises(ZeroDivisionError):
        recent.get("a", lambda: 1 // 0)
    assert recent.get("a", lambda: 1) == 1
