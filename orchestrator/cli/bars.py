"""Progress bars in a terminal, one for each stage that has begun."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from orchestrator.cli.display import DOING, PATIENCE_SECONDS, amount, seconds, speed
from orchestrator.cli.figures import duration
from orchestrator.cli.terminal import clean_line
from orchestrator.cli.tracker import Tracker, in_order

BAR_WIDTH = 28


class Bars:
    """Draws about eight times a second, from a thread of rich's own, while something goes on."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._spinner = Spinner("dots")
        self._status, self._status_since = "", 0.0
        self._tracker: Tracker | None = None
        self._live: Live | None = None
        self._text_begun = False

    def status(self, text: str) -> None:
        if self._tracker is not None:  # the job is over: its bars stay above what follows
            self._stop()
            self._tracker = None
        if text != self._status:
            self._status, self._status_since = text, time.monotonic()
        self._draw(leaves_no_trace=True)

    def update(self, tracker: Tracker) -> None:
        if self._tracker is None:
            self._stop()
            self._tracker = tracker
        self._draw(leaves_no_trace=False)

    def note(self, text: str) -> None:
        self._console.print(Text(clean_line(text)))

    def make_room(self) -> None:
        self._text_begun = True
        self._stop()
        self._console.print()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def close(self) -> None:
        self._stop()

    def _draw(self, *, leaves_no_trace: bool) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._picture,
                console=self._console,
                refresh_per_second=8,
                transient=leaves_no_trace,
            )
            self._live.start()

    def _picture(self) -> RenderableType:
        tracker = self._tracker
        if tracker is None:
            lasted = time.monotonic() - self._status_since
            since = f"  {duration(lasted)}" if lasted >= PATIENCE_SECONDS else ""
            self._spinner.update(text=Text.assemble(clean_line(self._status), (since, "dim")))
            return self._spinner
        # The text itself takes the place of the bar for writing it.
        shown = [stage for stage in in_order(tracker.stages) if not (self._text_begun and stage == "decode")]
        return Group(
            _bars(tracker, shown), *([Text(clean_line(tracker.remark), "yellow")] if tracker.remark else [])
        )


def _bars(tracker: Tracker, stages: list[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=max(map(len, DOING.values())), no_wrap=True)
    table.add_column(width=BAR_WIDTH)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    for stage in stages:
        progress = tracker.stages[stage]
        pulse = stage == tracker.current and stage in ("ingest", "rank")
        bar = ProgressBar(total=1.0, completed=progress.fraction, width=BAR_WIDTH, pulse=pulse)
        words = amount(progress, stage) + speed(tracker, stage)
        table.add_row(DOING[stage], bar, words, seconds(tracker, stage))
    return table
