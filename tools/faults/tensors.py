"""A finished run compared with the undisturbed one: every tensor of the model and the optimizer, every loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tools.faults.observation import metric_rows
from tools.faults.scenario import STEPS

LOSS_TOLERANCE = 1e-3
TENSOR_TOLERANCE = 1e-2
"""Where the micro-batch became smaller on the way: sums in another order. Of a tensor's norm."""


def compare(undisturbed: Path, folder: Path, *, exact: bool = True) -> tuple[list[str], int]:
    """What differs, as sentences, and how many tensors were compared. `exact`: bit by bit."""
    pairs = list(_pairs(undisturbed, folder))
    differences = [said for name, ours, theirs in pairs if (said := _difference(name, ours, theirs, exact))]
    return differences + _losses(undisturbed, folder, exact), len(pairs)


def _pairs(undisturbed: Path, folder: Path) -> Iterator[tuple[str, Any, Any]]:
    last = f"checkpoint-{STEPS}"
    for name in ("final_model/model.safetensors", f"{last}/model.safetensors"):
        if (undisturbed / name).is_file():
            ours, theirs = _load(undisturbed / name), _load(folder / name)
            for key in sorted(ours.keys() | theirs.keys()):
                yield f"{name}: {key}", ours.get(key), theirs.get(key)
    name = f"{last}/optimizer.pt"
    if (undisturbed / name).is_file():
        ours, theirs = _optimizer(undisturbed / name), _optimizer(folder / name)
        for key in sorted(ours.keys() | theirs.keys()):
            yield f"{name}: {key}", ours.get(key), theirs.get(key)


def _load(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path) if path.is_file() else {}


def _optimizer(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        return {}
    state = torch.load(path, map_location="cpu", weights_only=True)["state"]
    return {
        f"{number}.{name}": value
        for number, values in state.items()
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }


def _difference(name: str, ours: Any, theirs: Any, exact: bool) -> str | None:
    if ours is None or theirs is None:
        return f"{name} is only in one of the two"
    if ours.shape != theirs.shape:
        return f"{name} has another shape"
    if torch.equal(ours, theirs):
        return None
    distance = torch.linalg.vector_norm((ours - theirs).float()).item()
    norm = torch.linalg.vector_norm(ours.float()).item()
    if not exact and distance <= TENSOR_TOLERANCE * norm + 1e-5:
        return None
    return f"{name} differs by {distance:.3g} of {norm:.3g}"


def _losses(undisturbed: Path, folder: Path, exact: bool) -> list[str]:
    """The last word of each step counts: what came after the newest checkpoint is trained again."""
    ours, theirs = (_by_step(path) for path in (undisturbed, folder))
    said = []
    for step, loss in sorted(ours.items()):
        # A row that the fault destroyed is not held against the run; a row with another loss is.
        other = theirs.get(step)
        if other is not None and abs(other - loss) > (0.0 if exact else LOSS_TOLERANCE):
            said.append(f"loss of step {step}: {other!r} instead of {loss!r}")
    return said


def _by_step(folder: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in metric_rows(folder) if isinstance(row.get("loss"), float)}
