"""Waiting for a job: its events drive the display and the text, and Ctrl-C or a dead part end the waiting."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable, Iterator

from orchestrator.cli.display import Display
from orchestrator.cli.terminal import clean, write
from orchestrator.cli.tracker import Tracker
from orchestrator.cli.word_wrap import WordWrap
from orchestrator.events import Event
from orchestrator.jobs import Job, JobResult
from orchestrator.service import Service

CHECK_SECONDS = 0.2


class TextStream:
    """Writes the tokens of a job to the terminal as they come, each once."""

    def __init__(self) -> None:
        self.begun = False
        self._next = 0
        self._ends_line = True
        self._wrap = WordWrap(shutil.get_terminal_size().columns)

    def add(self, event: Event) -> None:
        if int(event.data["index"]) != self._next:
            return  # a decode that was taken up again repeats its first tokens
        self._next += 1
        self.begun = True
        self._show(self._wrap.add(clean(str(event.data["text"]))))

    def close(self) -> None:
        """Show the last word and end the last line."""
        self._show(self._wrap.flush())
        if not self._ends_line:
            self._show("\n")

    def _show(self, text: str) -> None:
        write(text)
        self._ends_line = text.endswith("\n") if text else self._ends_line


def follow(
    service: Service, job: Job, display: Display, *, check: Callable[[], None], stream: bool
) -> JobResult:
    """Show a job until it ends and return its result.

    `check` is called again and again and may raise. With `stream` the text goes to the terminal as it is
    written, and the display makes room for it. Raises what `Service.result` raises.
    """
    tracker = Tracker(job.options.segment_tokens, job.options.max_new_tokens)
    text = TextStream()
    try:
        for event in _events(service, job.id, check):
            tracker.add(event)
            if stream and event.kind == "token":
                if not text.begun:
                    display.make_room()
                text.add(event)
            if not text.begun:
                display.update(tracker)
    finally:
        text.close()
    return service.result(job.id)


def _events(service: Service, job_id: str, check: Callable[[], None]) -> Iterator[Event]:
    """The job's events, read in a thread, so that waiting for one keeps nothing else from happening."""
    arrivals: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(service, job_id, arrivals), name="events", daemon=True).start()
    while True:
        try:
            arrival = arrivals.get(timeout=CHECK_SECONDS)
        except queue.Empty:
            check()
            continue
        if arrival is None:
            return
        if isinstance(arrival, Exception):
            check()  # a dead part is the reason, and a better one
            raise arrival
        yield arrival


def _read(service: Service, job_id: str, arrivals: queue.SimpleQueue[Event | Exception | None]) -> None:
    try:
        for event in service.events(job_id):
            arrivals.put(event)
        arrivals.put(None)
    except Exception as error:  # handed to the thread that waits, which raises it
        arrivals.put(error)
