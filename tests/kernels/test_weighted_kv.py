"""The one data structure: what it refuses, and that its parts stay together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.weighted_kv import WeightedKV, concat
from tests.kernels.streams import same, stream


@pytest.mark.parametrize("rows", [(), (3,), (2, 3)], ids=str)
def test_gather_takes_all_four_of_every_row(rows: tuple[int, ...]) -> None:
    entries = stream(10, rows=rows)
    entries = replace(entries, weights=torch.rand(*rows, 10) + 1)
    index = torch.stack([torch.randperm(10)[:4] for _ in range(max(1, entries.rows.numel()))]).view(*rows, 4)
    for whole in (entries, concat([entries, entries]).slice(3, 13)):
        taken = whole.gather(index)
        wide = index.unsqueeze(-1).expand(*index.shape, 6)
        expected = WeightedKV(
            whole.keys.gather(-2, wide),
            whole.values.gather(-2, wide),
            whole.weights.gather(-1, index),
            whole.tokens.gather(-1, index),
        )
        assert same(taken, expected)


def test_slices_join_again() -> None:
    entries = stream(9)
    assert same(concat([entries.slice(0, 4), entries.slice(4, 4), entries.slice(4, 9)]), entries)
    assert len(WeightedKV.empty((2, 2), 6)) == 0
    assert same(concat([WeightedKV.empty((2, 2), 6), entries]), entries)
    assert entries.nbytes == 2 * 2 * 9 * (6 * 4 * 2 + 4 + 4)
    with pytest.raises(ValueError, match="parts is empty"):
        concat([])


def test_what_does_not_fit_together_is_refused() -> None:
    entries = stream(5)
    for wrong, message in [
        ({"values": entries.values[..., :4, :]}, "values has shape"),
        ({"weights": entries.weights[..., :4]}, "weights has shape"),
        ({"values": entries.values.double()}, "must share one floating dtype"),
        ({"tokens": entries.tokens.long()}, "weights must be float32 and tokens int32"),
    ]:
        with pytest.raises(ValueError, match=message):
            replace(entries, **wrong)
