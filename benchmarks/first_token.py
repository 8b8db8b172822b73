"""How long does a short job wait for its first token while a long document is read by the same worker?

    python -m benchmarks.first_token [--rounds 3] [--model NAME]

Every process is one of its own, as in production: Valkey, an orchestrator, one worker with OMP_NUM_THREADS=1.
In each round a long document is submitted; when its third segment begins, a short one is. What counts are
the seconds from that to the first token of the short one's text, all stages included, and how many segments
of the long one that is: fewer than two are wanted. The baseline is the same short job on the idle worker.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

from benchmarks.processes import Processes, processes, sample
from orchestrator.jobs import DEFAULT_MODEL

WANTED = 2.0
SEGMENTS = 24  # of the long document: more than are read in a round
SHORT = "The ferry to the island leaves at seven. In winter it does not leave at all, and letters wait."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    options = parser.parse_args()
    alone, beside, segments = [], [], []
    with (
        processes(options.model) as bench,
        bench.process("orchestrator", "orchestrate"),
        bench.worker("worker"),
    ):
        bench.seconds([SHORT])
        for _ in range(options.rounds):
            alone.append(first_token(bench))
            segment, first = round_of(bench)
            segments.append(segment)
            beside.append(first)
    segment, first = statistics.median(segments), statistics.median(beside)
    print(
        f"first token of a short job: {statistics.median(alone):.2f} s on an idle worker, {first:.2f} s while"
        f" a long document is read; that is {first / segment:.2f} of its segments of {segment:.2f} s"
        f" (fewer than {WANTED:g} wanted)"
    )


def first_token(bench: Processes) -> float:
    """Seconds from the submission of the short job to its first token. Returns when it has ended."""
    begun = time.perf_counter()
    events = bench.service.events(bench.submit(SHORT).id)
    for event in events:
        if event.kind == "token":
            taken = time.perf_counter() - begun
            break
    else:
        raise SystemExit("the short job wrote nothing")
    for _ in events:
        pass
    return taken


def round_of(bench: Processes) -> tuple[float, float]:
    """Seconds of a segment of the long document while it is alone, and those of `first_token` beside it."""
    long = bench.submit(sample(SEGMENTS))
    begun: list[float] = []
    for event in bench.service.events(long.id):
        if event.kind == "stage" and event.data["stage"] == "prefill":
            begun.append(event.time)
        if len(begun) == 3:
            break
    taken = first_token(bench)
    if bench.service.job(long.id).finished:
        raise SystemExit("the long document was read too soon")
    bench.service.cancel(long.id)
    for _ in bench.service.events(long.id):
        pass
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(begun)), taken


if __name__ == "__main__":
    main()
