"""ModelSpec: one model as its config.json; what its type can do, and which modules LoRA adapts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.config.values import Task
from trainwiz.core.errors import Finding, os_reason
from trainwiz.core.estimate.architecture import ALL_LINEAR, Architecture
from trainwiz.core.estimate.families import is_guessed, read_architecture
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json


@dataclass(frozen=True, slots=True)
class ModelSpec:
    name: str
    architecture: dict[str, Any]
    """The Hugging Face config.json as a dict (has "model_type" and "architectures")."""
    task: Task
    description: str = ""
    """One line for a list; empty for a model that is not in the catalogue."""
    hub_id: str | None = None
    instruct: bool = False
    """Tuned to answer in chats, as the catalogue says; of other models the name on the hub tells."""
    gated: bool = False
    """The hub hands its files out only to accounts that accepted a licence."""
    license: str | None = None
    """The name of its licence as its page on the hub has it; None where the catalogue does not know."""
    tokenizer: str | None = None
    """ "esm" for the built-in protein alphabet, else a hub id or folder; None: comes with `path` or is trained on the data."""
    smallest_sibling: str | None = None
    """Catalogue name of the model that --smoke uses."""
    source: Literal["catalogue", "hub", "folder", "config"] = "catalogue"
    path: Path | None = None
    has_weights: bool = False
    """Weights are here and can be loaded without a network."""


ADAPTER_FILE = "adapter_config.json"
"""Of peft, beside the weights of adapters."""
TEXT_CLASSES: Mapping[str, str] = {
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
}
"""Type of the text part of a model that also sees or hears -> its class: that part alone is planned and trained."""


def text_part(document: dict[str, Any]) -> dict[str, Any]:
    """The config of the text part where trainwiz trains that alone; else `document` itself."""
    inner = document.get("text_config")
    kind = f"{document['model_type']}_text"
    if kind not in TEXT_CLASSES or not isinstance(inner, dict):
        return document
    return {**inner, "model_type": kind, "architectures": [TEXT_CLASSES[kind]]}


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
    ("ForTokenClassification", "token-classification"),
)
"""Class name ending -> task, most specific first."""

_QWEN_KIN = ("qwen2", "qwen3", "qwen3_5_text")
_LLAMA_KIN = ("llama", "mistral", "smollm3", "phi3", "gemma3_text", "gemma4_text", "gpt_oss")

SMALLEST: Mapping[str, str] = {
    "bert": "bert-tiny",
    "modernbert": "bert-tiny",
    "esm": "esm2-tiny",
    "gpt2": "gpt2-tiny",
    "m2m_100": "nllb-tiny",
    "marian": "opus-mt-tiny",
    "t5": "t5-chat-tiny",
    **dict.fromkeys(_QWEN_KIN, "qwen2-tiny"),
    **dict.fromkeys(_LLAMA_KIN, "llama-tiny"),
}
"""Model type -> the catalogue's model that --smoke trains in place of one of that type."""


def read_config(path: Path, name: str, source: Source) -> Answer:
    """The model that the file describes, or a finding that says what is wrong with the file."""
    code = "broken_model_config"
    if path.suffix == ".gguf" or (not path.exists() and any(path.parent.glob("*.gguf"))):
        message = tr(
            "{path} is for llama.cpp (GGUF) and cannot be trained; specify the original model.",
            path=path if path.suffix == ".gguf" else path.parent,
        )
        return None, (model_error("unsupported_model", message),)
    try:
        document = parse_json(read_small(path).decode("utf-8"))
    except FileNotFoundError:
        code, message = "missing_model", _missing(path, source)
    except OSError as error:
        code, message = "missing_model", tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
    except UnicodeDecodeError:
        message = tr("{path} is not UTF-8 text.", path=path)
    except ValueError as error:
        at = str(error)
        if isinstance(error, json.JSONDecodeError):
            at = tr("line {line}, column {column}", line=error.lineno, column=error.colno)
        message = tr("{path} is not valid JSON ({at}); it may be truncated.", path=path, at=at)
    else:
        if isinstance(document, dict):
            return from_architecture(document, name, source, path)
        message = tr("{path} does not contain a JSON object with an architecture.", path=path)
    return None, (model_error(code, message),)


def _missing(path: Path, source: Source) -> str:
    """What a run leaves behind and what a model is are close enough to be mixed up."""
    if source == "config":
        return tr("{path} does not exist, so its architecture is unknown.", path=path)
    folder = path.parent
    if (folder / ADAPTER_FILE).is_file():
        return tr(
            "{folder} contains an adapter without its base model. Merge the adapter into the base model (a run with "
            "peft.merge: true does so at its end) and specify that folder.",
            folder=folder,
        )
    if (folder / "final_model" / path.name).is_file():
        return tr("{folder} is a run folder; its model is {model}.", folder=folder, model=folder / "final_model")
    return tr("{folder} has no config.json, so its architecture is unknown.", folder=folder)


def from_architecture(document: dict[str, Any], name: str, source: Source, path: Path | None) -> Answer:
    """The model of an architecture config; `path` is the file that it was read from."""
    if not isinstance(document.get("model_type"), str):
        message = tr("{path} has no `model_type`, so the model it describes is unknown.", path=path or name)
        return None, (model_error("broken_model_config", message),)
    document = text_part(document)
    task = _task(document)
    if task is None:
        message = tr(
            "{path} describes {classes}, which trainwiz cannot train. It trains masked, causal and "
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
        has_weights=folder is not None and holds_weights(folder),
    )
    return spec, ()


def holds_weights(folder: Path) -> bool:
    """Whole safetensors, or torch's own files: its restricted unpickler reads them and runs no code."""
    names = ("model.safetensors", INDEX)
    is_whole = any((folder / name).is_file() for name in names) and not missing_shards(folder)
    return is_whole or any(folder.glob("pytorch_model*.bin"))


INDEX = "model.safetensors.index.json"


def missing_shards(folder: Path) -> list[str]:
    """Weight files that the index of the folder names and that are not here: a download that was cut off."""
    if (folder / "model.safetensors").is_file():
        return []
    try:
        listed = parse_json(read_small(folder / INDEX))["weight_map"].values()
        return sorted({name for name in listed if not (folder / name).is_file()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def quantized_as(architecture: Mapping[str, Any]) -> str | None:
    """How the published weights of a config.json are quantized ("gptq", "awq", "bitsandbytes", ...); None: they are not."""
    settings = architecture.get("quantization_config") or architecture.get("quantization")
    if settings is None:
        return None
    return str(settings.get("quant_method") or "MLX") if isinstance(settings, dict) else str(settings)


def model_error(code: str, message: str) -> Finding:
    return Finding(code, "error", "model.name", message)


def _classes(document: dict[str, Any]) -> str:
    listed = document.get("architectures")
    return ", ".join(str(name) for name in listed) if isinstance(listed, list) else ""


SEES_OR_HEARS = ("vision_config", "audio_config", "num_mel_bins")
"""Keys of models whose rows hold pictures or sounds."""


def _task(document: dict[str, Any]) -> Task | None:
    if any(document.get(key) for key in SEES_OR_HEARS):
        return None
    classes = _classes(document).split(", ")
    for ending, task in _TASKS:
        if any(name.endswith(ending) for name in classes):
            return task
    if document.get("is_encoder_decoder"):
        return "seq2seq"
    headless = all("For" not in name for name in classes)
    return _by_blocks(document) if headless else None


def _by_blocks(document: dict[str, Any]) -> Task | None:
    """Of a config that names no task: causal blocks write on, others fill in. None where it tells no blocks."""
    architecture, _ = read_architecture(document)
    if architecture is None:
        return None
    tasks: dict[str, Task] = {"decoder": "causal-lm", "encoder": "masked-lm", "encoder-decoder": "seq2seq"}
    return tasks[architecture.kind]


# What transformers cannot do for a type of model: attention kernels and checkpointing.
#
# Read from the classes of transformers 5.23 for the tasks of this product; a test compares it with the installed ones.
# A type that stands nowhere here can do all of it, or is not known to transformers.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NO_SDPA = _words("""
    big_bird bigbird_pegasus bloom canine codegen convbert cpmant deberta deberta-v2 deepseek_v4 falcon_mamba
    flaubert flint fnet fsmt funnel gemma2 git got_ocr2 gpt_neo gpt_neox_japanese gpt_oss gptj granite_swa
    granitemoe_swa hy_v4 ibert inkling2_text layoutlmv2 layoutlmv3 led lilt longformer longt5 luke mamba mamba2
    markuplm megatron-bert mimo_v2_flash mpnet mpt mra mvp nllb-moe nystromformer openai-gpt pegasus_x perceiver
    prophetnet reformer rembert roformer rwkv squeezebert switch_transformers t5gemma tapas trocr vaultgemma xglm
    xlm xlnet xlstm yoso
""")
"""No class of theirs says `_supports_sdpa`: asked for it, transformers refuses to build the model."""
NO_FLASH = _words("""
    axk2 big_bird bigbird_pegasus bloom blt canine codegen convbert cpmant deberta deberta-v2 deepseek_v32
    deepseek_v4 doge dots3_note dots3_note_text falcon_mamba flaubert flint fnet fsmt funnel git glm_moe_dsa
    got_ocr2 gpt_neox_japanese gpt_oss granite_speech granite_speech_plus granite_swa granitemoe_swa hy_v4 ibert
    inkling2_text inkling_text layoutlm layoutlmv2 layoutlmv3 led lilt llama4 llama4_text longformer longt5 luke
    mamba mamba2 markuplm megatron-bert mimo_v2_flash minimax_m3_vl_text mllama mpnet mpt mra mt5 mvp nllb-moe
    nystromformer openai-gpt perceiver prophetnet qwen4_exp qwen4_exp_text reformer rembert roformer rwkv
    seamless_m4t seamless_m4t_v2 squeezebert switch_transformers t5 t5gemma2 tapas trocr umt5 xglm xlm xlnet xlstm
    yoso
""")
"""No class of theirs says `_supports_flash_attn`, or only with kernels other than flash-attn's (`_compatible_flash_implementations`)."""
NO_CHECKPOINTING = _words("""
    albert cpmant ctrl flaubert fsmt funnel gpt_neox_japanese granite_speech granite_speech_plus ibert jetmoe
    layoutlmv2 layoutlmv3 markuplm mpnet openai-gpt perceiver reformer squeezebert xlm xlnet
""")
"""No class of theirs says `supports_gradient_checkpointing`."""

TRIED = _words("""
    apertus arcee cohere ernie4_5 exaone4 gemma gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox granite helium
    llama ministral mistral olmo olmo2 olmo3 persimmon phi phi3 qwen2 qwen3 seed_oss smollm3 starcoder2
""")
"""Types of decoders whose losses in slices gave the numbers of whole logits, and whose packed rows gave the logits and gradients of the same rows apart, with eager attention, sdpa and
by the ends of rows (transformers 5.23, tests go through them). Others make their masks without positions (opt,
biogpt), carry a state from row to row (mamba), or round a row by what its neighbours choose (mixtures of experts)."""

LIGER = _words("""
    exaone4 gemma gemma2 gemma3_text gemma4_text glm4 gpt_oss granite llama ministral mistral mixtral nemotron olmo2 olmo3
    phi3 qwen2 qwen3 qwen3_5_text qwen3_moe qwen3_next smollm3
""")
"""Types whose norms, rotary positions and gated layers Liger replaces (liger_kernel 0.8.5, MODEL_TYPE_TO_APPLY_LIGER_FN)."""


def has_attention(model_type: str | None, attention: str) -> bool:
    without = {"sdpa": NO_SDPA, "flash_attention_2": NO_FLASH}.get(attention, frozenset())
    return model_type not in without


def has_checkpointing(model_type: str | None) -> bool:
    return model_type not in NO_CHECKPOINTING


BESIDE_THE_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "bert": ("word_embeddings", "position_embeddings", "token_type_embeddings", "transform.dense", "decoder"),
    "esm": ("word_embeddings", "lm_head.dense", "lm_head.decoder", "decoder"),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("wte", "wpe", "lm_head")),
    "gpt_neox": ("embed_in", "embed_out"),
    **dict.fromkeys((*_LLAMA_KIN, *_QWEN_KIN), ("embed_tokens", "lm_head")),
    **dict.fromkeys(("m2m_100", "marian"), ("shared", "embed_tokens", "lm_head")),
    "t5": ("shared", "embed_tokens", "relative_attention_bias", "lm_head"),
}
"""Model type -> embeddings and head: adapters on them are rare, and possible."""


def known_targets(architecture: Architecture | Mapping[str, Any]) -> tuple[str, ...]:
    """Module names of the blocks that LoRA can adapt, in the model's order; () for a family that is not known."""
    known = _read(architecture)
    return () if known is None else known.linear_names()


def unknown_targets(architecture: Architecture | Mapping[str, Any], targets: Sequence[str]) -> tuple[str, ...]:
    """Those of `targets` that name no module of the model; () where the family is not known.

    A target names a module by the end of its path, as peft reads it: "q_proj", "self_attn.q_proj" and
    "model.layers.0.self_attn.q_proj" all do. peft adapts what it finds and says nothing of the rest.
    """
    known = _read(architecture)
    if known is None or tuple(targets) == ALL_LINEAR:
        return ()
    names = (*known.linear_names(), *BESIDE_THE_BLOCKS.get(known.model_type, ()))
    return tuple(target for target in targets if not any(_same(target, name) for name in names))


def _read(architecture: Architecture | Mapping[str, Any]) -> Architecture | None:
    """None where the names of its modules are not known."""
    known = architecture if isinstance(architecture, Architecture) else read_architecture(architecture)[0]
    return None if known is None or is_guessed(known.model_type) else known


def _same(target: str, name: str) -> bool:
    return target == name or name.endswith(f".{target}") or target.endswith(f".{name}")
