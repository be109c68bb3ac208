"""RunSource on folders in the real format: live, ended, broken, growing, rewound, with attempts and phases."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.telemetry.snapshot import Snapshot

from tests.core.telemetry.written_run import GIB, NOW_S, source_of, system_row, write_json, write_lines, write_run


def update(folder: Path, **changes: Any) -> None:
    state = json.loads((folder / "state.json").read_text())
    write_json(folder / "state.json", {**state, **changes})


def codes_of(snapshot: Snapshot) -> dict[str, str]:
    return {advice.code: advice.level for advice in snapshot.advice}


def test_it_grows_with_the_files_and_reads_each_line_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=10, log_every=1)
    metrics, source = folder / "metrics.jsonl", source_of(folder)
    before = source.poll(curves=("loss",))
    points = list(before.curve("loss").sums)
    written = metrics.read_text() + '{"step": 11, "loss": 2.5}\n{"step": 12, "lo'
    metrics.write_text(written)
    assert source.poll(curves=("loss",)).metrics["loss"].count == 11
    metrics.write_text(written + 'ss": 2.25}\n')
    snapshot = source.poll(curves=("loss",))
    assert (snapshot.step, snapshot.metrics["loss"].last, len(snapshot.curve("loss"))) == (12, 2.25, 12)
    # A snapshot does not change when the run goes on; metrics that are written anew start again.
    assert (before.metrics["loss"].count, list(before.curve("loss").sums)) == (10, points)
    metrics.write_text('{"step": 1, "loss": 5.0}\n')
    assert source.poll().metrics["loss"].count == 1


def test_empty_and_broken_files_are_sentences_and_never_exceptions(tmp_path: Path) -> None:
    document = source_of(tmp_path).poll().to_json()
    assert (document["status"], document["step"], document["metrics"]) == ("prepared", None, {})
    assert document["gpus"] == document["processes"] == []
    folder = write_run(tmp_path / "run", steps=3)
    (folder / "metrics.jsonl").write_bytes(b'\xff\xfe\x00garbage\n{"step": 1, "loss": 2}\n[1]\n')
    (folder / "plan.json").write_text("{ half")
    (folder / "system.jsonl").write_text('{"gpus": 3, "host": [], "processes": {"a": 1}}\n{"gpus": [null, {}]}\n')
    snapshot = source_of(folder).poll()
    assert snapshot.metrics["loss"].count == 1
    assert any("metrics.jsonl" in problem and "skipped: 2" in problem for problem in snapshot.problems)
    assert len(snapshot.gpus) == 1
    assert snapshot.planned.memory_bytes is None


def test_an_end_speaks_with_the_supervisors_words_and_of_silence_nothing_is_claimed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", status="running")
    update(folder, heartbeat_s=NOW_S - 600)
    snapshot = source_of(folder).poll()
    assert snapshot.status == "lost"
    assert snapshot.ending is not None and "runs resume" in (snapshot.ending.remedy or "")
    (folder / "state.json").write_text('{"status": "flying"}')
    snapshot = source_of(folder).read_all()
    assert snapshot.status == "lost" and snapshot.ending is not None
    assert snapshot.ending.text.startswith(f"{folder / 'state.json'} is ")
    assert snapshot.ending.text.endswith("How the run ended is unknown.")
    exit_ = {"code": 1, "cause": "cuda_oom", "message": "The GPU ran out of memory.", "remedy": "Lower the batch."}
    last = {**SECOND, "ended_s": NOW_S, "status": "failed", "not_retried": "It cannot be smaller."}
    snapshot = source_of(
        write_run(folder, status="failed", exit_=exit_, attempts=[FIRST, last], phase=phase())
    ).read_all()
    said = {"cause": "cuda_oom", "message": exit_["message"], "remedy": exit_["remedy"]}
    assert (snapshot.to_json()["exit"], snapshot.eta_s) == (said, None)
    assert (snapshot.phase, snapshot.not_retried) == (None, "It cannot be smaller.")


def test_the_plan_of_several_processes_on_a_cpu_is_compared_with_all_of_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "cpu", gpus=0)
    row = system_row(0, 0)
    row["processes"].append({"pid": 201, "role": "trainer", "rss_bytes": GIB // 2, "cpu_percent": 0.0})
    write_lines(folder / "system.jsonl", [row])
    assert source_of(folder).poll().peak_memory_bytes == GIB + GIB // 2


def test_a_shrinking_disk_says_how_long_it_lasts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    rows = [system_row(index, 0, count=310) for index in range(310)]
    for index, row in enumerate(rows):
        row["host"]["disk_free_bytes"] = 100 * GIB - index * GIB // 100
    write_lines(folder / "system.jsonl", rows)
    shown = source_of(folder).poll()
    assert shown.host.disk_lasts_s == pytest.approx((100 - 3.09) * 100, rel=0.01)
    assert shown.to_json()["host"]["disk_lasts_s"] == shown.host.disk_lasts_s


def test_a_folder_that_goes_away_under_its_viewer_is_told_and_found_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    source = source_of(folder)
    assert source.read_all().status == "running"
    folder.rename(tmp_path / "moved")
    snapshot = source.poll()
    assert snapshot.status == "lost"
    assert snapshot.ending is not None and "is missing: it was removed or moved" in snapshot.ending.text
    assert (snapshot.eta_s, snapshot.step, snapshot.actions) == (None, 1600, frozenset())
    (tmp_path / "moved").rename(folder)
    snapshot = source.poll()
    assert (snapshot.status, snapshot.step, snapshot.ending) == ("running", 1600, None)


def test_a_keeper_that_does_not_write_is_told_and_a_run_that_stands_still_names_no_finish(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    update(folder, machine=machine_identity(), supervisor=asdict(this_process()), heartbeat_s=NOW_S - 300)
    snapshot = source_of(folder).read_all()
    assert snapshot.status == "running"
    assert [item.text for item in snapshot.advice if item.code == "keeper_silent"] == [
        "The supervisor has written nothing for 5 min: the status and machine readings shown are from that time."
    ]
    update(folder, heartbeat_s=NOW_S - 30)
    assert "keeper_silent" not in codes_of(source_of(folder).read_all())
    folder = write_run(tmp_path / "still", steps=50, step_s=1.0, max_steps=1_000)
    assert source_of(folder).read_all().eta_s is not None
    update(folder, heartbeat_s=NOW_S + 3_600)
    snapshot = source_of(folder, NOW_S + 3_600).read_all()
    assert (snapshot.status, snapshot.eta_s, "stalled" in codes_of(snapshot)) == ("running", None, True)


def test_a_long_file_is_read_in_parts_and_tells_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.telemetry.run_source.POLL_S", 0.0)
    steps = 9_000
    source = source_of(write_run(tmp_path / "run", steps=steps, log_every=1))
    snapshot, shares = source.poll(), list[float]()
    while snapshot.behind:
        assert snapshot.eta_s is None and "stalled" not in codes_of(snapshot)
        assert snapshot.step == steps, "what it says last is shown first"
        shares.append(snapshot.read_share)
        snapshot = source.poll()
    assert len(shares) > 1 and shares == sorted(shares) and 0 < shares[0] < 1
    assert (snapshot.step, snapshot.metrics["loss"].count, snapshot.read_share) == (steps, steps, 1.0)
    # One look at it ends in time and says of how much it is.
    monkeypatch.setattr("trainwiz.core.telemetry.target.READ_ALL_S", 0.0)
    snapshot = source_of(tmp_path / "run").read_all()
    assert "% of them are read so far" in snapshot.problems[-1]
    assert snapshot.to_json()["behind"] is True and 0 < snapshot.to_json()["read_share"] < 1


SMALLER = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 1302}
FIRST = {"number": 1, "started_s": NOW_S - 900, "ended_s": NOW_S - 600, "status": "failed"}
SECOND = {"number": 2, "started_s": NOW_S - 600, "resume": "checkpoint-5", "because": "cuda_oom", "changes": SMALLER}


def factors(snapshot: Snapshot) -> tuple[int | None, ...]:
    return snapshot.planned.micro_batch, snapshot.planned.accumulation, snapshot.planned.world_size


def phase(**values: Any) -> dict[str, Any]:
    return {"phase": "evaluating", "since_s": NOW_S - 40, "step": 5, "detail": "", **values}


def test_the_batch_is_that_of_the_attempt_that_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "first", attempts=[FIRST])
    write_recoveries(RunFolder(folder), [Recovery(2, "cuda_oom", 5, NOW_S, SMALLER)])
    assert factors(source_of(folder).read_all()) == (6, 651, 1), "nothing comes before its time"
    snapshot = source_of(write_run(tmp_path / "second", attempts=[FIRST, SECOND])).read_all()
    assert (factors(snapshot), snapshot.planned.effective_samples) == ((3, 1302, 1), 3906)
    document = snapshot.to_json()
    assert [attempt["because"] for attempt in document["attempts"]] == [None, "cuda_oom"]
    assert document["attempts"][1]["changes"] == SMALLER
    assert document["planned"]["micro_batch"] == 3
    # A resume by hand keeps what recovery changed.
    by_hand = {"number": 3, "started_s": NOW_S - 60, "resume": "checkpoint-9", "changes": SMALLER}
    snapshot = source_of(write_run(folder, attempts=[FIRST, SECOND, by_hand])).read_all()
    assert factors(snapshot) == (3, 1302, 1)
    assert snapshot.attempt_words == "attempt 3, from step 9: 3 × 1,302 instead of 6 × 651"


def test_a_phase_is_that_of_this_attempt_and_moment(tmp_path: Path) -> None:
    for since_s, shown in ((NOW_S - 40, "evaluating"), (NOW_S - 700, None), (NOW_S + 60, None), ("now", None)):
        folder = write_run(tmp_path / "run", attempts=[FIRST, SECOND], phase=phase(since_s=since_s))
        snapshot = source_of(folder).read_all()
        assert (snapshot.phase.phase if snapshot.phase else None) == shown
        assert (snapshot.to_json()["phase"] or {}).get("phase") == shown
