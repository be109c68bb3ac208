"""Profile and the user's values -> RunConfig; each key keeps who chose it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError
from trainwiz.core.config.keys import is_settable, setting_at
from trainwiz.core.config.run import RunConfig, set_path, value_at
from trainwiz.core.config.settings import SETTINGS, SOURCE_LISTS
from trainwiz.core.config.yaml_text import load_yaml, problems_of, refused, unknown_key
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.language import tr

if TYPE_CHECKING:
    from trainwiz.core.profile.profile import Profile


# What a value of the user does to values of the profile that contradict it: the user's wins, the other is solved anew.

TARGETS = ("batch.target_tokens", "batch.target_samples", "batch.target_real_tokens")
RESHAPES_THE_BATCH = (
    *TARGETS, "batch.micro_batch_size", "batch.sequence_length", "engine.processes", "engine.nodes", "engine.gpus",
)  # fmt: skip
"""A change of one of these makes the profile's accumulation stale, where a target says what it should be."""

FINAL_RATE = "training.final_learning_rate"
OF_THE_MODEL = ("model.init", "model.tokenizer", "model.architecture_overrides", "peft.targets")
OF_THE_RECIPE = ("training.learning_rate", FINAL_RATE, "training.warmup", "training.schedule")
"""A rate from scratch wipes what a pretrained model knows: these belong to how the profile's own model is trained."""


def yielding_values(profile: Mapping[str, Any], yours: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Profile keys that must change because of the user's values: key path -> (new value, reason).

    `profile` and `yours` map key paths to values. Without a reason, the key is left to the plan.
    A key that the user set is never in the answer.
    """
    changes = {**_sizes(profile, yours), **_subject(profile, yours)}
    return {key: change for key, change in changes.items() if key in profile and key not in yours}


OPEN = (None, "")
"""The plan finds the value, and says why."""


def _sizes(profile: Mapping[str, Any], yours: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """The batch, the length of the run, its rate, its engine."""
    changes: dict[str, tuple[Any, str]] = {}
    has_target = any(yours.get(key, profile.get(key)) is not None for key in TARGETS)
    if has_target and yours.keys() & set(RESHAPES_THE_BATCH):
        changes["batch.gradient_accumulation_steps"] = OPEN
    if any(yours.get(key) is not None for key in TARGETS):
        changes |= dict.fromkeys(TARGETS, OPEN)
    if yours.get("training.epochs") is not None:
        changes["training.max_steps"] = OPEN
    peak, new = profile.get("training.learning_rate"), yours.get("training.learning_rate")
    if peak is not None and new is not None and new != peak:
        # Kept as a share of the peak: a decay "to a tenth" stays one.
        final = float(f"{new * profile.get(FINAL_RATE, 0.0) / peak:.6g}")
        changes[FINAL_RATE] = final, tr("same fraction of your peak learning rate")
    strategy, offload = yours.get("engine.strategy"), yours.get("engine.offload", "none")
    if strategy in ("single", "ddp") and profile.get("engine.offload") != "none":
        why = tr("your engine.strategy {strategy} keeps everything on the GPU", strategy=strategy)
        changes["engine.offload"] = "none", why
    if offload != "none" and profile.get("engine.strategy") in ("single", "ddp"):
        changes["engine.strategy"] = OPEN
    return changes


def _subject(profile: Mapping[str, Any], yours: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """The data, and what belongs to the profile's own model."""
    changes: dict[str, tuple[Any, str]] = {}
    if "data.sources.0.name" in yours:
        # Column names and splits belong to the old source; of the new one only what the user named is the user's.
        changes["data.sources"] = [{"name": yours["data.sources.0.name"]}], ""
    if yours.keys() & {"data.sources.0.name", "data.sources"} and profile.get("data.validation_sources"):
        changes["data.validation_sources"] = [], tr("rows of your dataset are held out instead")

    def is_other(key: str, default: str | None = None) -> bool:
        return yours.get(key) not in (None, profile.get(key, default))

    other_model = is_other("model.name")
    other_recipe = other_model or is_other("peft.method", "none") or is_other("model.init")
    stale = (*(OF_THE_MODEL if other_model else ()), *(OF_THE_RECIPE if other_recipe else ()))
    return changes | {key: (SETTINGS[key].default, "") for key in stale}


# Profile + the user's values -> RunConfig. Values of the user win; each key keeps who chose it.


def build_config(profile: Profile | None, overrides: Mapping[str, Any], name: str | None = None) -> RunConfig:
    """The request that a plan resolves.

    `overrides` maps key paths to typed values or to strings, read as their settings want them ("4e-4", "null",
    "[a, b]"). Raises UsageError with every bad key and value.
    """
    yours = {**overrides, **({"name": name} if name is not None else {})}
    config = RunConfig()
    if profile:
        # Of the profiles that ship with trainwiz the reasons are in the catalogue.
        reasons = {key: tr(reason) for key, reason in profile.reasons.items()}
        config = RunConfig(profile=profile.name, name=profile.name).with_values(profile.values, "profile", reasons)
    typed, findings = check_values(config, yours)
    if findings:
        raise UsageError(findings)
    yielding = yielding_values(profile.values if profile else {}, typed)
    values = {key: value for key, (value, _) in yielding.items()}
    reasons = {key: why for key, (_, why) in yielding.items() if why}
    config = config.with_values(values, "solved", reasons).left_open(values.keys() - reasons.keys())
    config = config.with_values(typed, "you")
    if config.training.final_learning_rate > config.training.learning_rate:
        message = tr(
            "training.final_learning_rate {final} is above the peak training.learning_rate {peak}; reduce it.",
            final=f"{config.training.final_learning_rate:g}",
            peak=f"{config.training.learning_rate:g}",
        )
        raise UsageError(Finding("bad_value", "error", FINAL_RATE, message))
    return config


def check_values(base: RunConfig, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """(typed values, findings): `values` checked together on top of `base`. None are typed where one is wrong."""
    document = base.model_dump()
    findings = [unknown_key(key) for key in values if not is_settable(key)]
    values = {key: value for key, value in values.items() if is_settable(key)}
    for key, value in values.items():
        try:
            # Bytes that are no text, as the name of a file or a column may hold: no file of a run could say them.
            json.dumps(value, ensure_ascii=False, default=str).encode()
            set_path(document, key, _read(key, value))
        except UnicodeEncodeError:
            findings.append(refused(key, {"input": value, "type": "string"}))
        except KeyError:
            findings.append(refused(key, {"input": value, "type": "", "msg": tr("this entry does not exist")}))
    try:
        checked = RunConfig.model_validate(document)
    except ValidationError as error:
        for one in problems_of(error):
            owner = next(key for key in values if f"{one.where}.".startswith(f"{key}."))
            findings.append(replace(one, where=owner))
    if findings:
        return {}, findings
    plain = checked.model_dump()
    return {key: value_at(plain, key) for key in values}, []


def _read(key: str, value: Any) -> Any:
    """What a value from the command line means to its setting; texts of numbers pydantic reads itself."""
    entry = setting_at(key)
    kind = entry.kind if entry is not None else "mapping"
    if kind == "list" and isinstance(value, list):
        return [str(item) if isinstance(item, int) else item for item in value]
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind not in ("mapping", "list") and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        # In quotes, as YAML and JSON write texts.
        return text[1:-1]
    if entry is not None and (entry.may_be_none or kind == "list") and text.lower() in ("null", "~"):
        return None
    if kind == "list":
        return [part.strip().strip("'\"") for part in text.strip("[]").split(",") if part.strip()]
    if key in SOURCE_LISTS and not text.startswith("["):
        return [{"name": value}]
    if kind == "mapping" or key in SOURCE_LISTS:
        try:
            return load_yaml(value)
        except yaml.YAMLError:
            return value
    # A column by its position.
    return int(value) if entry is not None and {int, str} <= set(entry.kinds) and value.isdecimal() else value
