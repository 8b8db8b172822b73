"""`python -m evaluation`, or `docexpress evaluate`: measures, or goes on measuring, and reports."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from evaluation import agreement, streams
from evaluation.bench import Bench
from evaluation.errors import EvaluationError
from evaluation.journal import Journal
from evaluation.methods import Method
from evaluation.plots import draw
from evaluation.profiles import PROFILES, Profile, far_tasks, methods, tasks
from evaluation.report import EXPLANATION, as_json, as_table, summarized
from evaluation.run import book_windows, run_fidelity, run_stream, run_task
from evaluation.tasks import Task
from evaluation.wordings import WORDINGS
from kernel_worker.engine import Engine
from kernel_worker.errors import KernelWorkerError
from kernel_worker.model import load_model

_NEAR_WORDS = 5000
"""A needle document of more words is beyond the window."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 for a wrong option or missing data."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells of every index
    try:
        _measure(options)
    except (EvaluationError, KernelWorkerError) as error:
        print(f"evaluation: {error}", file=sys.stderr)
        return 2
    return 0


def _measure(options: argparse.Namespace) -> None:
    profile, chosen = _profile(options), methods(options.methods)
    engine = Engine(load_model(options.model, device=options.device))
    about: dict[str, str | int] = {
        "model": engine.loaded.name,
        "fingerprint": engine.loaded.fingerprint,
        "profile": profile.name,
        "half": options.half,
        "wording": options.wording,
        "over_window": options.over_window,
        "segment_tokens": options.segment_tokens,
        "data": "folder" if options.data else "own",
    }
    journal = Journal(options.out / "results.jsonl", about)
    try:
        _all_work(
            options, profile, Bench(engine, options.segment_tokens or engine.loaded.window), journal, chosen
        )
    finally:
        lines = summarized(journal)
        estimates, found = agreement.agreements(journal), streams.streams(journal)
        options.out.joinpath("report.json").write_text(
            json.dumps(as_json(lines, about, estimates, found), indent=1), encoding="utf-8"
        )
        parts = as_table(lines), streams.as_table(found), agreement.as_table(estimates)
        table = "\n".join(filter(None, parts))
        options.out.joinpath("report.md").write_text(f"{EXPLANATION}\n{table}", encoding="utf-8")
        if table and find_spec("matplotlib"):
            draw(lines, journal, options.out)
        print(table)


def _profile(options: argparse.Namespace) -> Profile:
    profile = PROFILES[options.profile]
    if options.cases is not None:
        profile = replace(profile, needle_cases=options.cases, far_cases=options.cases)
    if options.words is not None:
        near, far = ([n for n in options.words if (n <= _NEAR_WORDS) is within] for within in (True, False))
        profile = replace(profile, needle_words=tuple(near), far_words=tuple(far))
    return profile


def _all_work(
    options: argparse.Namespace, profile: Profile, bench: Bench, journal: Journal, chosen: list[Method]
) -> None:
    in_segments = Bench(bench.engine, 1024)
    for task in tasks(profile, options.data, options.half):
        if _wanted(options, task.name):
            task = _adapted(options, bench, task)
            run_task(bench, journal, task, chosen, profile.compressions, options.entries)
    for task in far_tasks(profile, options.data, options.half):
        if _wanted(options, task.name):
            task = _adapted(options, bench, task)
            run_task(in_segments, journal, task, chosen, (), options.entries or profile.far_entries)
    if options.data is None:
        return
    if profile.book_windows and _wanted(options, "kl"):
        windows = book_windows(bench, options.data / "books", profile.book_windows)
        budgets = (options.entries,) if options.entries else (512, 1024, 2048)
        run_fidelity(bench, journal, windows, chosen, budgets)
    if profile.stream_tokens and _wanted(options, "stream"):
        text = (options.data / "books" / "war_and_peace.txt").read_text(encoding="utf-8")
        ids = bench.document_ids(text[: 6 * profile.stream_tokens])[: profile.stream_tokens]
        run_stream(bench, journal, "war_and_peace", ids, chosen, profile.far_entries)


def _wanted(options: argparse.Namespace, name: str) -> bool:
    return not options.tasks or name in options.tasks


def _adapted(options: argparse.Namespace, bench: Bench, task: Task) -> Task:
    """The task in the wording that was asked for, with those of its documents that were asked for."""
    cases = [
        case
        for case in task.cases
        if not options.over_window or not bench.fits(len(bench.document_ids(case.document)))
    ]
    return replace(task, wording=WORDINGS[options.wording], cases=cases)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("docexpress evaluate", description=__doc__)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="short")
    parser.add_argument(
        "--data", type=Path, help="folder with needle/, sets/ and books/; without: own small set"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for results; a run there goes on")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--half", choices=("choose", "report", "all"), default="report")
    parser.add_argument("--tasks", nargs="*", help="names of tasks, kl and stream included; default: all")
    parser.add_argument("--methods", nargs="*", help="names as in the report; default: all")
    parser.add_argument("--entries", type=int, default=0, help="instead of compressions: so many entries")
    parser.add_argument("--over-window", action="store_true", help="only documents beyond the window")
    parser.add_argument("--wording", choices=sorted(WORDINGS), default="product", help="of the instructions")
    parser.add_argument("--cases", type=int, help="needle documents of each length")
    parser.add_argument("--words", type=int, nargs="*", help="lengths of needle documents")
    parser.add_argument(
        "--segment-tokens", type=int, default=0, help="0: documents within the window are read in one piece"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
