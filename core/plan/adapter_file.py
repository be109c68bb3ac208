"""An adapter that a run goes on from (peft.adapter): its own settings are those of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.files import at_home, read_small
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json

ADAPTER = "peft.adapter"
FILE = "adapter_config.json"


def with_adapter(config: RunConfig) -> tuple[RunConfig, tuple[Finding, ...]]:
    """`config` with the rank, scale and modules of the adapter that it names, and what speaks against it. peft gives an
    adapter its own shape whatever else is asked, so that another rank beside it is refused."""
    name = config.peft.adapter
    if name is None:
        return config, ()
    leave = Remedy(tr("start with new adapters"), changes={ADAPTER: None})
    try:
        said = parse_json(read_small(at_home(Path(name)) / FILE).decode(errors="replace"))
    except (OSError, ValueError):
        message = tr("{name} contains no adapter: specify a folder with {file} (peft.adapter).", name=name, file=FILE)
        return config, (Finding("missing_adapter", "error", ADAPTER, message, (leave,)),)
    values = _values(said) if isinstance(said, dict) else None
    if values is None:
        message = tr(
            "The adapter in {name} is not LoRA on named modules, the only kind that trainwiz trains.", name=name
        )
        return config, (Finding("adapter_not_supported", "error", ADAPTER, message, (leave,)),)
    apart = [
        key
        for key, value in values.items()
        if config.origin(key).origin == "you" and not _same(config.value(key), value)
    ]
    findings = tuple(
        Finding(
            "adapter_differs",
            "error",
            key,
            tr("{key} is {value}, but the adapter in {name} has "
                "{own}.", key=key, value=config.value(key), name=name, own=values[key]),
            (Remedy(tr("use the adapter's value"), changes={key: values[key]}), leave),
        )
        for key in apart
    )  # fmt: skip
    taken = {key: value for key, value in values.items() if key not in apart}
    reason = tr("from the adapter in {name}", name=name)
    return config.with_values(taken, "detected", dict.fromkeys(taken, reason)), findings


def _same(asked: Any, own: Any) -> bool:
    return sorted(asked) == sorted(own) if isinstance(asked, list) and isinstance(own, list) else bool(asked == own)


def _values(said: dict[str, Any]) -> dict[str, Any] | None:
    """Of the file of peft; None where it is another kind of adapter, or goes by a pattern of names."""
    rank, targets = said.get("r"), said.get("target_modules")
    named = isinstance(targets, list) and all(isinstance(target, str) for target in targets)
    if said.get("peft_type") != "LORA" or not isinstance(rank, int) or not named:
        return None
    return {
        "peft.method": "lora",
        "peft.rank": rank,
        "peft.alpha": float(said.get("lora_alpha") or rank),
        "peft.targets": sorted(map(str, targets or ())),
        "peft.rslora": bool(said.get("use_rslora")),
        "peft.dora": bool(said.get("use_dora")),
        "peft.modules_to_save": list(said.get("modules_to_save") or ()),
    }
