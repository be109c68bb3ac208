"""Event files: what tensorboard's own reader reads, bit by bit; growing, cut, damaged and foreign ones."""

import random
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from trainwiz.core.telemetry.event_file import EventFileTail, Scalar

from tests.core.telemetry.event_writers import accumulated, record, scalar_event, write_points

LOSSES = [(step, 3.0 / (step + 1)) for step in range(200)]
KERAS = Path(__file__).parent / "event_files" / "events.out.tfevents.1795316638.box.12837.0.v2"


def read(tail: EventFileTail) -> list[Scalar]:
    scalars = tail.read_new()
    while tail.behind:
        scalars += tail.read_new()
    return scalars


def by_tag(scalars: list[Scalar]) -> dict[str | None, list[tuple[int, float, float]]]:
    found: dict[str | None, list[tuple[int, float, float]]] = {}
    for tag, step, value, time_s in scalars:
        found.setdefault(tag, []).append((step, value, time_s))
    return found


def test_every_real_file_is_read_as_tensorboard_reads_it(shared_data: Path) -> None:
    files = sorted((shared_data / "wild").rglob("*tfevents.*"))
    assert files
    for file in files:
        tail = EventFileTail(file)
        assert by_tag(read(tail)) == accumulated(file), file
        assert (tail.damaged_bytes, tail.refusal) == (0, None), file


def test_scalars_of_tensorflow_2_are_tensors() -> None:
    """A file of tf.keras.callbacks.TensorBoard: scalars as tensors, their plugin named with each."""
    from tensorboard.util.tensor_util import make_ndarray

    accumulator = EventAccumulator(str(KERAS), size_guidance={"tensors": 0}).Reload()
    expected = {
        tag: [(event.step, make_ndarray(event.tensor_proto).item()) for event in accumulator.Tensors(tag)]
        for tag in accumulator.Tags()["tensors"]
        if accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"
    }
    tail = EventFileTail(KERAS)
    found = {tag: [point[:2] for point in points] for tag, points in by_tag(read(tail)).items()}
    assert found == expected
    assert set(found) == {"batch_loss", "epoch_loss", "epoch_learning_rate"}


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
    assert tail.texts == {"args/text_summary": '{"max_steps": 7}'}


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
    assert (tail.damaged_bytes, tail.resets) == (0, 0)
    file_of(tmp_path, data_of(tmp_path / "b", LOSSES[:3], "new"))
    assert {scalar[0] for scalar in read(tail)} == {"new"}
    assert tail.resets == 1


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
    tail = EventFileTail(file_of(tmp_path, few, record(big)[:-4] + b"\0\0\0\0", few))
    assert (len(read(tail)), tail.damaged_bytes) == (10, 0)


def test_reading_ends_at_garbage(tmp_path: Path) -> None:
    first, second = data_of(tmp_path / "a", LOSSES[:50]), data_of(tmp_path / "b", LOSSES[50:])
    for garbage in (b"\0" * 5000, random.Random(7).randbytes(20_000)):
        tail = EventFileTail(file_of(tmp_path, first, garbage, second))
        assert [scalar[1] for scalar in read(tail)] == list(range(50))
        assert tail.damaged_bytes == len(garbage) + len(second)
