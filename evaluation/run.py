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
    bench: Bench,
    journal: Journal,
    task: Task,
    methods: Sequence[Method],
    compressions: Sequence[float],
    entries: int = 0,
) -> None:
    """Every method on every case of a task with answers in words.

    At every compression, or with `entries` entries whatever the document's length, where that is not 0.
    """
    for number, case in enumerate(task.cases):
        ids = tuple(bench.document_ids(case.document))
        evidence = bench.span(case.document, case.evidence) if case.evidence else None
        bench.remembered.clear()
        for method in methods:
            for compression in _compressions(method, len(ids), compressions, entries):
                budget = entries or max(1, round(len(ids) / compression))
                instruction = task.instruction(case)
                work = Work(ids, instruction, task.answer_tokens, budget, case.question, evidence)
                _one(bench, journal, task, case, method, work, compression)
        log.info("%s: %d of %d", task.name, number + 1, len(task.cases))


def _compressions(
    method: Method, tokens: int, compressions: Sequence[float], entries: int
) -> Sequence[float]:
    if not method.budgeted:
        return [1.0]
    return [tokens / entries] if entries else compressions


def _one(
    bench: Bench, journal: Journal, task: Task, case: Case, method: Method, work: Work, compression: float
) -> None:
    key = (task.name, case.name, method.name, compression)
    if key in journal or not method.suits(bench, work):
        return
    answer = method.answer(bench, work)
    result = Result(
        task=task.name,
        group=case.group,
        case=case.name,
        method=method.name,
        compression=compression,
        entries=work.entries if method.budgeted else 0,
        score=task.score(answer.text, case.references),
        text=answer.text,
        depth=case.depth,
        tokens=len(work.ids),
        prefill_seconds=answer.prefill_seconds,
        probe_seconds=answer.probe_seconds,
        fold_seconds=answer.fold_seconds,
        rank=answer.rank,
    )
    journal.add(result)


def book_windows(bench: Bench, folder: Path, count: int) -> Iterable[tuple[str, list[int]]]:
    """`count` windows of each book, as long as the model's window, far apart; one of each book in turn."""
    texts = [(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.iterdir())]
    for number in range(count):
        for name, text in texts:
            start = len(text) * (number + 1) // (count + 2)
            ids = bench.document_ids(text[start : start + 8 * bench.window])[: bench.window]
            if len(ids) == bench.window:
                yield f"{name}-{number}", ids


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
            found, reading = fidelity(bench, method.make(budget, ""), ids, ENDING, truth)
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
                    prefill_seconds=reading.prefill_seconds,
                    probe_seconds=reading.probe_seconds,
                    fold_seconds=reading.fold_seconds,
                    estimate=reading.estimate,
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
