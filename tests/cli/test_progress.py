"""What a user sees of a job, worked out from its events."""

import pytest

from orchestrator.cli.display import PlainLines, amount, line
from orchestrator.cli.tracker import Tracker, in_order
from orchestrator.events import Event

START = 1_800_000_000.0


def event(seconds: float, kind: str, **data: object) -> Event:
    return Event(f"{int((START + seconds) * 1000)}-0", kind, data)


def stage(seconds: float, name: str, segment: int = 0, segments: int = 4) -> Event:
    return event(seconds, "stage", stage=name, segment=segment, segments=segments)


def tracked(*events: Event) -> Tracker:
    tracker = Tracker(segment_tokens=1000, max_new_tokens=100)
    for each in events:
        tracker.add(each)
    return tracker


def whole_job() -> list[Event]:
    events = [stage(0, "ingest", segments=0)]
    for segment in range(4):
        events += [stage(1 + 3 * segment, "prefill", segment), stage(3 + 3 * segment, "compress", segment)]
    events += [stage(13, "decode"), *[event(14 + i, "token", index=i, text="x") for i in range(5)]]
    return [*events, event(20, "done", result={})]


def test_a_whole_job_fills_every_bar_and_counts_every_second() -> None:
    tracker = tracked(*whole_job())
    assert in_order(tracker.stages) == ["ingest", "prefill", "compress", "decode"]
    assert [progress.fraction for progress in tracker.stages.values()] == [1.0] * 4
    assert {name: tracker.seconds(name) for name in tracker.stages} == {
        "ingest": 1.0,
        "prefill": 8.0,
        "compress": 4.0,
        "decode": 7.0,
    }
    assert tracker.tokens_per_second("prefill") == 500.0
    assert (tracker.current, tracker.ended) == (None, "done")


def test_halfway_through_a_segment() -> None:
    progress = event(6, "progress", stage="prefill", segment=1, segments=4, fraction=0.5)
    tracker = tracked(
        stage(0, "ingest"), stage(1, "prefill"), stage(3, "compress"), stage(4, "prefill", 1), progress
    )
    assert tracker.stages["prefill"].done == 1.5
    assert tracker.stages["compress"].done == 1.0
    assert amount(tracker.stages["prefill"], "prefill") == "1 of 4 segments"


def test_a_retry_takes_nothing_back_and_says_why() -> None:
    tracker = tracked(
        stage(0, "prefill", 2),
        stage(2, "compress", 2),
        event(3, "retry", stage="compress", reason="lease lost"),
    )
    assert tracker.remark == "lease lost"
    tracker.add(stage(4, "prefill", 2))
    assert tracker.remark is None
    assert tracker.stages["prefill"].done == 3


def test_a_job_that_finds_the_state_stored_shows_no_reading() -> None:
    tracker = tracked(stage(0, "ingest"), stage(1, "decode"))
    assert in_order(tracker.stages) == ["ingest", "decode"]
    assert tracker.stages["ingest"].fraction == 1.0


def test_a_job_that_goes_on_after_a_break_counts_its_speed_from_there() -> None:
    tracker = tracked(stage(0, "prefill", 2, 3), stage(2, "compress", 2, 3), stage(3, "decode", 0, 3))
    assert tracker.tokens_per_second("prefill") == 500.0


def test_events_of_unknown_kinds_are_ignored() -> None:
    assert tracked(event(0, "weather", sky="blue")).stages == {}


def test_plain_lines_do_not_repeat_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainLines()
    tracker = Tracker(segment_tokens=1000, max_new_tokens=100)
    for each in whole_job():
        tracker.add(each)
        display.update(tracker)
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 3  # ingest, reading, writing
    assert shown[1].startswith("reading: 0 of 4 segments")


def test_a_status_is_shown_once_and_only_when_it_lasts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    display = PlainLines()
    monkeypatch.setattr("orchestrator.cli.display.PATIENCE_SECONDS", 3600.0)
    display.status("starting")
    display.status("starting")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("orchestrator.cli.display.PATIENCE_SECONDS", -1.0)
    display.status("starting")
    display.status("starting")
    assert capsys.readouterr().err == "starting\n"


def test_a_line_names_stage_amount_and_speed() -> None:
    tracker = tracked(*whole_job())
    assert line(tracker, "prefill") == "reading: 4 of 4 segments, 500 tokens/s"
    assert line(tracker, "decode") == "writing: 5 tokens, 0.7 tokens/s"
