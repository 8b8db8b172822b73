"""Stop sequences, wherever the pieces of a text happen to end."""

from __future__ import annotations

import pytest

from orchestrator.http.openai.stops import StopFilter


@pytest.mark.parametrize("stops", [[], ["END"], ["aab"], ["\n\n", "xy"], ["aa", "aaab"]])
@pytest.mark.parametrize("text", ["", "one END two", "aaaab aab", "x\nxy\n\n", "aaa", "EN", "no end ENEND."])
def test_the_same_whatever_the_pieces(text: str, stops: list[str]) -> None:
    first = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
    expected = text if first is None else text[:first]
    for size in (1, 2, 3, 100):
        cut = StopFilter(stops)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        shown = [cut.add(piece) for piece in pieces]
        assert all(expected.startswith("".join(shown[:n])) for n in range(len(shown) + 1))
        assert "".join(shown) + cut.rest() == expected
        assert cut.stopped == (first is not None)


def test_text_is_not_held_back_without_need() -> None:
    cut = StopFilter(["END"])
    assert [cut.add("one E"), cut.add("x"), cut.add("EN"), cut.add("D and more")] == ["one ", "Ex", "", ""]
    assert cut.rest() == ""
