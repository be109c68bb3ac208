"""Event files as real writers make them, and TensorBoard's own reading of them."""

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.event_file_writer import EventFileWriter

Points = Mapping[str, Iterable[tuple[int, float]]]
BEGAN_S = 1_700_000_000.0


def write_points(folder: Path, points: Points, *, suffix="", later_s: float = 0.0, after_s: int = 0) -> Path:
    """One event file with the points of each tag, a second apart, written by tensorboard's own writer.

    Its name says that it was begun `after_s` from now.
    """
    before = set(folder.glob("*")) if folder.is_dir() else set()
    writer = EventFileWriter(str(folder), filename_suffix=suffix)
    for tag, values in points.items():
        for step, value in values:
            writer.add_event(scalar_event(tag, step, value, later_s))
    writer.close()
    (made,) = set(folder.glob("*")) - before
    # The writer counts its files without zeros: of two in one second TensorBoard would read 10 before 9.
    stem, _, number = made.name.removesuffix(suffix).rpartition(".")
    words = stem.split(".")
    words[3] = str(int(words[3]) + after_s)
    return made.rename(made.with_name(f"{'.'.join(words)}.{int(number):06d}{suffix}"))


def add_arguments(file: Path, arguments: Mapping[str, object]) -> None:
    """What the Trainer's TensorBoard callback writes at the start: its arguments as a text."""
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype="DT_STRING", string_val=[json.dumps(arguments).encode()])
    value = Summary.Value(tag="args/text_summary", metadata=metadata, tensor=tensor)
    with file.open("ab") as stream:
        stream.write(record(Event(wall_time=BEGAN_S, summary=Summary(value=[value])).SerializeToString()))


def scalar_event(tag: str, step: int, value: float, later_s: float = 0.0) -> Event:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return Event(wall_time=BEGAN_S + step + later_s, step=step, summary=summary)


def record(content: bytes) -> bytes:
    """What any bytes are as a record of an event file, checksums included."""
    return header(content) + content + struct.pack("<I", masked_crc32c(content))


def header(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc32c(length))


def accumulated(path: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Tag -> (step, value, time) of every scalar, as TensorBoard reads a file or folder, nothing sampled."""
    accumulator = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value, event.wall_time) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
