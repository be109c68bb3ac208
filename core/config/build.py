"""Profile and the user's values -> RunConfig; each key keeps who chose it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError
from trainwiz.core.config.keys import is_settable, is_variable, setting_at
from trainwiz.core.config.run import RunConfig, set_path
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.config.yaml_text import expectation, field_path, load_yaml, problem_of, unknown_key_message
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.language import tr
from trainwiz.core.run.attempts import changes_now
from trainwiz.core.run.folder import RunFolder

if TYPE_CHECKING:
    from trainwiz.core.profile.profile import Profile


# What a value of the user does to values of the profile that contradict it: the user's wins, the other is solved anew.

TARGETS = ("batch.target_tokens", "batch.target_samples", "batch.target_real_tokens")
RESHAPES_THE_BATCH = (
    *TARGETS, "batch.micro_batch_size", "batch.sequence_length", "engine.processes", "engine.nodes", "engine.gpus",
)  # fmt: skip
"""A change of one of these makes the profile's accumulation stale, where a target says what it should be."""

OF_THE_MODEL: Mapping[str, Any] = {
    "model.init": None,
    "model.tokenizer": None,
    "model.architecture_overrides": {},
    "peft.targets": [],
}
OF_THE_RECIPE: Mapping[str, Any] = {
    key: SETTINGS[key].default
    for key in ("training.learning_rate", "training.final_learning_rate", "training.warmup", "training.schedule")
}
"""A rate from scratch wipes what a pretrained model knows: these belong to how the profile's own model is trained."""


def yielding_values(profile: Mapping[str, Any], yours: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Profile keys that must change because of the user's values: key path -> (new value, reason).

    `profile` and `yours` map key paths to values. `None` as the new value, or no reason, leaves the key to the plan.
    A key that the user set is never in the answer.
    """
    changes = {key: (value, why) for key, value, why in (*_sizes(profile, yours), *_subject(profile, yours))}
    return {key: change for key, change in changes.items() if key not in yours}


Yielding = Iterator[tuple[str, Any, str]]
"""Key, its new value, and the reason."""


def _sizes(profile: Mapping[str, Any], yours: Mapping[str, Any]) -> Yielding:
    """The batch, the length of the run, its rate, its engine."""
    asked = [key for key in RESHAPES_THE_BATCH if key in yours]
    has_target = any(yours.get(key, profile.get(key)) is not None for key in TARGETS)
    if asked and has_target and profile.get("batch.gradient_accumulation_steps") is not None:
        yield "batch.gradient_accumulation_steps", None, tr("recomputed for your {asked}", asked=asked[0])
    for target, other in permutations(TARGETS, 2):
        if yours.get(target) is not None and profile.get(other) is not None:
            yield other, None, tr("replaced by your {target}", target=target)
    if yours.get("training.epochs") is not None and profile.get("training.max_steps") is not None:
        yield "training.max_steps", None, tr("your training.epochs sets the length of the run")
    peak, final = profile.get("training.learning_rate"), profile.get("training.final_learning_rate")
    new = yours.get("training.learning_rate")
    if isinstance(peak, float) and isinstance(final, float) and isinstance(new, float) and peak > 0 and new != peak:
        # Kept as a share of the peak: a decay "to a tenth" stays one.
        yield (
            "training.final_learning_rate",
            float(f"{new * final / peak:.6g}"),
            tr("same fraction of your peak learning rate"),
        )
    strategy, offload = yours.get("engine.strategy"), yours.get("engine.offload")
    if strategy in ("single", "ddp") and profile.get("engine.offload", "none") != "none":
        why = tr("your engine.strategy {strategy} keeps everything on the GPU", strategy=strategy)
        yield "engine.offload", "none", why
    if offload in ("optimizer", "all") and profile.get("engine.strategy") in ("single", "ddp"):
        yield (
            "engine.strategy",
            None,
            tr("your engine.offload {offload} needs a strategy that supports it", offload=offload),
        )


def _subject(profile: Mapping[str, Any], yours: Mapping[str, Any]) -> Yielding:
    """The data, and what belongs to the profile's own model."""
    renamed = yours.get("data.sources.0.name")
    if renamed is not None and "data.sources" not in yours:
        # Column names and splits belong to the old source.
        yield "data.sources", [{"name": renamed}], tr("your dataset")
    if yours.keys() & {"data.sources.0.name", "data.sources"} and profile.get("data.validation_sources"):
        yield "data.validation_sources", [], tr("rows of your dataset are held out instead")
    other_model = yours.get("model.name") not in (None, profile.get("model.name"))
    other_kind = "peft.method" in yours and yours["peft.method"] != profile.get("peft.method", "none")
    of_model = OF_THE_MODEL if other_model else {}
    other_recipe = other_model or other_kind or yours.get("model.init") not in (None, profile.get("model.init"))
    for key, none in {**of_model, **(OF_THE_RECIPE if other_recipe else {})}.items():
        if key in profile:
            yield key, none, tr("specific to the profile's model") if key in of_model else ""


# Profile + the user's values -> RunConfig. Values of the user win; each key keeps who chose it.

Where = Callable[[str], str]


def build_config(profile: Profile | None, overrides: Mapping[str, Any], name: str | None = None) -> RunConfig:
    """The request that a plan resolves.

    `overrides` maps key paths to typed values or to strings, which are read as YAML scalars ("4e-4", "null",
    "[a, b]") and taken as text where the field wants text. Raises UsageError with every bad key and value.
    """
    yours = {**overrides, **({"name": name} if name is not None else {})}
    known = {key: value for key, value in yours.items() if is_settable(key)}
    findings = [Finding("unknown_key", "error", key, unknown_key_message(key)) for key in yours if key not in known]
    base = RunConfig()
    if profile:
        # Of the profiles that ship with trainwiz the reasons are in the catalogue.
        reasons = {key: tr(reason) for key, reason in profile.reasons.items()}
        base = RunConfig(profile=profile.name, name=profile.name)
        base = base.with_values(dict(profile.values), "profile", reasons)
    typed, problems = check_values(base, known, lambda key: key)
    findings += problems
    if findings:
        raise UsageError(findings)
    config = _layered(base, profile, typed)
    if config.training.final_learning_rate > config.training.learning_rate:
        message = tr(
            "training.final_learning_rate {final} is above the peak training.learning_rate {peak}; reduce it.",
            final=f"{config.training.final_learning_rate:g}",
            peak=f"{config.training.learning_rate:g}",
        )
        raise UsageError(Finding("bad_value", "error", "training.final_learning_rate", message))
    return config


def _layered(base: RunConfig, profile: Profile | None, yours: dict[str, Any]) -> RunConfig:
    """The profile's values, what yields to the user's, then the user's; with the origin of each."""
    yielded = yielding_values({key: base.value(key) for key in (profile.values if profile else ())}, yours)
    config = base
    if yielded:
        values = {key: value for key, (value, _) in yielded.items()}
        config = base.with_values(values, "solved", {key: reason for key, (_, reason) in yielded.items()})
        # Left to the plan: what it solves carries its own reason.
        kept = {
            key: origin
            for key, origin in config.origins.items()
            if values.get(key, ...) is not None and yielded.get(key, (0, "-"))[1]
        }
        if "data.sources" in values:
            # Of the new source only the keys that the user named are the user's.
            del kept["data.sources"]
        config = config.model_copy(update={"origins": kept})
    return config.with_values(yours, "you")


def check_values(base: RunConfig, values: Mapping[str, Any], where: Where) -> tuple[dict[str, Any], list[Finding]]:
    """(typed values, findings): `values` checked together on top of `base`, every problem named with its place."""
    attempt = {key: _first_reading(key, value) for key, value in values.items()}
    errors = _errors(base, attempt)
    for key, value in values.items():
        if isinstance(value, str) and key in errors and attempt[key] != value:
            attempt[key] = value
    errors = _errors(base, attempt)
    good = {key: value for key, value in attempt.items() if key not in errors}
    findings = [_bad_value(key, values[key], error, where(key)) for key, found in errors.items() for error in found]
    if not findings:
        checked = base.with_values(good, "you")
        good = {key: checked.value(key) for key in good}
    # Sections inside a list as mappings, so that the value is data again.
    plain = {
        key: [item.model_dump() if hasattr(item, "model_dump") else item for item in value]
        if isinstance(value, list)
        else value
        for key, value in good.items()
    }
    return plain, findings


def _errors(base: RunConfig, values: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Key of `values` -> what pydantic says about it."""
    document = base.model_dump(mode="python")
    found: dict[str, list[dict[str, Any]]] = {}
    for key, value in values.items():
        try:
            set_path(document, key, value)
        except KeyError:
            found[key] = [{"type": "no_place", "msg": "", "path": key}]
        if not _is_text(value):
            found[key] = [{"type": "string_unicode", "msg": "", "path": key}]
    try:
        RunConfig.model_validate(document)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = field_path(detail)
            owners = [key for key in values if path == key or path.startswith(f"{key}.")]
            said = found.setdefault(max(owners, key=len), []) if owners else []
            if path not in [other["path"] for other in said]:
                said.append({**detail, "path": path})
    return found


def _is_text(value: Any) -> bool:
    """No text in it holds bytes that are none, as the name of a file or a column may: no file of a run could say it."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _first_reading(key: str, value: Any) -> Any:
    """What a value from the command line means before its field is asked."""
    entry = setting_at(key)
    if entry is not None and entry.is_text_list:
        return _text_list(value)
    if not isinstance(value, str) or is_variable(key):
        return value
    if key in ("data.sources", "data.validation_sources") and not value.lstrip().startswith("["):
        return [{"name": value}]
    try:
        parsed = load_yaml(value)
    except yaml.YAMLError:
        return value
    if isinstance(parsed, bool) and value.strip().lower() not in ("true", "false"):
        # A column may be called "no"; fields that want a yes or no accept the word itself.
        return value
    return value if parsed is None and value.strip().lower() not in ("null", "~") else parsed


def _text_list(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("null", "~"):
            return None
        return [part.strip().strip("'\"") for part in text.strip("[]").split(",") if part.strip()]
    if isinstance(value, list | tuple):
        return [str(item) if isinstance(item, int) else item for item in value]
    return value


def _bad_value(key: str, value: Any, error: Mapping[str, Any], where: str) -> Finding:
    path, kind = str(error.get("path", key)), error["type"]
    message = problem_of(path, value, error)
    # What a variable holds may be a secret.
    if kind not in ("missing", "extra_forbidden") and not (is_variable(path) and kind == "value_error"):
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        wanted = expectation(path, value, error)
        message = tr("{path}: invalid value {value}; {expectation}", path=path, value=shown, expectation=wanted)
    code = "unknown_key" if kind == "extra_forbidden" else "bad_value"
    return Finding(code, "error", where, message if where == key else f"{where}: {message}")


# The RunConfig that the newest attempt of a run really has: run.yaml with what recovery changed.


def with_recovery(config: RunConfig, folder: RunFolder) -> RunConfig:
    """`config` as run.yaml holds it, with the changes of recovery.json.

    Raises pydantic.ValidationError or KeyError when recovery.json was edited into nonsense.
    """
    changes = changes_now(folder)
    return config.with_values(changes, "solved", dict.fromkeys(changes, "recovery")) if changes else config
