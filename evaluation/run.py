"""Does the work of a profile, case by case, and writes each result down as soon as it is known."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from evaluation.bench import Bench
from evaluation.cases import Case
from evaluation.journal import Journal, Result
from evaluation.language import fidelity, log_probabilities, stream_likelihood
from evaluation.methods import ByPolicy, Method, Work, exact_policy
from evaluation.tasks import Task

log = logging.getLogger(__name__)
ENDING = 512
"""Tokens of a window whose distributions are compared; those before them are compressed."""


def run_task(
    bench: Bench, journal: Journal, task: Task, methods: Sequence[Method], compressions: Sequence[float]
) -> None:
    """Every method at every compression on every case of a task with answers in words."""
    for number, case in enumerate(task.cases):
        ids = tuple(bench.document_ids(case.document))
        for method in methods:
            for compression in compressions if method.budgeted else [1.0]:
                entries = max(1, round(len(ids) / compression))
                work = Work(ids, task.instruction(case), task.answer_tokens, entries, case.question)
                _one(bench, journal, task, case, method, work, compression)
        log.info("%s: %d of %d", task.name, number + 1, len(task.cases))


def run_fixed(bench: Bench, journal: Journal, task: Task, methods: Sequence[Method], entries: int) -> None:
    """The same at a fixed number of entries, whatever the length of the document."""
    for number, case in enumerate(task.cases):
        ids = tuple(bench.document_ids(case.document))
        for method in methods:
            work = Work(ids, task.instruction(case), task.answer_tokens, entries, case.question)
            compression = len(ids) / entries if method.budgeted else 1.0
            _one(bench, journal, task, case, method, work, compression)
        log.info("%s: %d of %d", task.name, number + 1, len(task.cases))


def _one(
    bench: Bench, journal: Journal, task: Task, case: Case, method: Method, work: Work, compression: float
) -> None:
    key = (task.name, case.name, method.name, compression)
    if key in journal or not method.suits(bench, work):
        return
    answer = method.answer(bench, work)
    journal.add(
        Result(
            task.name,
            case.group,
            case.name,
            method.name,
            compression,
            work.entries if method.budgeted else 0,
            task.score(answer.text, case.references),
            answer.text,
            case.depth,
            len(work.ids),
            answer.prefill_seconds,
            answer.probe_seconds,
            answer.fold_seconds,
        )
    )


def book_windows(bench: Bench, folder: Path, count: int) -> Iterable[tuple[str, list[int]]]:
    """`count` windows of each book, as long as the model's window, far apart."""
    for path in sorted(folder.iterdir()):
        text = path.read_text(encoding="utf-8")
        for number in range(count):
            start = len(text) * (number + 1) // (count + 2)
            ids = bench.document_ids(text[start : start + 8 * bench.window])[: bench.window]
            if len(ids) == bench.window:
                yield f"{path.stem}-{number}", ids


def run_fidelity(
    bench: Bench,
    journal: Journal,
    windows: Iterable[tuple[str, list[int]]],
    methods: Sequence[Method],
    budgets: Sequence[int],
) -> None:
    """KL of the last tokens of a window to the uncompressed model, the tokens before them compressed."""
    exact = exact_policy(bench)
    for name, ids in windows:
        body = len(ids) - ENDING
        policies = [
            (m, budget) for m in methods if isinstance(m, ByPolicy) and not m.told for budget in budgets
        ]
        left = [(m, b) for m, b in policies if ("kl", name, m.name, body / b) not in journal]
        if not left:
            continue
        whole = bench.read(exact, ids[:-ENDING], positions="original").state
        truth = log_probabilities(bench, exact, whole, ids[-ENDING:], "original")
        for method, budget in left:
            found, _ = fidelity(bench, method.make(budget, ""), ids, ENDING, truth)
            journal.add(
                Result(
                    "kl",
                    f"{budget} entries",
                    name,
                    method.name,
                    body / budget,
                    budget,
                    found.divergence,
                    tokens=body,
                )
            )
        log.info("kl: %s", name)


def run_stream(
    bench: Bench,
    journal: Journal,
    name: str,
    ids: Sequence[int],
    methods: Sequence[Method],
    entries: int,
    per: int = 4096,
) -> None:
    """Mean negative log-likelihood of a long text, for every `per` tokens."""
    for method in methods:
        if (
            not isinstance(method, ByPolicy)
            or method.told
            or ("stream", f"{name}-0", method.name, 0.0) in journal
        ):
            continue
        parts: dict[int, list[float]] = {}
        for start, value in stream_likelihood(bench, method.make(entries, ""), ids, 1024):
            parts.setdefault(start // per, []).append(value)
        for part, values in sorted(parts.items(), reverse=True):  # part 0 last: it says that all are there
            mean = sum(values) / len(values)
            group = f"{part * per // 1024}k"
            journal.add(
                Result("stream", group, f"{name}-{part}", method.name, 0.0, entries, mean, tokens=per)
            )
        log.info("stream: %s %s", name, method.name)
