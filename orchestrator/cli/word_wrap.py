"""Breaks text between words while it is still being written: a terminal alone would break inside them."""

from __future__ import annotations

from rich.cells import cell_len


class WordWrap:
    """Feed it text in pieces of any size; a word comes out once it is complete."""

    def __init__(self, width: int) -> None:
        """`width` in columns of the terminal."""
        self._width = max(1, width)
        self._column = 0
        self._word = ""

    def add(self, text: str) -> str:
        """What can be shown now."""
        return "".join(map(self._letter, text))

    def flush(self) -> str:
        """The word that was not complete yet."""
        word, self._word = self._word, ""
        return self._place(word)

    def _letter(self, letter: str) -> str:
        if letter == "\n":
            shown = self.flush() + "\n"
            self._column = 0
            return shown
        if letter.isspace():
            shown = self.flush()
            if self._column >= self._width:  # the line's end takes the place of this space
                self._column = 0
                return shown + "\n"
            self._column += 1
            return shown + letter
        longer_than_a_line = cell_len(self._word + letter) > self._width
        shown = self.flush() if longer_than_a_line else ""
        self._word += letter
        return shown

    def _place(self, word: str) -> str:
        size = cell_len(word)
        fits = self._column + size <= self._width
        self._column = self._column + size if fits else size
        return word if fits or not word else "\n" + word
