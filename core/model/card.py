"""The model card (README.md) of a model, from what its run recorded. Names no folder of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwiz.core import product_version
from trainwiz.core.catalog.hub import is_hub_id
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import read_model_facts, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.language import mark, tr
from trainwiz.core.model.found import FoundModel
from trainwiz.core.run.folder import OUTCOME_JSON, read_json
from trainwiz.core.run.listing import last_metrics
from trainwiz.core.run.state import read_state
from trainwiz.core.text import moment_words, number, object_in, plain_text

PIPELINES = {"causal-lm": "text-generation", "masked-lm": "fill-mask", "seq2seq": "text2text-generation",
             "sequence-classification": "text-classification", "token-classification": "token-classification"}  # fmt: skip
SETTINGS = (
    ("training.learning_rate", mark("learning rate")),
    ("training.schedule", mark("schedule")),
    ("training.warmup", mark("warmup")),
    ("training.weight_decay", mark("weight decay")),
    ("training.train_on", mark("learnt of a chat")),
    ("batch.sequence_length", mark("sequence length")),
    ("engine.precision", mark("precision")),
    ("engine.optimizer", mark("optimizer")),
    ("engine.strategy", mark("strategy")),
    ("training.seed", mark("seed")),
)
ADAPTERS = (
    ("peft.method", mark("method")),
    ("peft.rank", mark("rank")),
    ("peft.alpha", mark("alpha")),
    ("peft.dropout", mark("dropout")),
    ("peft.targets", mark("adapted modules")),
    ("engine.base_precision", mark("base held in")),
)
RESULTS = {
    "eval_loss": mark("loss on held-out rows"),
    "eval_perplexity": mark("perplexity on held-out rows"),
    "eval_accuracy": mark("token accuracy on held-out rows"),
    "eval_bleu": mark("BLEU on held-out rows"),
    "eval_macro_f1": mark("macro F1 on held-out rows"),
    "eval_f1": mark("F1 on held-out rows"),
    "last_loss": mark("training loss at the end"),
}
UNKNOWN = mark("unknown")


def model_card(model: FoundModel) -> str:
    """Markdown with the metadata of the hub in front. What nobody recorded is said to be unknown."""
    license_name = _license(model)
    body = [_front(model, license_name), f"# {_line(model.name)}", "", *_about(model, license_name), ""]
    if model.config is None or model.run is None:
        body += [tr("How it was trained is not recorded: the folder belongs to no run of trainwiz."), ""]
        return "\n".join(body)
    plan = read_json(model.run.plan_json) or {}
    sections = {
        tr("Data"): _data(model.config, plan),
        tr("Training"): _training(model.config, plan, adapted=model.config.peft.method != "none"),
        tr("Results"): _results(model),
        tr("Hardware and software"): _hardware(model, plan),
    }
    for title, rows in sections.items():
        body += [f"## {title}", "", f"| {tr('what')} | {tr('value')} |", "|---|---|"]
        body += [f"| {_line(label)} | {_line(value)} |" for label, value in rows] + [""]
    return "\n".join(
        [*body, tr("Written from the records of its run by trainwiz {version}.", version=product_version()), ""]
    )


def _front(model: FoundModel, license_name: str | None) -> str:
    """YAML that hub and libraries read; JSON values are YAML too, so that no name can break out of its line."""
    base = public_base(model)
    sources = model.config.data.sources if model.config is not None else []
    values: dict[str, Any] = {
        "license": license_name,
        "base_model": base if base is not None and is_hub_id(base) and "/" in base else None,
        "base_model_relation": ("adapter" if model.kind == "adapter" else "finetune") if base else None,
        "datasets": [one.name for one in sources if _of_the_hub(one.name)] or None,
        "library_name": "peft" if model.kind == "adapter" else "transformers",
        "pipeline_tag": PIPELINES.get(model.task),
        "tags": ["trainwiz", *(["lora"] if model.kind == "adapter" else [])],
    }
    if values["base_model"] is None:
        values["base_model_relation"] = None
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None]
    return "\n".join(["---", *lines, "---", ""])


def _of_the_hub(name: str) -> bool:
    return is_hub_id(name) and "/" in name and not Path(name).exists()


def public_base(model: FoundModel) -> str | None:
    """The base by a name that says nothing of this machine: its hub id, else the last part of its path."""
    if model.base_name is None or (model.config is not None and model.config.model.init != "pretrained"):
        return None
    name = model.base_name
    if is_hub_id(name) and not Path(name).exists():
        return name
    path = Path(name)
    # RUN/final_model says less than RUN.
    return path.parent.name if path.name == "final_model" and path.parent.name else path.name


def _license(model: FoundModel) -> str | None:
    """Of the base, from its README, the catalogue, or what the hub has said already."""
    spec: ModelSpec | None = None
    if model.config is not None:
        spec, _ = resolve_model(model.config.model)
    folder = model.base or (model.path if model.config is None else None)
    if folder is not None:
        spec = ModelSpec(
            name=model.name, architecture={}, task="causal-lm", license=spec.license if spec else None, path=folder
        )
    return read_model_facts(spec).license if spec is not None else None


def _about(model: FoundModel, license_name: str | None) -> Iterator[str]:
    base = public_base(model)
    kind = str(model.architecture.get("model_type") or tr(UNKNOWN))
    if model.kind == "adapter":
        yield tr("A LoRA adapter ({task}, {type}). It needs its base.", task=model.task, type=kind)
    else:
        yield tr("A whole model ({task}, {type}).", task=model.task, type=kind)
    yield ""
    scratch = model.config is not None and model.config.model.init != "pretrained"
    yield f"- {tr('Base')}: " + (tr("none, trained from scratch") if scratch else _line(base or tr(UNKNOWN)))
    yield f"- {tr('License of the base')}: " + (
        tr("none is needed")
        if scratch
        else _line(license_name)
        if license_name
        else tr("unknown; look it up before you publish this model")
    )
    yield f"- {tr('Chat template')}: " + (tr("yes, with the tokenizer") if model.has_template else tr("none"))


Rows = list[tuple[str, str]]


def _data(config: RunConfig, plan: dict[str, Any]) -> Rows:
    rows = [(tr("source"), _source(one.model_dump())) for one in config.data.sources]
    rows += [(tr("evaluated on"), _source(one.model_dump())) for one in config.data.validation_sources]
    data = object_in(plan.get("data"))
    for key, words in (
        ("rows", tr("rows that train")),
        ("validation_rows", tr("rows held out")),
        ("mean_length", tr("mean length")),
    ):
        value = number(data.get(key))
        if value is not None:
            rows.append(
                (
                    words,
                    f"{value:,.0f} {data.get('length_unit') or ''}".strip()
                    if key == "mean_length"
                    else f"{value:,.0f}",
                )
            )
    return rows


def _source(source: dict[str, Any]) -> str:
    name = str(source["name"])
    shown = name if _of_the_hub(name) else Path(name).name
    more = [str(source[key]) for key in ("subset", "split", "layout") if source.get(key)]
    return f"{shown} ({', '.join(more)})" if more else shown


def _training(config: RunConfig, plan: dict[str, Any], *, adapted: bool) -> Rows:
    batch, time = object_in(plan.get("batch")), object_in(plan.get("time"))
    rows: Rows = []
    if not adapted:
        rows.append((tr("method"), tr("full fine-tuning") if config.model.init == "pretrained" else tr("from scratch")))
    for key, words in (*(ADAPTERS if adapted else ()), *SETTINGS):
        value = config.value(key)
        if value is None or (key == "engine.base_precision" and value == "none"):
            continue
        rows.append((tr(words), ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    for section, key, words in (
        (batch, "effective_samples", tr("sequences of a step")),
        (time, "steps", tr("steps planned")),
        (time, "epochs", tr("epochs planned")),
    ):
        value = number(section.get(key))
        if value is not None:
            rows.append((words, f"{value:,.4g}" if key == "epochs" else f"{value:,.0f}"))
    return rows


def _results(model: FoundModel) -> Rows:
    assert model.run is not None
    outcome = read_state(model.run).outcome or read_json(model.run.file(OUTCOME_JSON)) or {}
    if not outcome:
        # A run that goes on, or was lost: the last that it wrote.
        outcome = last_metrics(model.run.metrics_jsonl)
    rows = [(tr("ended"), str(outcome.get("outcome") or tr("not ended"))), (tr("steps done"), str(outcome.get("step")))]
    for key, words in RESULTS.items():
        value = number(outcome.get(key))
        if value is not None:
            rows.append((tr(words), f"{value:.4g}"))
    return rows


def _hardware(model: FoundModel, plan: dict[str, Any]) -> Rows:
    assert model.run is not None
    state = read_state(model.run)
    machine = object_in(plan.get("machine"))
    engine = state.engine
    device = engine.get("device_name") or machine.get("cpu_model") or engine.get("device")
    world = engine.get("world_size")
    rows = [(tr("device"), f"{world or 1} × {device or tr(UNKNOWN)}")]
    if state.started_s is not None and state.ended_s is not None:
        lasted = sum((one.ended_s or one.started_s) - one.started_s for one in state.attempts)
        rows += [
            (tr("trained for"), _time(lasted)),
            (tr("ended on"), moment_words(state.ended_s, "%Y-%m-%d")),
        ]
    versions = object_in(object_in(machine.get("libraries")).get("versions"))
    known = [
        f"{name} {versions[name]}" for name in ("torch", "transformers", "peft", "bitsandbytes") if versions.get(name)
    ]
    return [*rows, (tr("libraries"), ", ".join(known) or tr(UNKNOWN))]


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def _line(text: str) -> str:
    """A text of somebody's as one line that Markdown does not read."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|" else letter for letter in plain_text(text))


def is_generated(text: str) -> bool:
    """A card that peft or transformers wrote: a form that nobody filled in."""
    return "[More Information Needed]" in text
