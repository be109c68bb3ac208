"""Arguments of older transformers -> today's names, with the values that these take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.training_arguments_names import REMOVED_OPTIMIZERS, RENAMED
from trainwiz.core.importing.training_arguments_setting import (
    Setting,
    Unresolved,
    WrongValue,
    decimal_number,
    is_nothing,
    text_list,
    text_value,
    yes_or_no,
)
from trainwiz.core.language import tr


def _evaluating(value: Any) -> Any:
    return "steps" if yes_or_no(value) else "no"


def _adafactor(value: Any) -> Any:
    return "adafactor" if yes_or_no(value) else None


def _grouped(value: Any) -> Any:
    return "group_by_length" if yes_or_no(value) else None


def _sharded(value: Any) -> Any:
    """fairscale's ways: `simple` and `zero_dp_2` shard gradients and optimizer, `zero_dp_3` the weights too."""
    if isinstance(value, bool) or is_nothing(value) or str(value).lower() in ("true", "false"):
        return "shard_grad_op" if not is_nothing(value) and yes_or_no(value) else None
    names = {"simple": "shard_grad_op", "zero_dp_2": "shard_grad_op", "zero_dp_3": "full_shard"}
    return " ".join(names.get(option, option) for option in text_list(value))


CHANGED: dict[str, Callable[[Any], Any]] = {
    "evaluate_during_training": _evaluating,
    "adafactor": _adafactor,
    "group_by_length": _grouped,
    "sharded_ddp": _sharded,
}
"""Old names whose values change with the name; None is what the argument is where it is not set."""


def with_todays_names(collector: Collector, settings: Iterable[Setting]) -> list[Setting]:
    """The settings under today's names, each renaming noted; of two spellings of one setting the later stays.

    Two spellings with different values are a finding.
    """
    found: dict[str, Setting] = {}
    for setting in settings:
        today = _renamed(collector, setting)
        first = found.get(today.name)
        if first is not None:
            today = _one_of(collector, first, today)
        found[today.name] = today
    return list(found.values())


def _renamed(collector: Collector, setting: Setting) -> Setting:
    name = setting.name
    if name == "optim" and isinstance(setting.value, str):
        return _todays_optimizer(collector, setting)
    if name not in RENAMED:
        return setting
    new = RENAMED[name]
    collector.rename(setting.as_written(), new, setting.line)
    if isinstance(setting.value, Unresolved) or name not in CHANGED:
        return setting.called(new)
    try:
        return setting.called(new, CHANGED[name](setting.value))
    except WrongValue:
        # The place of the new name says what is wrong with the value.
        return setting.called(new)


def _todays_optimizer(collector: Collector, setting: Setting) -> Setting:
    name = text_value(setting.value)
    new = REMOVED_OPTIMIZERS.get(name)
    if new is None:
        return setting
    collector.rename(f"{setting.as_written()}={name}", f"optim={new}", setting.line)
    return setting.called("optim", new)


def _one_of(collector: Collector, first: Setting, second: Setting) -> Setting:
    """Which of two settings with one name today counts."""
    if first.name == "warmup_steps" and first.as_written() != second.as_written():
        return _warmup(collector, first, second)
    unset = [one for one in (first, second) if is_nothing(one.value)]
    if unset:
        return first if unset == [second] else second
    if first.value != second.value:
        _contradict(collector, first, second, second)
    return second


def _warmup(collector: Collector, first: Setting, second: Setting) -> Setting:
    """TrainingArguments.get_warmup_steps of 4.x: steps above 0 win over the ratio."""
    steps, ratio = (second, first) if second.as_written() == "warmup_steps" else (first, second)
    counts = [one for one in (steps, ratio) if _above_zero(one.value)]
    if len(counts) == 2:
        _contradict(collector, first, second, steps)
    return counts[0] if counts else steps


def _above_zero(value: Any) -> bool:
    try:
        return decimal_number(value) > 0
    except WrongValue:
        return isinstance(value, Unresolved)


def _contradict(collector: Collector, first: Setting, second: Setting, counts: Setting) -> None:
    message = tr(
        "{first} and {second} are the same setting with two values; {counts} counts. Keep one.",
        first=_shown(first),
        second=_shown(second),
        counts=counts.as_written(),
    )
    collector.find("contradiction", "warning", message, second.line)


def _shown(setting: Setting) -> str:
    from trainwiz.core.plain import plain_text

    value = setting.value.text if isinstance(setting.value, Unresolved) else setting.value
    return plain_text(f"{setting.as_written()}={value}", 60)
