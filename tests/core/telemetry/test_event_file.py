"""Event files: what tensorboard's own reader reads, bit by bit; growing, cut, damaged and foreign ones."""

import math
import random
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from trainwiz.core.lines import Seldom
from trainwiz.core.telemetry.event_file import EventFileTail, Scalar
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Source, Target, open_files_source

from tests.core.telemetry.event_writers import BEGAN_S, header, scalar_event, write_points

LOSSES = [(step, 3.0 / (step + 1)) for step in range(200)]
KERAS = Path(__file__).parent / "event_files" / "events.out.tfevents.1795316638.box.12837.0.v2"


def read(tail: EventFileTail) -> list[Scalar]:
    scalars = tail.read_new()
    while tail.behind:
        scalars += tail.read_new()
    return scalars


def test_scalars_of_tensorflow_2_are_tensors() -> None:
    """A file of tf.keras.callbacks.TensorBoard: scalars as tensors, their plugin named with each."""
    from tensorboard.util.tensor_util import make_ndarray

    accumulator = EventAccumulator(str(KERAS), size_guidance={"tensors": 0}).Reload()
    names = ("batch_loss", "epoch_loss", "epoch_learning_rate")
    found = read(EventFileTail(KERAS))
    assert {tag for tag, *_ in found} == set(names)
    for name in names:
        expected = [(event.step, make_ndarray(event.tensor_proto).item()) for event in accumulator.Tensors(name)]
        assert [(step, value) for tag, step, value, _ in found if tag == name] == expected


def test_pictures_and_texts_are_passed_over(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    writer.add_image("picture", torch.zeros(3, 8, 8), 1)
    writer.add_histogram("weights", torch.arange(9.0), 1)
    writer.add_text("args", '{"max_steps": 7}', 1)
    writer.add_scalar("new", 0.25, 2, new_style=True)
    writer.add_scalar("double", 0.1, 2, new_style=True, double_precision=True)
    writer.add_scalar("old", 0.5, 3)
    writer.close()
    (file,) = tmp_path.iterdir()
    tail = EventFileTail(file)
    assert [scalar[:3] for scalar in read(tail)] == [("new", 2, 0.25), ("double", 2, 0.1), ("old", 3, 0.5)]
    assert tail.arguments == '{"max_steps": 7}'


def file_of(folder: Path, *parts: bytes) -> Path:
    file = folder / "events.out.tfevents.1.h.1.0"
    file.write_bytes(b"".join(parts))
    return file


def data_of(folder: Path, points: list[tuple[int, float]], tag: str = "loss") -> bytes:
    return write_points(folder, {tag: points}).read_bytes()


def test_a_record_that_is_not_whole_waits_and_a_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    whole = data_of(tmp_path / "whole", LOSSES)
    file = file_of(tmp_path)
    tail, scalars = EventFileTail(file), list[Scalar]()
    # Every length of a cut: 7 is prime to the length of any record.
    with file.open("ab") as growing:
        for start in range(0, len(whole), 7):
            growing.write(whole[start : start + 7])
            growing.flush()
            scalars += tail.read_new()
    assert [scalar[1:3] for scalar in scalars] == [(step, pytest.approx(value)) for step, value in LOSSES]
    assert tail.damaged_bytes == 0
    file_of(tmp_path, data_of(tmp_path / "b", LOSSES[:3], "new"))
    assert {scalar[0] for scalar in read(tail)} == {"new"}


def test_a_damaged_record_is_left_out_alone_and_a_huge_one_passed_over(tmp_path: Path) -> None:
    data = bytearray(data_of(tmp_path / "a", LOSSES))
    data[data.index(scalar_event("loss", 100, LOSSES[100][1]).SerializeToString()) + 5] ^= 0xFF
    tail = EventFileTail(file_of(tmp_path, data))
    assert [scalar[1] for scalar in read(tail)] == [step for step, _ in LOSSES if step != 100]
    assert 0 < tail.damaged_bytes < 100
    assert tail.refusal is None
    big = Event(wall_time=1.0, step=1, graph_def=b"g" * 3_000_000).SerializeToString()
    few = data_of(tmp_path / "few", LOSSES[:5])
    # Its checksum is not looked at.
    tail = EventFileTail(file_of(tmp_path, few, header(big) + big + b"\0\0\0\0", few))
    assert (len(read(tail)), tail.damaged_bytes) == (10, 0)


def test_reading_ends_at_garbage(tmp_path: Path) -> None:
    first, second = data_of(tmp_path / "a", LOSSES[:50]), data_of(tmp_path / "b", LOSSES[50:])
    for garbage in (b"\0" * 5000, random.Random(7).randbytes(20_000)):
        tail = EventFileTail(file_of(tmp_path, first, garbage, second))
        assert [scalar[1] for scalar in read(tail)] == list(range(50))
        assert tail.damaged_bytes == len(garbage) + len(second)


# Folders of event files and tables, by real writers: names, counts, restarts, growth, what is no scalar.


POINTS = [(step, 3.0 / (step + 1)) for step in range(100)]


def source_of(path: Path, now_s: float = BEGAN_S + 10_000) -> Source:
    return open_files_source(Target("tensorboard", path, path.name), clock=lambda: now_s)


def look(path: Path, now_s: float = BEGAN_S + 10_000) -> Snapshot:
    return source_of(path, now_s).read_all(("loss",))


def counts(snapshot: Snapshot) -> dict[str, tuple[int, float | None]]:
    return {name: (summary.count, summary.last_step) for name, summary in snapshot.metrics.items()}


def test_of_two_launches_into_one_folder_the_newer_is_drawn(tmp_path: Path) -> None:
    write_points(tmp_path, {"loss": [(step, 9.0) for step in range(100)]}, suffix=".a")
    write_points(tmp_path, {"loss": [(step, 1.0) for step in range(30)]}, suffix=".b", later_s=200.0)
    curve = look(tmp_path).curve("loss")
    assert (list(curve.steps), set(curve.highs)) == (list(range(30)), {1.0})


def test_growth_is_read_and_new_runs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seldom, "do", lambda seldom, what: what())
    first = write_points(tmp_path / "run" / "a", {"loss": POINTS})
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    source = source_of(tmp_path / "run", BEGAN_S + 60)
    assert source.read_all().metrics["loss"].count < 60
    first.write_bytes(whole)
    write_points(tmp_path / "run" / "b", {"loss": POINTS[:10]})
    assert counts(source.read_all()) == {"a/loss": (100, 99), "b/loss": (10, 9)}


def test_status_follows_the_times_in_the_file_not_those_of_a_copy(tmp_path: Path) -> None:
    write_points(tmp_path, {"loss": POINTS})
    last_s = BEGAN_S + 99
    assert look(tmp_path, last_s + 30).status == "running"
    quiet = look(tmp_path, last_s + 3 * 86_400)
    assert (quiet.status, quiet.written_s, quiet.ended_s) == ("quiet", last_s, None)
    assert quiet.ending is not None and "3 days ago" in quiet.ending.text


def test_non_finite_values_are_counted_and_of_a_thousand_names_no_more_are_read(tmp_path: Path) -> None:
    points = {"loss": [(0, 1.0), (1, math.nan), (2, math.inf), (3, -2.5)]}
    write_points(tmp_path, points | {f"m{index}": [(0, 1.0)] for index in range(1_200)})
    snapshot = look(tmp_path)
    assert snapshot.metrics["loss"].to_json() == {"last": -2.5, "count": 4, "min": -2.5, "max": 1.0, "non_finite": 2}
    assert any("at step 1" in advice.text for advice in snapshot.advice)
    assert len(snapshot.metrics) == 1_000
