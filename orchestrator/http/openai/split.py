"""Where a conversation is cut: into a document, which is read once, and an instruction, which is read anew.

The document ends with the longest message. If that is the user's and nothing of the user's follows directly,
its last paragraph belongs to the instruction: there one writes what is wanted of the text above. So the
document stays the same while a conversation about it goes on, and its stored state is found again. Where the
instruction would become too long for a segment, the document ends later: before the last message, or before
the last paragraph of that. A conversation that is nothing but one paragraph is the document itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

INSTRUCTION_CHARACTERS = 2000  # some 500 tokens: well below a segment
REPLY = "Reply to the text above."
_LAST_BREAK = re.compile(r".*\n[ \t]*\n", re.DOTALL)
_NAMES = {"user": "User", "assistant": "Assistant", "system": "System", "developer": "System"}


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """A message: who says what."""

    role: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """A text to be read, and what to do with it."""

    document: str
    instruction: str


def split(turns: Sequence[Turn]) -> Prompt:
    """Cuts a conversation of which at least one turn is not blank."""
    said = [turn for turn in turns if turn.text.strip()]
    for document, rest in _cuts(said):
        instruction = _instruction(rest)
        if document and instruction and len(instruction) <= INSTRUCTION_CHARACTERS:
            return Prompt(_document(document), instruction)
    return Prompt(_document(said), REPLY)


def _cuts(turns: list[Turn]) -> Iterator[tuple[list[Turn], list[Turn]]]:
    """Where to cut, the best place first."""
    at = max(range(len(turns)), key=lambda index: len(turns[index].text))
    after = turns[at + 1 :]
    if turns[at].role == "user" and not (after and after[0].role == "user"):
        head, tail = _last_paragraph(turns[at])
        yield turns[:at] + head, [tail, *after]
    else:
        yield turns[: at + 1], after
    yield turns[:-1], turns[-1:]
    head, tail = _last_paragraph(turns[-1])
    yield turns[:-1] + head, [tail]


def _last_paragraph(turn: Turn) -> tuple[list[Turn], Turn]:
    """A turn without its last paragraph (nothing if that is all), and the last paragraph."""
    text = turn.text.strip()
    found = _LAST_BREAK.match(text)
    if found is None:
        return [], Turn(turn.role, text)
    return [Turn(turn.role, found.group().rstrip())], Turn(turn.role, text[found.end() :])


def _document(turns: Sequence[Turn]) -> str:
    return "\n\n".join(turn.text.strip() for turn in turns)


def _instruction(turns: Sequence[Turn]) -> str:
    if len(turns) == 1:
        return turns[0].text.strip()
    return "\n\n".join(f"{_NAMES[turn.role]}: {turn.text.strip()}" for turn in turns)
