"""The key paths of a RunConfig, the metrics it can name, and in what two of them differ."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwiz.core.config.setting import Setting
from trainwiz.core.config.settings import SECTIONS, SETTINGS, SOURCE_LISTS, SOURCE_SETTINGS
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.errors import after
from trainwiz.core.language import tr

if TYPE_CHECKING:
    from trainwiz.core.config.run import Origin, RunConfig

# The key paths of a RunConfig ("batch.micro_batch_size"): which exist, what type they hold, which is nearest.

NOT_SETTABLE: frozenset[str] = frozenset({"schema_version", "profile", "model.architecture", "mode.kind"})
"""Keys that trainwiz itself fills in; a profile or `--set` cannot."""

NOT_IN_PROFILES: frozenset[str] = frozenset(
    {"name", "mode.overfit_batches", "mode.trace_steps", "mode.dev_steps", "mode.benchmark_steps"}
)
"""Keys that belong to one run, not to a setup."""

ENVIRONMENT = "engine.environment"
"""A mapping whose entries are keys of their own: `engine.environment.NCCL_DEBUG`."""


def setting_at(key: str) -> Setting | None:
    """The setting of a leaf key, also of one inside a list of sections ("data.sources.0.name") or of the environment."""
    if is_variable(key):
        return Setting(key=key)
    for listed in SOURCE_LISTS:
        index, _, rest = key.removeprefix(f"{listed}.").partition(".")
        if key.startswith(f"{listed}.") and index.isdecimal() and rest:
            return SOURCE_SETTINGS.get(rest)
    return SETTINGS.get(key)


def is_variable(key: str) -> bool:
    """The key is one environment variable of the run; whether a run may set it is said when its value is checked."""
    return key.removeprefix(f"{ENVIRONMENT}.") not in (key, "") and "." not in key.removeprefix(f"{ENVIRONMENT}.")


def is_settable(key: str) -> bool:
    """A user may give this key a value."""
    if key in NOT_SETTABLE:
        return False
    return setting_at(key) is not None or key.removeprefix("model.architecture_overrides.") not in (key, "")


def nearest_keys(key: str, count: int = 3) -> list[str]:
    """The keys that the user may have meant: the same last part first, then similar spelling."""
    known = [key for key in SETTINGS if key not in NOT_SETTABLE]
    if ".0." in key or key.startswith(SOURCE_LISTS):
        known += [setting.key for setting in SOURCE_SETTINGS.values()]
    last = key.rsplit(".", 1)[-1].replace("-", "_")
    same = [name for name in known if name.rsplit(".", 1)[-1] == last]
    if same:
        return same[:count]
    spelled = difflib.get_close_matches(key.replace("-", "_"), known, n=count, cutoff=0.8)
    by_last = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
    parts = [by_last[part] for part in difflib.get_close_matches(last, by_last, n=count, cutoff=0.6)]
    return list(dict.fromkeys([*parts, *spelled]))[:count]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections (as a YAML file has them) as key path -> value; unknown keys stay as they are.

    The environment is taken apart too, so that a profile can add a variable to those of the one that it extends.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if ((key in SECTIONS and key) or key == ENVIRONMENT) and isinstance(value, Mapping):
            flat.update(flatten(value, f"{key}."))
        else:
            flat[key] = value
    return flat


def did_you_mean(names: list[str]) -> str:
    """ " Did you mean a or b?", with its leading space; "" when nothing is near."""
    if len(names) < 2:
        return after(tr("Did you mean {name}?", name=names[0])) if names else ""
    return after(tr("Did you mean {names} or {last}?", names=", ".join(names[:-1]), last=names[-1]))


# What an evaluation of a run measures, and the metric that ranks its checkpoints.

DEFAULT_METRIC = "eval_loss"
BLEU_METRIC = "eval_bleu"
LOWER_IS_BETTER = re.compile(r"loss|perplexity")


def known_metrics(config: RunConfig) -> tuple[str, ...]:
    """The metrics that an evaluation of this run gives (core/training/evaluation.py and generation.py)."""
    if config.task in CLASSIFIES:
        # Of tags that mark no entities there are no precision and recall (core/training/scores.py).
        return (DEFAULT_METRIC, "eval_accuracy", "eval_f1")
    names = [DEFAULT_METRIC, "eval_accuracy", "eval_perplexity"]
    if config.task == "masked-lm":
        names.append("eval_hidden_loss")
    elif config.evaluation.generate:
        names.append(BLEU_METRIC)
    return tuple(names)


def ranking_metric(config: RunConfig) -> str:
    """evaluation.metric under its full name: `bleu` is `eval_bleu`."""
    metric = config.evaluation.metric or DEFAULT_METRIC
    return metric if metric.startswith("eval_") else f"eval_{metric}"


def lower_is_better(metric: str) -> bool:
    """Losses and perplexities are better when lower, all other metrics when higher."""
    return LOWER_IS_BETTER.search(metric) is not None


def ranks_checkpoints(config: RunConfig) -> bool:
    """Whether each checkpoint needs a score: the best are kept, or final_model is the best."""
    return config.checkpoint.keep_best or config.checkpoint.final == "best"


def checkpoints_kept(config: RunConfig) -> int:
    """How many stay on the disk at most; one more while it is written."""
    checkpoint = config.checkpoint
    return checkpoint.keep + 1 if checkpoint.keep_best else max(checkpoint.keep, 2 if checkpoint.final == "best" else 1)


def generates_at_saves(config: RunConfig) -> bool:
    """Whether each checkpoint needs a BLEU of its own, whatever evaluation.generate_at says."""
    return ranks_checkpoints(config) and ranking_metric(config) == BLEU_METRIC


# In what two resolved runs differ: key paths with both values, and who chose the second one.

NOT_COMPARED = frozenset({"schema_version", "profile", "name", "model.architecture"})
"""What names one run, or follows from model.name."""


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """One value that differs. None: there is no such value."""

    key: str
    theirs: Any
    yours: Any
    chosen_by: Origin
    """Who chose `yours`: "you", or what followed from your choices."""


def config_differences(theirs: RunConfig, yours: RunConfig) -> tuple[ConfigDifference, ...]:
    """Every value of `yours` that is another one in `theirs`: the user's own first, then in the order of the config."""
    found = []
    for key in SETTINGS:
        if key not in NOT_COMPARED:
            for path, one, other in _leaves(key, plain(theirs.value(key)), plain(yours.value(key))):
                found.append(ConfigDifference(path, one, other, _origin(yours, path)))
    return tuple(sorted(found, key=lambda difference: difference.chosen_by.origin != "you"))


def _leaves(key: str, theirs: Any, yours: Any) -> Iterator[tuple[str, Any, Any]]:
    """The differing values below a key: entries of mappings, and of lists of mappings of the same length."""
    if theirs == yours:
        return
    if isinstance(theirs, Mapping) and isinstance(yours, Mapping):
        for name in dict.fromkeys([*theirs, *yours]):
            yield from _leaves(f"{key}.{name}", theirs.get(name), yours.get(name))
    elif _are_sections(theirs) and _are_sections(yours) and len(theirs) == len(yours):
        for index, (one, other) in enumerate(zip(theirs, yours, strict=True)):
            yield from _leaves(f"{key}.{index}", one, other)
    else:
        yield key, theirs, yours


def _are_sections(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def plain(value: Any) -> Any:
    """Sections inside a list as mappings, so that the value is data again."""
    if isinstance(value, list):
        return [item.model_dump() if hasattr(item, "model_dump") else item for item in value]
    return value


def _origin(config: RunConfig, key: str) -> Origin:
    """Of the key, else of the mapping or list that holds it."""
    while key not in config.origins and "." in key:
        key = key.rpartition(".")[0]
    return config.origin(key)
