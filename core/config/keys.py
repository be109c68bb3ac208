"""The key paths of a RunConfig, and the metrics it can name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwiz.core.config.setting import Setting
from trainwiz.core.config.settings import SECTIONS, SETTINGS, SOURCE_SETTINGS
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.errors import after
from trainwiz.core.language import tr

if TYPE_CHECKING:
    from trainwiz.core.config.run import RunConfig

# The key paths of a RunConfig ("batch.micro_batch_size"): which exist, what type they hold, which is nearest.

NOT_SETTABLE: frozenset[str] = frozenset({"schema_version", "profile", "model.architecture", "mode.kind"})
"""Keys that trainwiz itself fills in; a profile or `--set` cannot."""

NOT_IN_PROFILES: frozenset[str] = frozenset(
    {"name", "mode.overfit_batches", "mode.trace_steps", "mode.dev_steps", "mode.benchmark_steps"}
)
"""Keys that belong to one run, not to a setup."""

ENVIRONMENT = "engine.environment"
"""A mapping whose entries are keys of their own: `engine.environment.NCCL_DEBUG`."""


SOURCE_KEY = re.compile(r"data\.(?:validation_)?sources\.\d+\.(\w+)")
VARIABLE_KEY = re.compile(r"engine\.environment\.[^.]+")
OVERRIDE_KEY = re.compile(r"model\.architecture_overrides\..+")


def setting_at(key: str) -> Setting | None:
    """The setting of a leaf key, also of one inside a list of sections ("data.sources.0.name") or of the environment."""
    if VARIABLE_KEY.fullmatch(key):
        # Whether a run may set this variable is said when its value is checked.
        return Setting(key=key)
    source = SOURCE_KEY.fullmatch(key)
    return SOURCE_SETTINGS.get(source[1]) if source else SETTINGS.get(key)


def is_settable(key: str) -> bool:
    """A user may give this key a value."""
    return key not in NOT_SETTABLE and bool(setting_at(key) or OVERRIDE_KEY.fullmatch(key))


def nearest_keys(key: str, count: int = 3) -> list[str]:
    """The keys that the user may have meant, by how their last part is spelled."""
    known = {setting.key: setting.key.rpartition(".")[2] for setting in (*SETTINGS.values(), *SOURCE_SETTINGS.values())}
    last = key.rpartition(".")[2].replace("-", "_")
    near = difflib.get_close_matches(last, set(known.values()), n=count, cutoff=0.6)
    return [key for name in near for key in known if known[key] == name and key not in NOT_SETTABLE][:count]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections (as a YAML file has them) as key path -> value; unknown keys stay as they are.

    The environment is taken apart too, so that a profile can add a variable to those of the one that it extends.
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        has_keys = isinstance(value, Mapping) and (key in SECTIONS or key == ENVIRONMENT)
        flat |= flatten(value, f"{key}.") if has_keys else {key: value}
    return flat


def did_you_mean(names: list[str]) -> str:
    """ " Did you mean a or b?", with its leading space; "" when nothing is near."""
    return after(tr("Did you mean {name}?", name=tr(" or ").join(names))) if names else ""


# What an evaluation of a run measures, and the metric that ranks its checkpoints.

DEFAULT_METRIC = "eval_loss"
BLEU_METRIC = "eval_bleu"


def known_metrics(config: RunConfig) -> tuple[str, ...]:
    """The metrics that an evaluation of this run gives (core/training/evaluation.py and generation.py)."""
    if config.task in CLASSIFIES:
        # Of tags that mark no entities there are no precision and recall (core/training/scores.py).
        return (DEFAULT_METRIC, "eval_accuracy", "eval_f1")
    names = [DEFAULT_METRIC, "eval_accuracy", "eval_perplexity"]
    if config.evaluation.generate and config.task != "masked-lm":
        names.append(BLEU_METRIC)
    return tuple(names)


def ranking_metric(config: RunConfig) -> str:
    """evaluation.metric under its full name: `bleu` is `eval_bleu`."""
    metric = config.evaluation.metric or DEFAULT_METRIC
    return metric if metric.startswith("eval_") else f"eval_{metric}"


def lower_is_better(metric: str) -> bool:
    """Losses and perplexities are better when lower, all other metrics when higher."""
    return "loss" in metric or "perplexity" in metric


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
