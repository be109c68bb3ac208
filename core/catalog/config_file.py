"""From a Hugging Face config.json to a ModelSpec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config.values import Task
from trainwiz.core.errors import os_reason
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.findings import Finding
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr
from trainwiz.core.small_file import read_small

Source = Literal["hub", "folder", "config"]
Answer = tuple[ModelSpec | None, tuple[Finding, ...]]

_TASKS: tuple[tuple[str, Task], ...] = (
    ("ForMaskedLM", "masked-lm"),
    ("ForPreTraining", "masked-lm"),
    ("LMHeadModel", "causal-lm"),
    ("ForCausalLM", "causal-lm"),
    ("ForConditionalGeneration", "seq2seq"),
    ("ForSeq2SeqLM", "seq2seq"),
    ("MTModel", "seq2seq"),
    ("ForSequenceClassification", "sequence-classification"),
)
"""Class name ending -> task, most specific first."""

_FAMILIES: Mapping[str, Task] = {
    "esm": "masked-lm",
    "bert": "masked-lm",
    "roberta": "masked-lm",
    "distilbert": "masked-lm",
    "gpt2": "causal-lm",
    "llama": "causal-lm",
    "mistral": "causal-lm",
    "qwen2": "causal-lm",
}
"""What a family is pretrained on, for the config of a headless or fine-tuned model."""

SMALLEST: Mapping[str, str] = {
    "esm": "esm2-tiny",
    "gpt2": "gpt2-tiny",
    "llama": "llama-tiny",
    "m2m_100": "nllb-tiny",
    "marian": "opus-mt-tiny",
    "mistral": "llama-tiny",
    "qwen2": "qwen2-tiny",
    "t5": "t5-chat-tiny",
}
"""Model type -> the catalogue's model that --smoke trains in place of one of that type."""


def read_config(path: Path, name: str, source: Source) -> Answer:
    """The model that the file describes, or a finding that says what is wrong with the file."""
    try:
        document = parse_json(read_small(path).decode("utf-8"))
    except FileNotFoundError:
        return None, (model_error("missing_model", _missing(path, source)),)
    except OSError as error:
        return None, (
            model_error("missing_model", tr("{path} cannot be read: {reason}.", path=path, reason=os_reason(error))),
        )
    except UnicodeDecodeError:
        return None, (model_error("broken_model_config", tr("{path} is not UTF-8 text.", path=path)),)
    except ValueError as error:
        at = str(error)
        if isinstance(error, json.JSONDecodeError):
            at = tr("line {line}, column {column}", line=error.lineno, column=error.colno)
        return None, (
            model_error(
                "broken_model_config", tr("{path} is not valid JSON ({at}); it may be cut off.", path=path, at=at)
            ),
        )
    if not isinstance(document, dict):
        return None, (
            model_error("broken_model_config", tr("{path} holds no JSON object with an architecture.", path=path)),
        )
    return from_architecture(document, name, source, path)


def _missing(path: Path, source: Source) -> str:
    """What a run leaves behind and what a model is are close enough to be mixed up."""
    if source == "config":
        return tr("{path} does not exist, so its architecture is not known.", path=path)
    folder = path.parent
    if (folder / "adapter_config.json").is_file():
        return tr(
            "{folder} holds adapters and not the model that they sit on; merge them into it (a run with "
            "peft.merge: true does so at its end) and give that folder.",
            folder=folder,
        )
    if (folder / "final_model" / path.name).is_file():
        return tr("{folder} is the folder of a run; its model is {model}.", folder=folder, model=folder / "final_model")
    return tr("{folder} has no config.json, so its architecture is not known.", folder=folder)


def from_architecture(document: dict[str, Any], name: str, source: Source, path: Path | None) -> Answer:
    """The model of an architecture config; `path` is the file that it was read from."""
    if not isinstance(document.get("model_type"), str):
        message = tr("{path} names no `model_type`, so it is not known which model it describes.", path=path or name)
        return None, (model_error("broken_model_config", message),)
    task = _task(document)
    if task is None:
        message = tr(
            "{path} describes {classes}, which trainwiz cannot train: it trains masked, causal and "
            "sequence-to-sequence language models.",
            path=path or name,
            classes=_classes(document) or document["model_type"],
        )
        return None, (model_error("unsupported_model", message),)
    folder = path.parent if path and source != "config" else None
    spec = ModelSpec(
        name=name,
        architecture=document,
        task=task,
        tokenizer="esm" if document["model_type"] == "esm" and document.get("vocab_size") == 33 else None,
        smallest_sibling=SMALLEST.get(document["model_type"]),
        source=source,
        path=folder,
        has_weights=folder is not None and has_safetensors(folder),
    )
    return spec, ()


def has_safetensors(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json"))


def model_error(code: str, message: str) -> Finding:
    return Finding(code, "error", "model.name", message)


def _classes(document: dict[str, Any]) -> str:
    listed = document.get("architectures")
    return ", ".join(str(name) for name in listed) if isinstance(listed, list) else ""


def _task(document: dict[str, Any]) -> Task | None:
    classes = _classes(document).split(", ")
    for ending, task in _TASKS:
        if any(name.endswith(ending) for name in classes):
            return task
    if document.get("is_encoder_decoder"):
        return "seq2seq"
    family = _FAMILIES.get(str(document["model_type"]))
    headless = all("For" not in name for name in classes)
    return family or (_by_blocks(document) if headless else None)


def _by_blocks(document: dict[str, Any]) -> Task | None:
    """Of a config that names no task: causal blocks write on, others fill in. None where it tells no blocks."""
    architecture, _ = read_architecture(document)
    if architecture is None:
        return None
    tasks: dict[str, Task] = {"decoder": "causal-lm", "encoder": "masked-lm", "encoder-decoder": "seq2seq"}
    return tasks[architecture.kind]
