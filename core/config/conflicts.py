"""What a value of the user does to values of the profile that contradict it: the user's wins, the other is solved anew."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

from trainwiz.core.config.sections import TrainingSection
from trainwiz.core.language import tr

RESHAPES_THE_BATCH: tuple[str, ...] = (
    "batch.target_tokens",
    "batch.target_samples",
    "batch.target_real_tokens",
    "batch.micro_batch_size",
    "batch.sequence_length",
    "engine.processes",
    "engine.nodes",
    "engine.gpus",
)
"""A change of one of these makes the profile's accumulation stale, where a target says what it should be."""

OF_THE_MODEL: Mapping[str, Any] = {
    "model.init": None,
    "model.tokenizer": None,
    "model.architecture_overrides": {},
    "peft.targets": [],
}
OF_THE_RECIPE: Mapping[str, Any] = {
    key: TrainingSection.model_fields[key.removeprefix("training.")].default
    for key in ("training.learning_rate", "training.final_learning_rate", "training.warmup", "training.schedule")
}
"""A rate from scratch wipes what a pretrained model knows: these belong to how the profile's own model is trained."""

SOURCE_KEYS: tuple[str, ...] = ("data.sources.0.name", "data.sources")


def yielding_values(profile: Mapping[str, Any], yours: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Profile keys that must change because of the user's values: key path -> (new value, reason).

    `profile` and `yours` map key paths to values. `None` as the new value, or no reason, leaves the key to the plan.
    A key that the user set is never in the answer.
    """
    changes: dict[str, tuple[Any, str]] = {}
    _batch(profile, yours, changes)
    _length_of_the_run(profile, yours, changes)
    _learning_rate(profile, yours, changes)
    _engine(profile, yours, changes)
    _data_and_model(profile, yours, changes)
    return {key: change for key, change in changes.items() if key not in yours}


def _batch(profile: Mapping[str, Any], yours: Mapping[str, Any], changes: dict[str, tuple[Any, str]]) -> None:
    asked = [key for key in RESHAPES_THE_BATCH if key in yours]
    targets = ("batch.target_tokens", "batch.target_samples", "batch.target_real_tokens")
    has_target = any(yours.get(key, profile.get(key)) is not None for key in targets)
    if asked and has_target and profile.get("batch.gradient_accumulation_steps") is not None:
        changes["batch.gradient_accumulation_steps"] = (None, tr("solved anew for your {asked}", asked=asked[0]))
    for target, other in permutations(targets, 2):
        if yours.get(target) is not None and profile.get(other) is not None:
            changes[other] = (None, tr("replaced by your {target}", target=target))


def _length_of_the_run(
    profile: Mapping[str, Any], yours: Mapping[str, Any], changes: dict[str, tuple[Any, str]]
) -> None:
    if yours.get("training.epochs") is not None and profile.get("training.max_steps") is not None:
        changes["training.max_steps"] = (None, tr("your training.epochs says how long the run is"))


def _learning_rate(profile: Mapping[str, Any], yours: Mapping[str, Any], changes: dict[str, tuple[Any, str]]) -> None:
    peak, final = profile.get("training.learning_rate"), profile.get("training.final_learning_rate")
    new = yours.get("training.learning_rate")
    if isinstance(peak, float) and isinstance(final, float) and isinstance(new, float) and peak > 0 and new != peak:
        # Kept as a share of the peak: a decay "to a tenth" stays one.
        changes["training.final_learning_rate"] = (
            float(f"{new * final / peak:.6g}"),
            tr("the same share of your peak"),
        )


def _engine(profile: Mapping[str, Any], yours: Mapping[str, Any], changes: dict[str, tuple[Any, str]]) -> None:
    strategy, offload = yours.get("engine.strategy"), yours.get("engine.offload")
    if strategy in ("single", "ddp") and profile.get("engine.offload", "none") != "none":
        changes["engine.offload"] = (
            "none",
            tr("your engine.strategy {strategy} keeps everything on the GPU", strategy=strategy),
        )
    if offload in ("optimizer", "all") and profile.get("engine.strategy") in ("single", "ddp"):
        changes["engine.strategy"] = (
            None,
            tr("your engine.offload {offload} needs a strategy that can do it", offload=offload),
        )


def _data_and_model(profile: Mapping[str, Any], yours: Mapping[str, Any], changes: dict[str, tuple[Any, str]]) -> None:
    renamed = yours.get("data.sources.0.name")
    if renamed is not None and "data.sources" not in yours:
        # Column names and splits belong to the old source.
        changes["data.sources"] = ([{"name": renamed}], tr("your data source"))
    if any(key in yours for key in SOURCE_KEYS) and profile.get("data.validation_sources"):
        changes["data.validation_sources"] = ([], tr("rows of your data source are held out instead"))
    other_model = yours.get("model.name") not in (None, profile.get("model.name"))
    other_kind = "peft.method" in yours and yours["peft.method"] != profile.get("peft.method", "none")
    if other_model:
        changes |= {
            key: (none, tr("it belongs to the profile's model")) for key, none in OF_THE_MODEL.items() if key in profile
        }
    if other_model or other_kind or yours.get("model.init") not in (None, profile.get("model.init")):
        changes |= {key: (none, "") for key, none in OF_THE_RECIPE.items() if key in profile}
