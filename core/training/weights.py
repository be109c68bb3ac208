"""The weights of a model, loaded, and adapters on them."""

from __future__ import annotations

import pickle
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from accelerate import PartialState
from peft import LoraConfig, PeftConfig, PeftModel, TaskType, get_peft_model, set_peft_model_state_dict
from peft.utils import load_peft_weights
from trainwiz.core.catalog.hub import is_offline
from trainwiz.core.catalog.model_config import TEXT_CLASSES, quantized_as
from trainwiz.core.catalog.models import quantized_message, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.data.text_store import ESM_VOCABULARY, MASK, PAD
from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.estimate.architecture import ALL_LINEAR, lora_targets
from trainwiz.core.estimate.families import is_guessed, read_architecture
from trainwiz.core.files import at_home
from trainwiz.core.language import tr, trn
from trainwiz.core.run.folder import PARTIAL, RunFolder
from trainwiz.core.training.engine import gathered
from trainwiz.core.training.process import first_line, rank_of_this_process
from trainwiz.core.training.quantized import is_quantized, norms_in_single, quantization
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    EsmTokenizer,
    PreTrainedModel,
)
from transformers.pytorch_utils import Conv1D
from transformers.utils.quantization_config import Mxfp4Config

# What is special about ESM-2: its alphabet, which is built in and must be the model's own.


def esm_tokenizer() -> EsmTokenizer:
    """ESM-2's tokenizer with the alphabet that is built in; saved beside the weights."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        vocabulary.write_text("\n".join(ESM_VOCABULARY), encoding="utf-8")
        return EsmTokenizer(str(vocabulary))  # type: ignore[no-untyped-call]


def check_esm(kind: str, values: Mapping[str, Any]) -> None:
    """Raises UsageError for a model that is no ESM-2 or counts its letters otherwise."""
    if kind != "esm":
        raise usage_error(
            "model_not_supported",
            "model.name",
            tr(
                "masked-LM training supports ESM-2 models; this one is of type {kind}. Choose an ESM-2 model "
                "(--model).",
                kind=repr(kind),
            ),
        )
    expected = {"vocab_size": len(ESM_VOCABULARY), "pad_token_id": PAD, "mask_token_id": MASK}
    wrong = [
        tr("{key} is {value}, not {wanted}", key=key, value=values.get(key), wanted=wanted)
        for key, wanted in expected.items()
        if values.get(key) != wanted
    ]
    if wrong:
        message = tr("the model does not use the ESM-2 alphabet: {problems}.", problems="; ".join(wrong))
        raise usage_error("alphabet_mismatch", "model.architecture", message)


# Weights that exist: from a folder, the hub, or a checkpoint of this run.

NEW_HEAD = re.compile(r"(^|\.)(lm_head|cls|classifier|score|contact_head|final_logits_bias)(\.|$)")
"""What a task may add to a published body, by the names of transformers."""
NEW_CLASSES = re.compile(r"(^|\.)pooler\.|^(pre_classifier|classification_head|head)\.")
"""Likewise of classes. BERT's pooler is published; a masked language model that was trained on has none."""

MODEL_CLASSES: dict[str, Any] = {
    "masked-lm": AutoModelForMaskedLM,
    "causal-lm": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
    "sequence-classification": AutoModelForSequenceClassification,
    "token-classification": AutoModelForTokenClassification,
}


def weights_dtype(config: RunConfig) -> torch.dtype:
    """float32 where weights train, for mixed precision keeps a float32 copy to update; the frozen
    base of adapters is held in the type that it computes in."""
    precision = config.engine.precision
    if precision == "bf16-true" or (precision == "bf16" and config.peft.method != "none"):
        return torch.bfloat16
    return torch.float16 if precision == "fp16" and config.peft.method != "none" else torch.float32


def loading_options(config: RunConfig) -> dict[str, Any]:
    """dtype and attention, for `from_pretrained` and `from_config` alike."""
    return {"dtype": weights_dtype(config), "attn_implementation": config.engine.attention or "sdpa"}


def name_of_weights(config: RunConfig, folder: Path) -> str:
    """The folder or hub id of the pretrained weights; a relative path is from the run `folder`. Raises UsageError."""
    path = (folder / at_home(Path(config.model.name))).resolve()
    if path.exists():
        return str(path if path.is_dir() else path.parent)
    spec, findings = resolve_model(config.model)
    if spec is None:
        raise UsageError(findings)
    return str(spec.path) if spec.path is not None and spec.path.is_dir() else spec.hub_id or spec.name


def load_weights(
    name: str,
    config: RunConfig,
    what: str,
    *,
    whole: bool = False,
    quantized: bool = False,
    head: Mapping[str, Any] = MappingProxyType({}),
) -> PreTrainedModel:
    """The model of the task with the weights of `name` (a folder or hub id).

    `whole` refuses weights that do not fill every tensor of the model. `quantized` holds them as engine.base_precision
    says, on the device that trains. `head`: keys of the model's config that the data decide. Raises UsageError with `what`
    it is.
    """
    try:
        architecture, source = _architecture(name, config, head, new_head=config.model.new_head and not whole)
        model, report = MODEL_CLASSES[config.task].from_pretrained(
            name,
            config=architecture,
            **source,
            # A .bin is read by torch's restricted unpickler: tensors and nothing that could run.
            weights_only=True,
            output_loading_info=True,
            **loading_options(config),
            **(quantization(config) if quantized else {}),
            **_original_weights(name, architecture, quantized=quantized),
        )
    except UsageError:
        raise
    except (OSError, ValueError, RuntimeError, ImportError, pickle.UnpicklingError) as error:
        raise _cannot_load(name, what, error) from error
    if quantized:
        norms_in_single(model, config)
    missing = sorted(report["missing_keys"])
    of_head = [key for key in missing if NEW_HEAD.search(key) or (head and NEW_CLASSES.search(key))]
    # A language model whose head nobody trained says nothing, and one that adapters leave frozen never will.
    without_head = not head and (config.task == "causal-lm" or config.peft.method != "none")
    if missing and (whole or without_head or len(of_head) < len(missing)):
        # Published weights that fill a part of the model alone would be a pretraining of the rest, unasked for.
        raise usage_error(
            "broken_checkpoint" if whole else "weights_of_another_model",
            str(name) if whole else "model.name",
            trn(
                "{what} {name} is missing {n} tensor, for example {example}.",
                "{what} {name} is missing {n} tensors, for example {example}.",
                len(missing),
                what=what,
                name=name,
                example=next(key for key in missing if whole or without_head or key not in of_head),
            ),
        )
    if missing:
        print(
            f"{len(missing)} tensors missing in {name} are initialized from scratch, for example {missing[0]}",
            flush=True,
        )
    assert isinstance(model, PreTrainedModel)
    return model


def _original_weights(name: str, architecture: Any, *, quantized: bool) -> dict[str, Any]:
    """What makes 16-bit weights of published ones in 4 bits, where transformers can (gpt-oss). Raises UsageError where not."""
    stored = quantized_as(architecture.to_dict())
    if stored is None:
        return {}
    if stored != "mxfp4" or quantized:
        raise usage_error("quantized_weights", "model.name", quantized_message(name, stored))
    return {"quantization_config": Mxfp4Config(dequantize=True)}


def _architecture(
    name: str, config: RunConfig, head: Mapping[str, Any], *, new_head: bool
) -> tuple[Any, dict[str, Any]]:
    """The config of the model, and where and under which names its weights are looked for."""
    # Left out, trust_remote_code makes transformers ask a question that nobody can answer here.
    source: dict[str, Any] = {"local_files_only": is_offline(), "trust_remote_code": config.model.trust_remote_code}
    architecture = AutoConfig.from_pretrained(name, **source, **config.model.architecture_overrides)
    if config.row_kind == "proteins":
        check_esm(architecture.model_type, architecture.to_dict())
    text = architecture.get_text_config()
    names = dict[str, str]()
    if text is not architecture and text.model_type in TEXT_CLASSES:
        # Of a model that also sees or hears: its text part alone is planned and trained.
        text.update(config.model.architecture_overrides)
        architecture, names = text, {r"^(model\.)?language_model\.(model\.)?": "model."}
    architecture.update(head)
    if head and new_head:
        # Under other names the weights of the old head are passed over.
        names[r"^(classifier|score)\."] = "left_out."
    return architecture, {**source, "key_mapping": names} if names else source


def _cannot_load(name: str, what: str, error: Exception) -> UsageError:
    if isinstance(error, pickle.UnpicklingError):
        message = tr(
            "{what} {name} is not loaded: its .bin weights contain more than tensors, which could run code; convert "
            "them to safetensors.",
            what=what,
            name=name,
        )
        return usage_error("unsafe_weights", "model.name", message)
    message = tr("{what} {name} cannot be loaded: {reason}.", what=what, name=name, reason=first_line(error))
    return usage_error("missing_model", "model.name", message)


# LoRA adapters by peft: put onto a frozen base, taken up again from a checkpoint, merged at the end.

TASK_TYPES = {
    "causal-lm": TaskType.CAUSAL_LM,
    "seq2seq": TaskType.SEQ_2_SEQ_LM,
    "sequence-classification": TaskType.SEQ_CLS,
    "token-classification": TaskType.TOKEN_CLS,
}


def base_of_run(
    config: RunConfig,
    checkpoint: Path | None,
    folder: Path,
    build: Callable[[], PreTrainedModel],
    head: Mapping[str, Any] = MappingProxyType({}),
) -> PreTrainedModel:
    """The base that the adapters sit on: pretrained weights, or RUN/base_model.

    A base from scratch exists nowhere else, so the first process saves it there before the first
    step, in the type that it computes in. A resumed run loads it back; so does the first one where it is held in
    fewer bits, so that both quantise the same numbers. Raises UsageError.
    """
    saved = RunFolder(folder.resolve()).base_model
    if config.model.init == "pretrained":
        base = build()
        name = str(base.name_or_path)
        spec, _ = resolve_model(config.model)
        if spec is not None and spec.hub_id is not None and str(spec.path) == name:
            # An adapter remembers its base by the hub id rather than by its place in this machine's cache.
            name = spec.hub_id
        base.config._name_or_path = base.name_or_path = name
        return base
    if checkpoint is not None:
        if not (saved / "config.json").is_file():
            raise usage_error(
                "missing_base_model",
                str(saved),
                tr(
                    "{path} is missing: the adapter of {name} needs that base model, which was initialized from "
                    "scratch.",
                    path=saved,
                    name=checkpoint.name,
                ),
            )
    else:
        base = build()
        with gathered(base):
            if rank_of_this_process() == 0:
                base.save_pretrained(str(partial_of(saved)))
                put_in_place(partial_of(saved), saved)
        PartialState().wait_for_everyone()
    if checkpoint is not None or is_quantized(config):
        what = tr("the base model of the adapter")
        base = load_weights(str(saved), config, what, whole=True, quantized=is_quantized(config), head=head)
    base.config._name_or_path = base.name_or_path = str(saved)
    return base


def with_adapters(base: PreTrainedModel, config: RunConfig, checkpoint: Path | None) -> PreTrainedModel:
    """`base`, frozen, with trainable adapters in float32 (Hu et al. 2021): new ones, or those of the checkpoint,
    which is a folder of adapters as peft saves them."""
    model: Any
    if checkpoint is None:
        model = in_single(get_peft_model(base, lora_config(base, config)), config)
    else:
        try:
            adapters = PeftConfig.from_pretrained(str(checkpoint))
            adapters.inference_mode = False
            # In fp32 before they are filled: peft makes what is trained whole as the base is held, which would round it.
            model = in_single(get_peft_model(base, adapters), config)
            set_peft_model_state_dict(model, load_peft_weights(str(checkpoint), device="cpu"))
        except (OSError, ValueError, RuntimeError) as error:
            message = tr("The adapter of {path} cannot be loaded: {reason}.", path=checkpoint, reason=first_line(error))
            raise usage_error("broken_checkpoint", str(checkpoint), message) from error
    # On "auto" each save asks the hub whether the vocabulary was changed.
    object.__setattr__(model, "save_pretrained", partial(model.save_pretrained, save_embedding_layers=False))
    return model  # type: ignore[no-any-return]


def in_single(model: Any, config: RunConfig) -> Any:
    """`model` with all that trains in fp32, under mixed precision: GradScaler refuses gradients in fp16."""
    if config.engine.precision != "bf16-true":
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    return model


def lora_config(base: PreTrainedModel, config: RunConfig) -> LoraConfig:
    """peft's settings. Raises UsageError for a target that the model does not have, with the names that it has."""
    peft = config.peft
    targets = _targets(base, peft.targets)
    linear = {name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)}
    unknown = [target for target in peft.targets if not any(f".{name}".endswith(f".{target}") for name in linear)]
    if unknown and targets == peft.targets:
        message = tr(
            "The model has no module {unknown}; modules that can get an adapter are {names} (peft.targets).",
            unknown=", ".join(map(repr, unknown)),
            names=", ".join(sorted({name.rsplit(".", 1)[-1] for name in linear})),
        )
        raise usage_error("unknown_lora_target", "peft.targets", message)
    return LoraConfig(
        task_type=TASK_TYPES.get(config.task),
        r=peft.rank,
        lora_alpha=peft.alpha if peft.alpha is not None else 2 * peft.rank,  # type: ignore[arg-type]
        lora_dropout=peft.dropout,
        target_modules=targets,
        use_rslora=peft.rslora,
        use_dora=peft.dora,
        modules_to_save=[*peft.modules_to_save, *_heads(base, config)] or None,
        # One copy where the head is the token table.
        ensure_weight_tying=bool(peft.modules_to_save) and bool(getattr(base.config, "tie_word_embeddings", False)),
        fan_in_fan_out=any(isinstance(base.get_submodule(name), Conv1D) for name in linear),
        bias="none",
    )


def _heads(base: Any, config: RunConfig) -> list[str]:
    """What stands on the body of a model that classifies, which is new: trained whole, for adapters on it would adapt
    random weights."""
    if config.task not in CLASSIFIES:
        return []
    children = base.named_children()
    # peft adds these two automatically.
    body = (base.base_model_prefix, "classifier", "score")
    heads = [name for name, part in children if name not in body and list(part.parameters())]
    return [*heads, "pooler"] if any(name.endswith(".pooler") for name, _ in base.named_modules()) else heads


def _targets(base: PreTrainedModel, named: list[str]) -> list[str] | str:
    """The same names that the plan counts; of an architecture that no plan knows, what peft takes for linear layers."""
    if named and tuple(named) != ALL_LINEAR:
        return named
    architecture, _ = read_architecture(base.config.to_dict())
    if architecture is None or is_guessed(architecture.model_type):
        return "all-linear"
    return list(lora_targets(architecture))


def merged(model: PeftModel) -> PreTrainedModel:
    """The base with the adapters added to its weights, in place: W + alpha / rank x B A, rounded once to W's type."""
    base = model.merge_and_unload()
    assert isinstance(base, PreTrainedModel)
    return base


def partial_of(place: Path) -> Path:
    return place.with_name(f"{place.name}{PARTIAL}")


def put_in_place(partial_copy: Path, place: Path) -> None:
    """Complete or not there. What stands there moves aside to `<name>.old-1`, or the next number that nothing has."""
    if place.exists():
        names = (place.with_name(f"{place.name}.old-{number}") for number in count(1))
        place.rename(next(name for name in names if not name.exists()))
    partial_copy.rename(place)
