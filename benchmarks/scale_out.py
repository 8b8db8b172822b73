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
import statistics
from contextlib import ExitStack

from benchmarks.processes import Processes, processes, sample
from orchestrator.jobs import DEFAULT_MODEL, Job

WANTED = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--segments", type=int, default=8, help="of each document")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    options = parser.parse_args()
    with processes(options.model) as bench:
        measure(bench, options.segments, options.rounds)


def measure(bench: Processes, segments: int, rounds: int) -> None:
    """Prints both medians and their ratio. SystemExit when a worker had nothing to do."""
    pair = [sample(segments), sample(segments, first=segments)]
    warming = [text[: len(text) // 4] for text in pair]
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
