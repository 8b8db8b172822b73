"""Several texts written together: one call of the model gives each of them its next token.

States of bounded size make this cheap: a row of a table is as long as its state and the tokens up to the
next fold, however long the document was. What a text says does not depend on the others: a step is filled up,
with rows that nobody reads, to where the number of rows no longer matters (see rows.py), or to the most that
there may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernel_worker import attention
from kernel_worker.decoding import DecodeStep, Decoding
from kernel_worker.model import LoadedModel
from kernel_worker.token_cache import BatchCache, TokenRow, TokenTable

Stepped = tuple[Decoding, DecodeStep | Exception]


class Batch:
    """At most `rows` decodings of one model. Not thread-safe; any thread may call, one at a time."""

    def __init__(self, loaded: LoadedModel, rows: int = 1) -> None:
        if rows > loaded.most_rows:
            raise ValueError(f"rows is {rows}; the model was loaded for at most {loaded.most_rows}")
        self._loaded, self._rows = loaded, rows
        self._decodings: list[Decoding] = []
        self._tables: dict[tuple[int, int], TokenTable] = {}

    def __len__(self) -> int:
        return len(self._decodings)

    @property
    def decodings(self) -> tuple[Decoding, ...]:
        """Those that the next step is for, in the order in which they came."""
        return tuple(self._decodings)

    def join(self, decoding: Decoding) -> None:
        """From the next step on; RuntimeError where all rows are taken."""
        if len(self) == self._rows:
            raise RuntimeError(f"all {self._rows} rows are taken")
        self._decodings.append(decoding)

    @torch.inference_mode()
    def leave(self, decoding: Decoding) -> None:
        """Whether it has ended or not; a decoding that is not there is none to lose."""
        if decoding in self._decodings:
            self._decodings.remove(decoding)
        if decoding.row is not None:
            self._unseat(decoding.row)
            decoding.row = None

    def abandon(self) -> None:
        """Lets go of all decodings and their rows, whose memory goes with them."""
        for decoding in self._decodings:
            decoding.row = None
        for table in self._tables.values():
            table.rows.clear()  # which refer to it
        self._decodings, self._tables = [], {}

    @torch.inference_mode()
    def step(self) -> list[Stepped]:
        """One token of every decoding, or its end, or what went wrong with it alone; those two leave.

        What the model's call raises passes through, and then the batch has to be abandoned.
        """
        ended: list[Stepped] = [
            (each, end) for each in self._decodings if (end := each.end() or self._unseated(each))
        ]
        for decoding, _ in ended:
            self.leave(decoding)
        if not self._decodings:
            return ended
        stepped = [(decoding, self._taken(decoding, logits)) for decoding, logits in self._forward()]
        for decoding, step in stepped:
            if isinstance(step, Exception) or step.finish is not None:
                self.leave(decoding)
        return [*ended, *stepped]

    def _forward(self) -> list[tuple[Decoding, Tensor]]:
        """Each decoding with its logits [vocabulary]."""
        cache = BatchCache(list(self._tables.values()), self._loaded.rotary)
        of_row = {id(each.row): each for each in self._decodings}
        order = [of_row[id(row)] for row in cache.order]
        logits = self._logits(cache, [decoding.last for decoding in order])
        cache.step()
        return list(zip(order, logits, strict=False))

    def _logits(self, cache: BatchCache, ids: Sequence[int]) -> Tensor:
        """[rows, vocabulary], of which the first ones belong to the ids."""
        loaded = self._loaded
        unread = max(0, (loaded.fewest_rows or loaded.most_rows) - len(ids))
        tokens = torch.tensor([*ids, *[0] * unread], device=loaded.device).unsqueeze(1)
        # Position 0 everywhere: the model's own rotation is the identity then (see rotary.py).
        places, extra = torch.zeros_like(tokens), {attention.NAME: cache}
        model: Any = loaded.model
        logits: Tensor = model(
            input_ids=tokens, position_ids=places, cache=cache, use_cache=True, **extra
        ).logits
        return logits[:, -1]

    def _taken(self, decoding: Decoding, logits: Tensor) -> DecodeStep | Exception:
        row = decoding.row
        try:
            return decoding.take(decoding.choose(logits))
        except Exception as error:  # a policy's refusal, say: it ends this text, and no other
            return error
        finally:
            if row is not None and decoding.row is None:  # folded, or not
                self._unseat(row)

    def _unseated(self, decoding: Decoding) -> Exception | None:
        """Why there is no row for it: no memory, say, for a long one. Otherwise it has one after this."""
        try:
            row = decoding.seat()
            if row.table is None:
                key = (row.size, row.room)
                table = self._tables.get(key) or TokenTable(row.state.entries, *key)
                table.join(row)
                self._tables[key] = table
        except Exception as error:
            return error
        return None

    def _unseat(self, row: TokenRow) -> None:
        """Out of its table; an empty table goes, and its memory with it."""
        table = row.table
        if table is None:
            return
        table.leave(row)
        if not table.rows:
            del self._tables[table.size, table.room]
