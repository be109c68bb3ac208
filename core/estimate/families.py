"""From a Hugging Face architecture config (a plain dict) to an Architecture, one reader for each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.classification import classifying
from trainwiz.core.estimate.config_keys import MissingKeyError
from trainwiz.core.estimate.decoder_families import read_decoder
from trainwiz.core.estimate.decoder_traits import FAMILIES
from trainwiz.core.estimate.encoder_families import BERT_LIKE, read_bert, read_modernbert
from trainwiz.core.estimate.generic_family import read_generic
from trainwiz.core.estimate.gpt_families import read_falcon, read_gpt2, read_gpt_neox
from trainwiz.core.estimate.remote_families import read_chatglm, read_qwen
from trainwiz.core.estimate.seq2seq_families import BART_LIKE, read_bart_like, read_t5
from trainwiz.core.language import tr

Config = Mapping[str, Any]


def read_architecture(config: Config, task: str = "") -> tuple[Architecture | None, str]:
    """(architecture, "") or (None, the reason in one sentence). Never raises for a bad config.

    A model type without a reader of its own is read by common keys: `approximate` is set then. With
    `task` "sequence-classification" the head is a classifier.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None, tr("the model config has no model_type")
    reader = _READERS.get(model_type, read_generic)
    try:
        architecture = reader(config)
        if task == "sequence-classification":
            architecture = classifying(architecture, config)
    except MissingKeyError as missing:
        if model_type not in _READERS:
            return None, tr(
                "the model type {model_type} is not known to the estimator, and its config has no {missing}",
                model_type=repr(model_type),
                missing=missing,
            )
        return None, tr("the {model_type} config has no {missing}", model_type=model_type, missing=missing)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError):
        return None, tr("the {model_type} config has values that do not go together", model_type=model_type)
    sizes = (size for b in architecture.blocks for size in (b.layers, b.heads, b.kv_heads, b.head_dim, b.ffn))
    if min(architecture.vocabulary, architecture.hidden, *sizes) < 1:
        return None, tr("the {model_type} config has a size below 1", model_type=model_type)
    return architecture, ""


_READERS: dict[str, Callable[[Config], Architecture]] = {
    **dict.fromkeys(BERT_LIKE, read_bert),
    "modernbert": read_modernbert,
    "gpt2": read_gpt2,
    "gpt_bigcode": read_gpt2,
    "gpt_neox": read_gpt_neox,
    "falcon": read_falcon,
    **dict.fromkeys(FAMILIES, read_decoder),
    **dict.fromkeys(("t5", "mt5", "umt5"), read_t5),
    **dict.fromkeys(BART_LIKE, read_bart_like),
    "qwen": read_qwen,
    "chatglm": read_chatglm,
}
