"""The modes of the guides: smoke, dev run, overfit, benchmark. Each is a set of values on top of the same config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.run import RunConfig
from trainwiz.core.language import mark, tr

SMOKE_STEPS = 8
SMOKE_LENGTH = 64
SMOKE_LEARNING_RATE = 3e-3
"""Of a tiny model from scratch, and of adapters on one: the loss falls in a few steps. The rate of a profile is made
for its own model; 2e-5 of a fine-tuning would move nothing in eight steps. At 1e-2 adapters of rank 320 jump."""

NO_TARGET = dict.fromkeys(("batch.target_tokens", "batch.target_samples", "batch.target_real_tokens"))
DEV_STEPS = 5
DEV_GENERATION_ROWS = 16

OVERFIT_STEPS = 400
OVERFIT_MICRO_BATCH = 8
"""Few sequences are known by heart sooner: ten batches of 8 real proteins fell below 1.0 in 300 steps, of 32 did not."""

BENCHMARK_STEPS = 20
BENCHMARK_WARM_STEPS = 2
"""Before the measured ones: the first fills caches and picks kernels, the second has the optimizer's states."""

LAYER_KEYS: tuple[str, ...] = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)
"""The names under which architectures keep their depth."""

SMALLEST_OF: Mapping[str, str] = {
    "proteins": "esm2-tiny",
    "causal-lm": "gpt2-tiny",
    "seq2seq": "t5-chat-tiny",
    "masked-lm": "bert-tiny",
    "sequence-classification": "bert-tiny",
    "token-classification": "bert-tiny",
}
"""What a smoke run trains where the model of the run is not known here."""


def apply_mode(config: RunConfig, request: PlanRequest, model: ModelSpec | None) -> RunConfig:
    """`config` with the values of the requested mode. Values that the user set keep theirs, except the model and the
    data of a smoke run, which are what it is about."""
    if request.mode == "train" and request.trace_steps is None:
        return config
    subject: dict[str, Any] = {"mode.kind": request.mode}
    values: dict[str, Any] = {}
    if request.trace_steps is not None:
        subject["mode.trace_steps"] = request.trace_steps
    if request.mode == "smoke":
        subject |= _smoke_subject(config, model)
        values = _smoke(config)
    elif request.mode == "dev-run":
        values = _dev_run(config)
    elif request.mode == "overfit":
        subject["mode.overfit_batches"] = request.overfit_batches or config.mode.overfit_batches or 1
        values = _overfit(config)
    elif request.mode == "benchmark":
        steps = request.benchmark_steps or config.mode.benchmark_steps or BENCHMARK_STEPS
        subject |= {**ONLY_STEPS, "mode.benchmark_steps": steps, "training.max_steps": steps + BENCHMARK_WARM_STEPS}
    chosen = {key: value for key, value in values.items() if config.origin(key).origin != "you"} | subject
    reasons = {key: tr(MODES.get(request.mode, ""), why=tr(REASONS.get(key, SHORT))) for key in chosen}
    # What a mode leaves open, the plan solves and explains.
    return config.with_values(chosen, "solved", reasons).left_open([key for key in chosen if chosen[key] is None])


MODES = {
    "smoke": mark("smoke run: {why}"),
    "dev-run": mark("dev run: {why}"),
    "overfit": mark("overfitting a few batches: {why}"),
    "benchmark": mark("benchmark: {why}"),
}
"""How the reasons of a mode begin."""
REASONS = {
    "model.name": mark("the smallest model of the same family"),
    "data.sources": mark("the sample dataset included with trainwiz"),
    "training.learning_rate": mark("high enough for a tiny model to learn in a few steps"),
    "evaluation.generation_rows": mark("few rows: generation is slow"),
}
SHORT = mark("short but complete")


CHAT = {"name": "sample-chat", "text_column": "prompt", "target_column": "response"}
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "proteins": {"name": "sample-proteins"},
    "masked-lm": {"name": "sample-text"},
    "seq2seq": {"name": "sample-pairs", "text_column": "source", "target_column": "target"},
    "sequence-classification": {"name": "sample-reviews", "text_column": "text", "target_column": "label"},
    "token-classification": {"name": "sample-names", "text_column": "tokens", "target_column": "ner_tags"},
}


def smoke_sample(config: RunConfig) -> dict[str, Any]:
    """The sample of the run's task; a causal model that answers prompts, or trains adapters, gets chats."""
    sources = config.data.sources
    if config.row_kind in SAMPLES:
        return dict(SAMPLES[config.row_kind])
    if sources[0].layout == "chat":
        return {**CHAT, "layout": "chat"}
    answers = config.peft.method != "none" or any(source.target_column is not None for source in sources)
    return dict(CHAT if answers else SAMPLES["masked-lm"])


def _smoke_subject(config: RunConfig, model: ModelSpec | None) -> dict[str, Any]:
    """The smallest sibling on the sample data; a model without one loses its layers but two."""
    values: dict[str, Any] = {
        **dict.fromkeys(OF_THE_SUBJECT),
        "model.init": "scratch",
        "data.sources": [smoke_sample(config)],
        "data.validation_sources": [],
    }
    if model is None:
        return {**values, "model.name": SMALLEST_OF[config.row_kind], "model.architecture_overrides": {}}
    if model.tokenizer == "esm" or model.smallest_sibling:
        return {**values, "model.name": model.smallest_sibling or model.name, "model.architecture_overrides": {}}
    depths = {key: model.architecture.get(key) for key in LAYER_KEYS}
    shallow = {key: min(2, depth) for key, depth in depths.items() if isinstance(depth, int)}
    return {**values, "model.architecture_overrides": {**config.model.architecture_overrides, **shallow}}


OF_THE_SUBJECT = (
    "model.architecture", "model.tokenizer", "model.chat_template", "peft.adapter", "model.source_language",
    "model.target_language", "data.min_characters", "data.max_characters", "data.streaming",
)  # fmt: skip
"""What is said of the real model and data, and of no other."""
OF_THE_CARD = ("engine.device", "engine.precision", "engine.tf32", "engine.attention", "engine.gpus")
"""This machine decides how it computes: the profile's choices were made for another card."""


def _smoke(config: RunConfig) -> dict[str, Any]:
    """Few short steps through every part: accumulation, a save, an evaluation. The engine stays as it is."""
    training, batch = config.training, config.batch
    decays_to = SMOKE_LEARNING_RATE * training.final_learning_rate / training.learning_rate
    return {
        **NO_TARGET,
        **dict.fromkeys(OF_THE_CARD),
        "data.validation_rows": 8,
        "data.workers": None if config.data.workers is None else min(config.data.workers, 2),
        "batch.micro_batch_size": 4,
        "batch.gradient_accumulation_steps": 2,
        "batch.eval_micro_batch_size": 4,
        "batch.sequence_length": min(batch.sequence_length, SMOKE_LENGTH),
        "batch.target_length": min(batch.target_length or SMOKE_LENGTH, SMOKE_LENGTH)
        if config.task == "seq2seq"
        else None,
        "training.max_steps": SMOKE_STEPS,
        "training.learning_rate": SMOKE_LEARNING_RATE,
        "training.final_learning_rate": float(f"{decays_to:.6g}"),
        "training.warmup": min(training.warmup, 1),
        "evaluation.every_steps": SMOKE_STEPS // 2,
        "evaluation.every_epoch": False,
        "evaluation.generate_at": "evaluation",
        "evaluation.generation_rows": 4,
        "evaluation.generation_length": 16,
        "evaluation.beams": min(config.evaluation.beams, 2),
        "checkpoint.every_steps": SMOKE_STEPS // 2,
        "logging.every_steps": 1,
    }


ONLY_STEPS: Mapping[str, Any] = {
    "data.validation_rows": 0,
    "data.validation_sources": [],
    "evaluation.every_epoch": False,
    "evaluation.generate": False,
    "evaluation.at_start": False,
    "evaluation.patience": None,
    "checkpoint.keep_best": False,
    "checkpoint.final": "last",
    "logging.every_steps": 1,
}
"""Nothing is held out, and nothing measured but the loss."""


def _dev_run(config: RunConfig) -> dict[str, Any]:
    """The real model and data, a few steps of a few micro-batches."""
    steps = config.mode.dev_steps or DEV_STEPS
    return {
        **NO_TARGET,
        "batch.gradient_accumulation_steps": min(config.batch.gradient_accumulation_steps or 2, 2),
        "training.max_steps": steps,
        "training.warmup": min(config.training.warmup, 1),
        "evaluation.every_steps": steps,
        "evaluation.every_epoch": False,
        "evaluation.generate_at": "evaluation",
        "evaluation.generation_rows": min(
            config.evaluation.generation_rows or DEV_GENERATION_ROWS, DEV_GENERATION_ROWS
        ),
        "checkpoint.every_steps": steps,
        "logging.every_steps": 1,
    }


def _overfit(config: RunConfig) -> dict[str, Any]:
    """The same micro-batches until they are known by heart: nothing held out, no decay, no regularisation."""
    return {
        **ONLY_STEPS,
        **NO_TARGET,
        "batch.micro_batch_size": min(config.batch.micro_batch_size or OVERFIT_MICRO_BATCH, OVERFIT_MICRO_BATCH),
        "batch.gradient_accumulation_steps": 1,
        "training.max_steps": OVERFIT_STEPS,
        "training.warmup": 10,
        "training.schedule": "constant",
        "training.final_learning_rate": 0.0,
        "training.weight_decay": 0.0,
        "training.label_smoothing": 0.0,
        "checkpoint.every_steps": OVERFIT_STEPS,
    }
