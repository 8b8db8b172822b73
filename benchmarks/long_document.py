"""Does reading stay as cheap as it began? Memory of the worker, and seconds per segment, early and late.

    python -m benchmarks.long_document [--file PATH] [--model NAME] [--early 10]

Reads the whole Python reference (over 100,000 tokens) or a given file through all services, as `summarize`
does. The baseline of both ratios is the same run at its beginning: peak memory of the worker when the tenth
segment is done, and the median of the first segments that read from a full state. Uses a data folder of its
own, so that nothing is found stored.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from orchestrator.cli.display import Silent
from orchestrator.cli.sample_document import sample_document
from orchestrator.cli.session import Session, open_session
from orchestrator.documents import Document, load_document
from orchestrator.embedded.home import STORE_ONLY
from orchestrator.events import Event
from orchestrator.jobs import DEFAULT_MODEL, Job, JobOptions
from orchestrator.service import Service
from orchestrator.settings import Settings

MIB = 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--file", type=Path, help="a document; the Python reference when absent")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--early", type=int, default=10, help="segments that count as early")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["DOCEXPRESS_HOME"] = home
        with open_session(Silent(), STORE_ONLY) as session:
            session.need_workers(options.model)
            measure(session, document(options.file), options.model, options.early)


def document(file: Path | None) -> Document:
    if file is None:
        return Document("reference", sample_document(whole=True))
    return load_document(file, limits=Settings().reading_limits)


def measure(session: Session, text: Document, model: str, early: int) -> None:
    """Runs the job and prints both ratios. SystemExit when the document is too short to tell."""
    worker = worker_process()
    job = session.service.submit(text, JobOptions(model=model, max_new_tokens=16))
    begun: dict[tuple[str, int], float] = {}
    peaks: list[int] = []
    for event in watched(session.service, job):
        if event.kind != "stage":
            continue
        stage, segment = event.data["stage"], event.data["segment"]
        begun[stage, segment] = event.time
        if stage == "compress":
            peaks.append(peak_bytes(worker))
            print(f"\rsegment {segment + 1} of {event.data['segments']}", end="", flush=True)
    print()
    if len(peaks) < 3 * early:
        raise SystemExit(f"the document has {len(peaks)} segments; {3 * early} are wanted")
    report(session.service.job(job.id), begun, peaks, early)


def watched(service: Service, job: Job) -> Iterator[Event]:
    for event in service.events(job.id):
        if event.kind in ("failed", "cancelled"):
            raise SystemExit(f"the job did not end well: {event.data}")
        yield event


def report(job: Job, begun: dict[tuple[str, int], float], peaks: list[int], early: int) -> None:
    # The last segment is shorter, the first ones find the state not full yet.
    seconds = [begun["prefill", i + 1] - begun["prefill", i] for i in range(len(peaks) - 1)]
    full_after = job.cache_entries // job.options.segment_tokens + 1
    first = statistics.median(seconds[full_after : full_after + early])
    last = statistics.median(seconds[-early:])
    print(
        f"{job.token_count} tokens in {len(peaks)} segments of {job.options.segment_tokens},"
        f" {job.cache_entries} entries kept"
    )
    print(
        f"peak memory of the worker: {peaks[early - 1] / MIB:.0f} MiB after segment {early},"
        f" {peaks[-1] / MIB:.0f} MiB at the end, ratio {peaks[-1] / peaks[early - 1]:.3f}"
    )
    print(
        f"seconds per segment, median: {first:.2f} among the first {early} with a full state,"
        f" {last:.2f} among the last {early}, ratio {last / first:.3f}"
    )


def worker_process() -> psutil.Process:
    """The kernel worker among our descendants."""
    for process in psutil.Process().children(recursive=True):
        if "kernel_worker" in process.cmdline():
            return process
    raise SystemExit("no kernel worker runs under this process")


def peak_bytes(process: psutil.Process) -> int:
    """The most resident memory the process ever had (VmHWM)."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell a process's peak memory")


if __name__ == "__main__":
    main()
