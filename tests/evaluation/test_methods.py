"""All methods do the same work on a tiny model, and the whole run can be taken up again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from evaluation.__main__ import main
from evaluation.bench import Bench
from evaluation.cases import Case
from evaluation.journal import Journal
from evaluation.language import fidelity, log_probabilities, stream_likelihood
from evaluation.methods import ByPolicy, MapReduce, OwnSegment, Truncated, Uncompressed, Work, exact_policy
from evaluation.product_rereading import ProductReread
from evaluation.profiles import AWARE, BLIND, methods
from evaluation.ranks import rank
from evaluation.rereading import Ranking, Reread, best, both, by_words
from evaluation.run import run_fidelity, run_task
from evaluation.tasks import question_task
from kernel_worker.engine import Engine
from kernels.selection import POLICIES, make_policy
from tests.kernel_worker.tiny import save_tiny, tiny_loaded

WINDOW = 1024
TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 30


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(Engine(tiny_loaded(max_position_embeddings=WINDOW)), WINDOW)


def work(bench: Bench, characters: int, entries: int = 120) -> Work:
    return Work(tuple(bench.document_ids(TEXT[:characters])), "Who jumps?", 6, entries)


def test_every_policy_is_evaluated() -> None:
    assert {*AWARE, *BLIND, "exact"} == set(POLICIES)


def test_with_room_for_everything_a_policy_answers_like_the_uncompressed_model(bench: Bench) -> None:
    task = work(bench, 900, entries=700)
    whole = Uncompressed().answer(bench, task).text
    assert whole
    for name in ("snapkv", "streaming", "importance"):
        assert ByPolicy(policy=name).answer(bench, task).text == whole


def test_what_is_beyond_the_window_is_read_in_segments(bench: Bench) -> None:
    ids = work(bench, 2100).ids * 3
    assert len(ids) > bench.segment_tokens == WINDOW
    reading = bench.read(make_policy("streaming", entries=120, seed=0), ids)
    assert (reading.positions, reading.state.seen) == ("dense", len(ids))


def test_methods_suit_the_length_of_the_document(bench: Bench) -> None:
    short, long = work(bench, 600), work(bench, 2100)
    assert not bench.fits(len(long.ids))
    assert Uncompressed().suits(bench, short)
    assert not Uncompressed().suits(bench, long)
    assert Truncated().suits(bench, long)
    assert not Truncated().suits(bench, short)
    assert MapReduce(chunk_tokens=300).answer(bench, long).text
    assert not ByPolicy(policy="express").suits(bench, work(bench, 600, entries=10))


def test_the_question_is_told_to_those_that_can_use_it(bench: Bench) -> None:
    probe = ByPolicy(policy="snapkv").make(120, "Who jumps?").probe
    assert probe is not None
    assert (probe.kind, probe.text) == ("question", "Who jumps?")
    blind = ByPolicy(policy="snapkv", aware=False)
    assert blind.name == "snapkv (question unknown)"
    probe = blind.make(120, "Who jumps?").probe
    assert probe is not None
    assert probe.kind == "tail"


def test_documents_beyond_the_window_are_read_again_where_the_question_leads(bench: Bench) -> None:
    in_segments = Bench(bench.engine, 200)
    filler, fact = "The dog does not mind. " * 200, "Marmalade is the password of the reading club. "
    ids = in_segments.document_ids(filler[:1700] + fact + filler[:2300])
    evidence = in_segments.span(filler[:1700] + fact + filler[:2300], fact)
    assert in_segments.text(ids[slice(*evidence)]).strip() == fact.strip()
    asked = "What is the password of the reading club?"
    question = Work(tuple(ids), "What is the password?", 6, 100, asked, evidence)
    for ranking in get_args(Ranking):
        method = Reread(ranking=ranking, pieces=2, unit=200, state_entries=300)
        assert method.suits(in_segments, question)
        answer = method.answer(in_segments, question)
        assert answer.text
        assert answer.rank == 1 if ranking == "words" else answer.rank >= 1
    as_product = ProductReread(passages=2)
    assert as_product.answer(in_segments, question).rank == 1
    nowhere = as_product.answer(in_segments, replace(question, question="Zzyzx?"))
    assert (bool(nowhere.text), nowhere.rank) == (True, 0)
    case = Case("c", filler[:1700] + fact + filler[:2300], asked, ("password", "reading club"), evidence=fact)
    without = replace(case, evidence="")
    assert (rank(in_segments, case), rank(in_segments, without)) == (1, 1)
    found_elsewhere = rank(in_segments, replace(without, references=("jam",)))
    assert found_elsewhere == 4, "one passage was found, three were wanted"
    assert rank(in_segments, replace(without, question="Zzyzx?")) == 0
    assert rank(in_segments, replace(case, question="Zzyzx?")) == 0
    assert len(in_segments.remembered) == 1  # sketches are made once, whoever ranks by them
    assert OwnSegment().answer(in_segments, question).text
    assert not OwnSegment().suits(in_segments, work(in_segments, 2100))
    body = ids[len(bench.engine.loaded.prompt.prefix_ids) :]
    texts = [in_segments.text(body[start : start + 200]) for start in range(0, len(body), 200)]
    assert "".join(texts) == filler[:1700] + fact + filler[:2300]
    scores = by_words(texts, question.question)
    assert "password" in texts[best(scores, 1)[0]]


def test_two_rankings_together_prefer_what_both_like() -> None:
    assert best(both([3, 2, 1, 0], [0, 2, 1, 3]), 2) == [1, 0]
    assert both([1.0, 1.0], [2.0, 2.0])[0] == both([1.0, 1.0], [2.0, 2.0])[1]


def test_a_run_goes_on_where_it_was(bench: Bench, tmp_path: Path) -> None:
    task = question_task("needle", [Case("one", TEXT[:700], "Who jumps?", ("fox",), "g", 10.0)])
    chosen = methods(["uncompressed", "snapkv"])
    first = Journal(tmp_path / "r.jsonl", {})
    run_task(bench, first, task, chosen[:1], [4.0])
    run_task(bench, first, task, chosen, [4.0, 5.0])
    assert [(found.method, found.compression) for found in first] == [
        ("uncompressed", 1.0),
        ("snapkv", 4.0),
        ("snapkv", 5.0),
    ]
    before = (tmp_path / "r.jsonl").read_bytes()
    run_task(bench, Journal(tmp_path / "r.jsonl", {}), task, chosen, [4.0, 5.0])
    assert (tmp_path / "r.jsonl").read_bytes() == before


def test_nothing_diverges_where_nothing_is_compressed(bench: Bench) -> None:
    ids = bench.document_ids(TEXT[:800])
    exact = exact_policy(bench)
    state = bench.read(exact, ids[:-40], positions="original").state
    truth = log_probabilities(bench, exact, state, ids[-40:], "original")
    same, untouched = fidelity(bench, make_policy("streaming", entries=900, seed=0), ids, 40, truth)
    assert abs(same.divergence) < 1e-5
    less, reading = fidelity(bench, make_policy("streaming", entries=60, seed=0), ids, 40, truth)
    assert less.divergence > 0.001
    assert (untouched.estimate, (reading.estimate or 0) > 0.001) == (0.0, True)


def test_divergences_are_written_down_with_the_estimate_of_the_product(bench: Bench, tmp_path: Path) -> None:
    windows = [("w", bench.document_ids(TEXT[:1500] * 2)[:900])]
    journal = Journal(tmp_path / "r.jsonl", {})
    run_fidelity(bench, journal, windows, methods(["streaming", "snapkv (question unknown)"]), [60, 120])
    assert [(found.method, found.entries) for found in journal] == [
        ("streaming", 60),
        ("streaming", 120),
        ("snapkv (question unknown)", 60),
        ("snapkv (question unknown)", 120),
    ]
    for found in journal:
        policy = next(m for m in methods() if m.name == found.method)
        assert isinstance(policy, ByPolicy)
        again = bench.read(policy.make(found.entries, ""), windows[0][1][:-512], positions="original")
        assert found.estimate == again.estimate
        assert found.estimate


def test_stream_likelihood_is_the_model_s_own_at_first(bench: Bench) -> None:
    ids = bench.document_ids(TEXT[:1500])
    policy = make_policy("streaming", entries=150, seed=0)
    found = list(stream_likelihood(bench, policy, ids, 100))
    assert [start for start, _ in found] == list(range(0, len(ids), 100))
    with torch.inference_mode():
        loss = bench.engine.logits(policy, bench.engine.empty_state(), ids[:100], positions="dense")
    expected = torch.nn.functional.cross_entropy(loss[:-1], torch.tensor(ids[1:100]))
    assert found[0][1] == pytest.approx(float(expected), abs=1e-5)


def test_the_command_measures_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_tiny(tmp_path / "model", max_position_embeddings=8192)
    out = tmp_path / "out"
    options = ["--model", str(model), "--out", str(out), "--cases", "2", "--half", "choose"]
    assert main([*options, "--methods", "uncompressed", "passages", "streaming"]) == 0
    assert "| 4× | passages | 1 |" in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert {line["method"] for line in report["lines"]} == {"uncompressed", "passages", "streaming"}
    assert (out / "report.md").read_text().startswith("compression:")
    assert main([*options, "--data", str(tmp_path / "nowhere")]) == 2
    assert "holds results of" in capsys.readouterr().err
    assert main([*options, "--methods", "uncompressed", "kvzip"]) == 2
    assert "There is no method 'kvzip'; near it: 'kvzip (question unknown)'" in capsys.readouterr().err
    elsewhere = ["--model", str(model), "--out", str(tmp_path / "new"), "--data", str(tmp_path / "nowhere")]
    assert main(elsewhere) == 2
    assert "There is no" in capsys.readouterr().err
