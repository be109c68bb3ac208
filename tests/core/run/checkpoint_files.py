"""Checkpoint folders as the Trainer and DeepSpeed lay them out, small."""

import json
import zipfile
from pathlib import Path


def write_safetensors(path: Path, count: int = 4) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1" * (4 * count))


def write_zip(path: Path, size: int = 5000) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * size)


def write_checkpoint(root: Path, number: int, step: int | None = None) -> Path:
    """A complete one for one process."""
    folder = root / f"checkpoint-{number}"
    folder.mkdir(parents=True)
    write_safetensors(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "esm"}))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        write_zip(folder / name)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": number if step is None else step}))
    return folder


def write_adapter(root: Path, number: int) -> Path:
    """A complete one of a LoRA run: the adapter alone, without the weights of its base."""
    folder = write_checkpoint(root, number)
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "config.json").rename(folder / "adapter_config.json")
    return folder


def saved_by(folder: Path, count: int) -> None:
    """Let the checkpoint say that `count` processes saved it, each with its random state."""
    (folder / "progress.json").write_text(json.dumps({"tokens": 1, "world_size": count}))
    if count > 1:
        (folder / "rng_state.pth").unlink()
        for rank in range(count):
            write_zip(folder / f"rng_state_{rank}.pth")


def write_deepspeed(root: Path, number: int, ranks: int = 2) -> Path:
    """A complete one of ZeRO-2."""
    folder = write_checkpoint(root, number)
    (folder / "optimizer.pt").unlink()
    (folder / "latest").write_text(f"global_step{number}")
    states = folder / f"global_step{number}"
    states.mkdir()
    write_zip(states / "mp_rank_00_model_states.pt")
    for rank in range(ranks):
        write_zip(states / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return folder


def cut(path: Path, share: float = 0.5) -> None:
    """What a kill in the middle of a write leaves."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
