"""Progress on standard error: bars in a terminal, plain lines elsewhere, nothing when asked for silence.

All three take the same calls, from one thread:
    status(text)      what is going on outside a job (starting, stopping); may be repeated
    update(tracker)   a job has gone on; may be called often
    note(text)        one line that stays
    make_room()       the text is written to the same terminal from here on; no more drawing
    close()           leave the terminal as it was found
"""

from __future__ import annotations

import sys
import time
from typing import Protocol

from orchestrator.cli.figures import count, duration
from orchestrator.cli.terminal import clean_line, is_terminal
from orchestrator.cli.tracker import StageProgress, Tracker
from orchestrator.jobs import REREAD

PLAIN_SECONDS = 10.0  # between two plain lines of the same stage
PATIENCE_SECONDS = 1.0

DOING = {
    "ingest": "splitting into tokens",
    "prefill": "reading",
    "compress": "compressing",
    "rank": "looking for passages",
    "reread": "reading again",
    "decode": "writing",
}


class Display(Protocol):
    """See the module's docstring."""

    def status(self, text: str) -> None: ...
    def update(self, tracker: Tracker) -> None: ...
    def note(self, text: str) -> None: ...
    def make_room(self) -> None: ...
    def close(self) -> None: ...


class Silent:
    """Shows nothing but notes, which nobody should miss."""

    def status(self, text: str) -> None: ...

    def update(self, tracker: Tracker) -> None: ...

    def note(self, text: str) -> None:
        print(clean_line(text), file=sys.stderr, flush=True)

    def make_room(self) -> None: ...

    def close(self) -> None: ...


class PlainLines:
    """For logs, and for commands that answer at once: a line for what takes longer than a second."""

    def __init__(self) -> None:
        self._status, self._status_since, self._status_shown = "", 0.0, False
        self._stage: tuple[str | None, str | None] = (None, None)
        self._due = 0.0

    def status(self, text: str) -> None:
        if text != self._status:
            self._status, self._status_since, self._status_shown = text, time.monotonic(), False
        elif not self._status_shown and time.monotonic() - self._status_since > PATIENCE_SECONDS:
            self._status_shown = True
            self.note(text)

    def update(self, tracker: Tracker) -> None:
        if tracker.current is None:
            return
        # Reading and compressing take turns; a line at each turn would be a flood.
        stage = "reading" if tracker.current in ("prefill", "compress") else tracker.current
        if (stage, tracker.remark) != self._stage or time.monotonic() >= self._due:
            self._stage, self._due = (stage, tracker.remark), time.monotonic() + PLAIN_SECONDS
            self.note(f"{tracker.remark}" if tracker.remark else line(tracker, tracker.current))

    def note(self, text: str) -> None:
        print(clean_line(text), file=sys.stderr, flush=True)

    def make_room(self) -> None: ...

    def close(self) -> None: ...


def line(tracker: Tracker, stage: str) -> str:
    """One stage in words: "reading: 3 of 20 segments, 512 tokens/s"."""
    return f"{DOING[stage]}: {amount(tracker.stages[stage], stage)}{speed(tracker, stage)}"


def amount(progress: StageProgress, stage: str) -> str:
    """How much of a stage is done, in its own unit."""
    if stage in ("ingest", "rank"):
        return "1 document"
    if stage == REREAD:
        return f"{progress.fraction:.0%}"
    if stage == "decode":
        return count(int(progress.done), "token")
    return f"{int(progress.done)} of {count(int(progress.total), 'segment')}"


def speed(tracker: Tracker, stage: str) -> str:
    """Tokens a second, where a stage has such a thing."""
    rate = tracker.tokens_per_second(stage) if stage in ("prefill", "decode") else 0.0
    digits = 0 if rate >= 10 else 1
    return f", {rate:,.{digits}f} tokens/s" if rate else ""


def seconds(tracker: Tracker, stage: str) -> str:
    return duration(tracker.seconds(stage))


def make_display(quiet: bool) -> Display:
    """The display that suits standard error."""
    if quiet:
        return Silent()
    if is_terminal(sys.stderr):
        from orchestrator.cli.bars import Bars

        return Bars()
    return PlainLines()
