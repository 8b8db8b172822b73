"""`python -m evaluation.ranks`: how often the product's ranking by words finds what answers. Runs no model.

Takes needles asked for in the words of the document and in none of them, questions of readers, and questions
of users of a search engine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from evaluation.bench import Bench
from evaluation.cases import Case, read_set
from evaluation.errors import EvaluationError
from evaluation.product_rereading import ProductReread
from evaluation.profiles import FULL, far_tasks
from evaluation.statistics import wilson
from kernel_worker.engine import Engine
from kernel_worker.model import load_model

_SEGMENT = 1024


def main(arguments: list[str] | None = None) -> int:
    """Prints a table; exit code 0, or 2 for missing data."""
    parser = argparse.ArgumentParser("python -m evaluation.ranks", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with needle/ and sets/")
    parser.add_argument("--model", default="embedded", help="whose tokens are counted")
    parser.add_argument("--cases", type=int, default=20, help="needle documents of each length")
    options = parser.parse_args(arguments)
    try:
        bench = Bench(Engine(load_model(options.model, device="cpu")), _SEGMENT)
        for line in _table(bench, options.data, options.cases):
            print(line)
    except EvaluationError as error:
        print(f"evaluation: {error}", file=sys.stderr)
        return 2
    return 0


def _table(bench: Bench, data: Path, count: int) -> Iterator[str]:
    yield "| questions | cases | first | in three | 95% | no word leads anywhere |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for task in far_tasks(replace(FULL, far_cases=count), data, "all"):
        yield _row(bench, task.name, task.cases)
    yield _row(bench, "pd_qa", [case for case in read_set(data / "sets" / "pd_qa.jsonl") if case.evidence])
    yield _row(bench, "nq_multidoc_qa", read_set(data / "sets" / "nq_multidoc_qa.jsonl"))


def _row(bench: Bench, name: str, cases: Sequence[Case]) -> str:
    places = [rank(bench, case) for case in cases]
    found = sum(1 <= place <= 3 for place in places)
    low, high = wilson(found, len(places))
    return (
        f"| {name} | {len(places)} | {places.count(1)} | {found} | {low:.2f}–{high:.2f} | {places.count(0)} |"
    )


def rank(bench: Bench, case: Case) -> int:
    """Place of the passage with the evidence among three; 4 where none has it, 0 where no word tells.

    Where the evidence is not known: of the first passage in which an accepted answer stands.
    """
    ids, method = bench.document_ids(case.document), ProductReread(passages=3)
    if not case.evidence:
        return method.place_of_answer(bench, ids, case.question, case.references)
    return method.place(bench, ids, case.question, bench.span(case.document, case.evidence))


if __name__ == "__main__":
    sys.exit(main())
