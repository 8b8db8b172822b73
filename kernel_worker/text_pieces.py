"""Where a long text may be cut so that its pieces, encoded one by one, give the ids of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PIECE_CHARACTERS = 16_384


def split_text(chunks: Iterable[str], limit: int = PIECE_CHARACTERS) -> Iterator[str]:
    """The text of all chunks in pieces of at most `limit` characters; how it is chunked changes nothing.

    A piece ends, in this order of preference and as late as possible in the second half of its `limit`
    characters: between a letter and a blank (no pre-tokenizer in use joins the two, so that ids are those
    of the whole text); before a blank; else at `limit` (a text without blanks).
    Holds `limit` characters and one chunk at a time.
    """
    waiting, start = "", 0
    for chunk in chunks:
        waiting, start = waiting[start:] + chunk, 0
        # One more character must be known than a piece may hold: what follows decides about the last cut.
        while len(waiting) - start > limit:
            cut = _cut(waiting, start, limit)
            yield waiting[start:cut]
            start = cut
    if start < len(waiting):
        yield waiting[start:]


def _cut(text: str, start: int, limit: int) -> int:
    before_blank = 0
    for place in range(start + limit, start + limit // 2, -1):
        if text[place].isspace():
            if text[place - 1].isalpha():
                return place
            if not before_blank and not text[place - 1].isspace():
                before_blank = place
    return before_blank or start + limit
