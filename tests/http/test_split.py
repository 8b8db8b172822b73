"""Where conversations are cut into document and instruction."""

from __future__ import annotations

import pytest

from orchestrator.http.openai.split import INSTRUCTION_CHARACTERS, REPLY, Prompt, Turn, split

TEXT = "A long text.\n\n" * 30 + "Its end."
WALL = "word " * INSTRUCTION_CHARACTERS


def user(text: str) -> Turn:
    return Turn("user", text)


def assistant(text: str) -> Turn:
    return Turn("assistant", text)


@pytest.mark.parametrize(
    ("turns", "document", "instruction"),
    [
        pytest.param([user(f"{TEXT}\n\nSum it up.")], TEXT, "Sum it up.", id="one message"),
        pytest.param([user(f"{TEXT} \n \t\n Sum it\nup.\n\n")], TEXT, "Sum it\nup.", id="blank line"),
        pytest.param([Turn("system", TEXT), user("Sum it up.")], TEXT, "Sum it up.", id="system"),
        pytest.param([user(TEXT), user("Sum it up.")], TEXT, "Sum it up.", id="two of the user's"),
        pytest.param([user(" "), user(f"{TEXT}\n\nWhy?")], TEXT, "Why?", id="blank ones do not count"),
        pytest.param(
            [Turn("system", "Be brief."), user(f"{TEXT}\n\nWhy?")], f"Be brief.\n\n{TEXT}", "Why?", id="both"
        ),
        pytest.param([Turn("system", "Be brief."), user("Why is it so?")], "Be brief.", "Why is it so?"),
        pytest.param([user("Hello")], "Hello", REPLY, id="nothing but a line"),
        pytest.param([user(WALL)], WALL.strip(), REPLY, id="one paragraph"),
        pytest.param(
            [user(TEXT), user(f"{WALL}\n\nWhy?")], f"{TEXT}\n\n{WALL.strip()}", "Why?", id="two long ones"
        ),
        pytest.param(
            [user(f"{TEXT}\n\nWho?"), assistant("She."), user("Why?")],
            TEXT,
            "User: Who?\n\nAssistant: She.\n\nUser: Why?",
            id="a conversation goes on",
        ),
    ],
)
def test_cuts(turns: list[Turn], document: str, instruction: str) -> None:
    assert split(turns) == Prompt(document, instruction)


def test_a_conversation_that_has_become_long_is_read_as_a_document() -> None:
    turns = [user(f"{TEXT}\n\nWho?")]
    while sum(len(turn.text) for turn in turns[1:]) < INSTRUCTION_CHARACTERS:
        turns += [assistant("She. " * 20), user("Why?")]
    prompt = split(turns)
    assert prompt.instruction == "Why?"
    assert prompt.document.startswith(TEXT)
    assert prompt.document.count("She. She.") > 0
