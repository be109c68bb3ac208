"""Folders of event files and tables, by real writers: names, counts, restarts, growth, what is no scalar."""

import math
from pathlib import Path

import pytest
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Source, Target, open_files_source

from tests.core.telemetry.event_writers import BEGAN_S, accumulated, write_points

LOSSES = [(step, 3.0 / (step + 1)) for step in range(100)]


def source_of(path: Path, now_s: float = BEGAN_S + 10_000) -> Source:
    return open_files_source(Target("tensorboard", path, path.name), clock=lambda: now_s)


def look(path: Path, now_s: float = BEGAN_S + 10_000) -> Snapshot:
    return source_of(path, now_s).read_all()


def counts(snapshot: Snapshot) -> dict[str, tuple[int, float | None]]:
    return {name: (summary.count, summary.last_step) for name, summary in snapshot.metrics.items()}


def every(count: int, value: float, step: int = 1) -> list[tuple[int, float]]:
    return [(at * step, value) for at in range(count)]


def test_a_restart_that_says_so_drops_what_lies_after_it(tmp_path: Path) -> None:
    write_points(tmp_path, {"loss": LOSSES, "lr": [(90, 1.0)]}, suffix=".a")
    write_points(tmp_path, {"loss": [(step, 7.0) for step in range(40, 45)]}, purge_step=40, suffix=".b")
    snapshot = look(tmp_path)
    kept = {tag: points for tag, points in accumulated(tmp_path).items() if points}
    assert counts(snapshot) == {tag: (len(points), points[-1][0]) for tag, points in kept.items()}
    assert (counts(snapshot), snapshot.step) == ({"loss": (45, 44)}, 44)


def test_of_two_launches_into_one_folder_the_newer_is_drawn(tmp_path: Path) -> None:
    write_points(tmp_path, {"loss": every(100, 9.0)}, suffix=".a")
    write_points(tmp_path, {"loss": every(30, 1.0)}, suffix=".b", later_s=200.0)
    snapshot = source_of(tmp_path).read_all(["loss"])
    curve = snapshot.curve("loss")
    assert (list(curve.steps), set(curve.values)) == (list(range(30)), {1.0})


def test_growth_is_read_and_new_runs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.telemetry.tensorboard.LOOK_FOR_FILES_S", 0.0)
    monkeypatch.setattr("trainwiz.core.telemetry.tensorboard.SHARE_OF_A_CORE_FOR_LOOKS", math.inf)
    first = write_points(tmp_path / "run" / "a", {"loss": LOSSES})
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    source = source_of(tmp_path / "run", BEGAN_S + 60)
    assert source.read_all().metrics["loss"].count < 60
    first.write_bytes(whole)
    write_points(tmp_path / "run" / "b", {"loss": LOSSES[:10]})
    assert counts(source.read_all()) == {"a/loss": (100, 99), "b/loss": (10, 9)}


def test_status_follows_the_times_in_the_file_not_those_of_a_copy(tmp_path: Path) -> None:
    write_points(tmp_path, {"loss": LOSSES})
    last_s = BEGAN_S + 99
    assert look(tmp_path, last_s + 30).status == "running"
    quiet = look(tmp_path, last_s + 3 * 86_400)
    assert (quiet.status, quiet.written_s, quiet.ended_s) == ("quiet", last_s, None)
    assert quiet.ending is not None and "3 days ago" in quiet.ending.text


def test_non_finite_values_are_counted_and_more_names_than_anyone_reads(tmp_path: Path) -> None:
    write_points(tmp_path / "a", {"loss": [(0, 1.0), (1, math.nan), (2, math.inf), (3, -2.5)]})
    snapshot = look(tmp_path / "a")
    assert snapshot.metrics["loss"].to_json() == {"last": -2.5, "count": 4, "min": -2.5, "max": 1.0, "non_finite": 2}
    assert any("at step 1" in advice.text for advice in snapshot.advice)
    write_points(tmp_path / "b", {f"m{index}": [(0, 1.0)] for index in range(1_200)})
    snapshot = look(tmp_path / "b")
    assert len(snapshot.metrics) == 1_000
