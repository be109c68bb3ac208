"""What can be done about each cause: sentences, with a command of trainwiz where there is one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.diagnosis.cause import Cause, Remedy, Settings
from trainwiz.core.language import tr

HALF = 2
SMALLEST_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Place:
    """The run that remedies are for: its name for commands, and its settings."""

    run: str | None
    settings: Settings
    during: str | None = None

    def resume(self, text: str) -> Remedy:
        """To go on with the run; the text alone for a training from elsewhere."""
        return Remedy(text, f"trainwiz runs resume {self.run}" if self.run else None)

    def again(self, text: str, *words: str) -> Remedy:
        """The same run anew with other choices; a plan with them where its own choices are not known."""
        if not self.settings.again:
            return Remedy(text, shlex.join(["trainwiz", "plan", *words]))
        return Remedy(text, shlex.join(["trainwiz", *self.settings.again, *words, "--yes"]))


def remedies_for(cause: Cause, place: Place) -> tuple[Remedy, ...]:
    """The best first."""
    make = _REMEDIES.get(cause)
    return tuple(make(place)) if make is not None else (_read_the_log(place),)


def smaller_batch(settings: Settings) -> tuple[int, int] | None:
    """(micro-batch, accumulation) with at most half the micro-batch and exactly the same product; None where there is none."""
    micro, accumulation = settings.micro_batch, settings.accumulation
    if micro is None or accumulation is None or micro < HALF:
        return None
    whole = micro * accumulation
    smaller = next(size for size in range(micro // HALF, 0, -1) if whole % size == 0)
    return smaller, whole // smaller


def _cuda_oom(place: Place) -> list[Remedy]:
    if place.during == "evaluation":
        text = tr("Evaluate with a smaller batch.")
        return [place.again(text, "--set", "batch.eval_micro_batch_size=1")]
    settings, found = place.settings, []
    smaller = smaller_batch(settings)
    if smaller is not None:
        micro, accumulation = smaller
        text = tr(
            "Compute {micro} sequences at once and accumulate {accumulation}: the same batch in less memory.",
            micro=micro,
            accumulation=accumulation,
        )
        found.append(place.again(text, "--micro-batch", str(micro), "--accumulation", str(accumulation)))
    elif settings.micro_batch is None:
        text = tr("Halve the micro-batch (per_device_train_batch_size) and double the accumulation.")
        found.append(place.again(text, "--micro-batch", "1"))
    if not settings.checkpointing:
        found.append(place.again(tr("Recompute activations: less memory, about a third more time."), "--checkpointing"))
    length = settings.sequence_length
    if length is not None and length // HALF >= SMALLEST_LENGTH:
        text = tr("Train on shorter inputs: {length} tokens.", length=length // HALF)
        found.append(place.again(text, "--length", str(length // HALF)))
    found.append(Remedy(tr("See what else holds memory of the card."), "trainwiz hardware"))
    return found


def _host_oom(place: Place) -> list[Remedy]:
    found = [] if place.settings.workers == 0 else [_fewer_workers(place)]
    found.append(place.again(tr("Stream the data instead of holding it in RAM."), "--set", "data.streaming=true"))
    return [*found, place.resume(tr("Close what else needs RAM, then go on."))]


def _fewer_workers(place: Place) -> Remedy:
    workers = (place.settings.workers or 0) // HALF
    text = tr("Use {n} loader processes.", n=workers) if workers else tr("Load the data without loader processes.")
    return place.again(text, "--set", f"data.workers={workers}")


def _disk_full(place: Place) -> list[Remedy]:
    return [
        place.resume(tr("Free space on the disk of the run folder, then go on.")),
        place.again(tr("Keep only the newest checkpoint."), "--set", "checkpoint.keep=1"),
    ]


def _shared_memory(place: Place) -> list[Remedy]:
    return [
        place.again(tr("Load the data without loader processes."), "--set", "data.workers=0"),
        place.resume(tr("Give the container more shared memory (docker run --shm-size 8g), then go on.")),
    ]


def _connection(place: Place) -> list[Remedy]:
    return [
        place.resume(tr("Go on from the newest checkpoint; this often passes.")),
        place.again(tr("Train on one GPU."), "--gpus", "0"),
        Remedy(tr("If it comes back, set NCCL_P2P_DISABLE=1 before the command, and NCCL_DEBUG=INFO to see more.")),
    ]


def _timeout(place: Place) -> list[Remedy]:
    text = tr("Look at the log of the rank that came last to the collective, then go on.")
    return [place.resume(text), Remedy(tr("See what the machine is and what is missing."), "trainwiz doctor")]


def _gpu_lost(place: Place) -> list[Remedy]:
    return [
        place.resume(tr("Restart the machine, check power and cooling, then go on.")),
        Remedy(tr("See whether all cards answer."), "trainwiz hardware"),
    ]


def _node(place: Place) -> list[Remedy]:
    return [
        place.resume(tr("Start all machines of the run again; it goes on from its newest checkpoint.")),
        Remedy(tr("See the command for each machine."), f"trainwiz export {place.run} --script" if place.run else None),
    ]


def _bf16(place: Place) -> list[Remedy]:
    return [
        place.again(tr("Compute in fp16 (on a GPU)."), "--precision", "fp16"),
        place.again(tr("Compute in fp32 (anywhere)."), "--precision", "fp32"),
        Remedy(tr("See what the cards can do."), "trainwiz hardware"),
    ]


def _attention(place: Place) -> list[Remedy]:
    return [
        place.again(tr("Use the attention of torch instead."), "--attention", "sdpa"),
        Remedy(tr("See what is missing here."), "trainwiz doctor"),
    ]


def _worker(place: Place) -> list[Remedy]:
    return [
        _fewer_workers(place),
        place.resume(tr("Lack of RAM is the usual reason. Close what else needs it, then go on.")),
    ]


def _deepspeed(place: Place) -> list[Remedy]:
    return [
        Remedy(tr('Set the named keys of the DeepSpeed file to "auto".')),
        place.again(tr("Let trainwiz write the DeepSpeed settings."), "--set", "engine.deepspeed_file=null"),
    ]


def _port(place: Place) -> list[Remedy]:
    return [
        place.resume(tr("Another job uses the port. Wait for its end, or simply go on.")),
        Remedy(tr("See what trains here."), "trainwiz monitor --once"),
    ]


def _nan(place: Place) -> list[Remedy]:
    found, rate, precision = [], place.settings.learning_rate, place.settings.precision
    if rate is not None and rate > 0:
        lower = f"{rate / 5:.1g}"
        text = tr("Start again with a lower learning rate: {rate} instead of {now}.", rate=lower, now=f"{rate:g}")
        found.append(place.again(text, "--learning-rate", lower))
    else:
        found.append(Remedy(tr("Start again with a lower learning rate, from a checkpoint before it.")))
    if precision not in ("fp32", "tf32"):
        found.append(place.again(tr("Compute in fp32."), "--precision", "fp32"))
    text = tr("Look at the data of that step: empty rows and labels without a token give such a loss.")
    return [*found, place.resume(text)]


def _missing_file(place: Place) -> list[Remedy]:
    return [
        place.resume(tr("Put back the file that the line names, then go on.")),
        Remedy(tr("See what is missing here."), "trainwiz doctor"),
    ]


def _config(place: Place) -> list[Remedy]:
    return [
        place.again(tr("Change the setting that the line names with --set, and look first."), "--dry-run")
        if place.settings.again
        else Remedy(tr("Change the setting that the line names, then start again.")),
    ]


def _user_stop(place: Place) -> list[Remedy]:
    return [place.resume(tr("To go on:") if place.run else tr("Start it again from its newest checkpoint."))]


def _python_error(place: Place) -> list[Remedy]:
    return [place.resume(tr("Put right what the traceback names, then go on."))]


def _read_the_log(place: Place) -> Remedy:
    return place.resume(tr("Read the end of the log. To go on:") if place.run else tr("Read the end of the log."))


def settings_from(values: Mapping[str, Any], batch: Mapping[str, Any], again: tuple[str, ...]) -> Settings:
    """From key paths of a RunConfig; `batch` is that of plan.json. A value of the wrong type counts as absent."""
    return Settings(
        micro_batch=_whole(values.get("batch.micro_batch_size", batch.get("micro_batch"))),
        accumulation=_whole(values.get("batch.gradient_accumulation_steps", batch.get("accumulation"))),
        world_size=_whole(batch.get("world_size")),
        workers=_whole(values.get("data.workers")),
        sequence_length=_whole(values.get("batch.sequence_length", batch.get("sequence_length"))),
        learning_rate=_number(values.get("training.learning_rate")),
        precision=_text(values.get("engine.precision")),
        checkpointing=bool(values.get("engine.checkpointing")),
        again=again,
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_REMEDIES: Mapping[Cause, Callable[[Place], list[Remedy]]] = {
    "cuda_oom": _cuda_oom,
    "host_oom": _host_oom,
    "disk_full": _disk_full,
    "nccl_timeout": _timeout,
    "nccl_error": _connection,
    "bf16_unsupported": _bf16,
    "flash_attention_missing": _attention,
    "dataloader_worker_killed": _worker,
    "shared_memory": _shared_memory,
    "deepspeed_mismatch": _deepspeed,
    "port_in_use": _port,
    "nan_loss": _nan,
    "missing_file": _missing_file,
    "config_mismatch": _config,
    "gpu_lost": _gpu_lost,
    "node_lost": _node,
    "user_stop": _user_stop,
    "python_error": _python_error,
}
