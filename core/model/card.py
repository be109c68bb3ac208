"""The model card (README.md) of a model, from what its run recorded. Names no folder of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwiz.core import product_version
from trainwiz.core.catalog.hub import is_hub_id
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import read_model_facts, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.language import mark, tr
from trainwiz.core.model.found import FoundModel
from trainwiz.core.run.folder import read_json
from trainwiz.core.run.listing import last_metrics
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.text import moment_words, number, object_in, plain_text

PIPELINES = {"causal-lm": "text-generation", "masked-lm": "fill-mask", "seq2seq": "text2text-generation",
             "sequence-classification": "text-classification", "token-classification": "token-classification"}  # fmt: skip
ADAPTERS = ("peft.method", "peft.rank", "peft.alpha", "peft.dropout", "peft.targets", "engine.base_precision")
SETTINGS = (
    "training.learning_rate", "training.schedule", "training.warmup", "training.weight_decay", "training.train_on",
    "batch.sequence_length", "engine.precision", "engine.optimizer", "engine.strategy", "training.seed",
)  # fmt: skip
"""By the names that a run is started with again."""
UNKNOWN = mark("unknown")
Rows = list[tuple[str, Any]]


def model_card(model: FoundModel) -> str:
    """Markdown with the metadata of the hub in front. What nobody recorded is said to be unknown."""
    license_name = _license(model)
    body = [*_front(model, license_name), f"# {_line(model.name)}", "", *_about(model, license_name), ""]
    if model.config is None or model.run is None:
        body += [tr("How it was trained is not recorded: the folder belongs to no run of trainwiz."), ""]
        return "\n".join(body)
    plan, state = read_json(model.run.plan_json) or {}, read_state(model.run)
    sections = {
        tr("Data"): _data(model.config, object_in(plan.get("data"))),
        tr("Training"): _training(model.config, plan),
        tr("Results"): sorted((state.outcome or last_metrics(model.run.metrics_jsonl)).items()),
        tr("Hardware and software"): _hardware(state, object_in(plan.get("machine"))),
    }
    for title, rows in sections.items():
        body += [f"## {title}", "", f"| {tr('what')} | {tr('value')} |", "|---|---|"]
        body += [f"| {_line(label)} | {_line(_value(value))} |" for label, value in rows if value is not None] + [""]
    end = tr("Written from the records of its run by trainwiz {version}.", version=product_version())
    return "\n".join([*body, end, ""])


def _front(model: FoundModel, license_name: str | None) -> list[str]:
    """YAML that hub and libraries read; JSON values are YAML too, so that no name can break out of its line."""
    base, adapter = public_base(model), model.kind == "adapter"
    on_hub = base is not None and is_hub_id(base) and "/" in base
    sources = model.config.data.sources if model.config is not None else []
    values: dict[str, Any] = {
        "license": license_name,
        "base_model": base if on_hub else None,
        "base_model_relation": ("adapter" if adapter else "finetune") if on_hub else None,
        "datasets": [one.name for one in sources if _of_the_hub(one.name)] or None,
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": PIPELINES.get(model.task),
        "tags": ["trainwiz", *(["lora"] if adapter else [])],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None]
    return ["---", *lines, "---", ""]


def _of_the_hub(name: str) -> bool:
    return is_hub_id(name) and "/" in name and not Path(name).exists()


def public_base(model: FoundModel) -> str | None:
    """The base by a name that says nothing of this machine: its hub id, else the last part of its path."""
    name = model.base_name
    if name is None or (is_hub_id(name) and not Path(name).exists()):
        return name
    path = Path(name)
    # RUN/final_model says less than RUN.
    return path.parent.name if path.name == "final_model" and path.parent.name else path.name


def _license(model: FoundModel) -> str | None:
    """Of the base, from its README, the catalogue, or what the hub has said already."""
    spec = resolve_model(model.config.model)[0] if model.config is not None else None
    folder = model.base or (model.path if model.config is None else None)
    if folder is not None:
        said = spec.license if spec is not None else None
        spec = ModelSpec(name=model.name, architecture={}, task="causal-lm", license=said, path=folder)
    return read_model_facts(spec).license if spec is not None else None


def _about(model: FoundModel, license_name: str | None) -> list[str]:
    kind, base = str(model.architecture.get("model_type")), tr("none, trained from scratch")
    license_words = tr("none is needed")
    if model.config is None or model.config.model.init == "pretrained":
        base = _line(public_base(model) or tr(UNKNOWN))
        license_words = _line(license_name or tr("unknown; look it up before you publish this model"))
    said = tr("A whole model ({task}, {type}).", task=model.task, type=kind)
    if model.kind == "adapter":
        said = tr("A LoRA adapter ({task}, {type}). It needs its base.", task=model.task, type=kind)
    template = tr("yes, with the tokenizer") if model.has_template else tr("none")
    rows = {tr("Base"): base, tr("License of the base"): license_words, tr("Chat template"): template}
    return [said, "", *(f"- {label}: {words}" for label, words in rows.items())]


def _data(config: RunConfig, data: Any) -> Rows:
    rows: Rows = [(tr("source"), _source(one.model_dump())) for one in config.data.sources]
    rows += [(tr("evaluated on"), _source(one.model_dump())) for one in config.data.validation_sources]
    rows += [(tr("rows that train"), data.get("rows")), (tr("rows held out"), data.get("validation_rows"))]
    mean = number(data.get("mean_length"))
    return [*rows, (tr("mean length"), None if mean is None else f"{mean:,.0f} {data.get('length_unit') or ''}")]


def _source(source: dict[str, Any]) -> str:
    name = str(source["name"])
    more = ", ".join(str(source[key]) for key in ("subset", "split", "layout") if source.get(key))
    return f"{name if _of_the_hub(name) else Path(name).name} ({more})"


def _training(config: RunConfig, plan: dict[str, Any]) -> Rows:
    keys = (*(ADAPTERS if config.peft.method != "none" else ()), *SETTINGS)
    batch, time = object_in(plan.get("batch")), object_in(plan.get("time"))
    rows: Rows = [(key, config.value(key)) for key in keys]
    rows += [(tr("sequences of a step"), batch.get("effective_samples")), (tr("steps planned"), time.get("steps"))]
    return [*rows, (tr("epochs planned"), time.get("epochs"))]


def _hardware(state: RunState, machine: Any) -> Rows:
    engine = state.engine
    device = engine.get("device_name") or machine.get("cpu_model") or engine.get("device") or tr(UNKNOWN)
    rows: Rows = [(tr("device"), f"{engine.get('world_size') or 1} × {device}")]
    if state.started_s is not None and state.ended_s is not None:
        lasted = sum((one.ended_s or one.started_s) - one.started_s for one in state.attempts)
        rows += [(tr("trained for"), f"{lasted / 3600:.1f} h" if lasted >= 3600 else f"{lasted / 60:.1f} min")]
        rows += [(tr("ended on"), moment_words(state.ended_s, "%Y-%m-%d"))]
    versions = object_in(object_in(machine.get("libraries")).get("versions"))
    known = (
        f"{name} {versions[name]}" for name in ("torch", "transformers", "peft", "bitsandbytes") if versions.get(name)
    )
    return [*rows, (tr("libraries"), ", ".join(known) or tr(UNKNOWN))]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _line(text: str) -> str:
    """A text of somebody's as one line that Markdown does not read."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|" else letter for letter in plain_text(text))


def is_generated(text: str) -> bool:
    """A card that peft or transformers wrote: a form that nobody filled in."""
    return "[More Information Needed]" in text
