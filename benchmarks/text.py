"""Text that is on every machine: the Python language reference inside `pydoc_data.topics`."""

from __future__ import annotations

from itertools import chain
from pydoc_data.topics import topics

from kernel_worker.model import LoadedModel


def sample_ids(loaded: LoadedModel, count: int) -> list[int]:
    """Template prefix and the first tokens of the reference, `count` in all."""
    pieces = loaded.tokenizer.encode_document(["\n\n".join(topics.values())])
    ids = [*loaded.prompt.prefix_ids, *chain.from_iterable(piece.ids for piece in pieces)]
    if len(ids) < count:
        raise SystemExit(f"the text has {len(ids)} tokens; {count} are wanted")
    return ids[:count]
