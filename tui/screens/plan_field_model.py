"""MODEL_FIELDS: what is trained, and which of its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.tui.screens.plan_fields import MODEL, FieldSpec, Help, has_targets, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


def trains_adapters(plan: Plan) -> bool:
    return plan.config.peft.method == "lora"


def can_train_adapters(plan: Plan) -> bool:
    return has_text(plan) or trains_adapters(plan)


MODEL_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="model",
        label="Model",
        step=MODEL,
        keys=("model.name",),
        kind="choice",
        help=Help(
            "A name from the catalogue, a hub id, a local model folder, or a config.json.",
            "Its size decides memory and time more than anything else.",
            "The smallest of its family first; the same settings then carry over to the larger ones.",
            "Memory and time grow about in proportion to its parameters.",
        ),
    ),
    FieldSpec(
        id="task",
        label="Task",
        step=MODEL,
        keys=("task",),
        kind="choice",
        choices=("masked-lm", "causal-lm", "seq2seq"),
        free_text=False,
        help=Help(
            "What the model learns: fill in hidden letters (masked-lm), go on with a text (causal-lm), turn one text into another (seq2seq).",
            "It decides how a row becomes a sample, which loss is computed and what is measured.",
            "What the model is made for; it comes with the model.",
            "Nothing by itself.",
        ),
    ),
    FieldSpec(
        id="init",
        label="Starts from",
        step=MODEL,
        keys=("model.init",),
        kind="choice",
        choices=("scratch", "pretrained"),
        free_text=False,
        help=Help(
            "Random weights, or weights that somebody trained before.",
            "Pretraining begins with random weights; fine-tuning needs pretrained ones.",
            "Pretrained, where the weights are on this machine.",
            "Random weights need far more data and time to become useful.",
        ),
    ),
    FieldSpec(
        id="peft",
        label="Trains",
        step=MODEL,
        keys=("peft.method",),
        kind="choice",
        choices=("none", "lora"),
        free_text=False,
        when=can_train_adapters,
        help=Help(
            "All weights, or small adapters beside frozen ones (LoRA).",
            "Adapters need no gradients and no optimizer states for the weights that stay frozen: a 7B model fits one card.",
            "All weights from scratch; LoRA to fine-tune a large pretrained model.",
            "LoRA costs little memory and can learn less than full training.",
        ),
    ),
    FieldSpec(
        id="lora_rank",
        label="LoRA rank",
        step=MODEL,
        keys=("peft.rank",),
        kind="number",
        when=trains_adapters,
        help=Help(
            "How wide the adapters are.",
            "It decides how much they can learn.",
            "8 to 64.",
            "Memory and time of the adapters, in proportion; little beside the frozen weights.",
        ),
    ),
    FieldSpec(
        id="lora_targets",
        label="LoRA targets",
        step=MODEL,
        keys=("peft.targets",),
        kind="text",
        empty="attention",
        when=trains_adapters,
        help=Help(
            "The modules that get an adapter, by name: q_proj,v_proj.",
            "More modules learn more.",
            "Empty: the projections of the attention layers.",
            "Memory and time of each adapter.",
        ),
    ),
    FieldSpec(
        id="merge",
        label="Merge at the end",
        step=MODEL,
        keys=("peft.merge",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        when=trains_adapters,
        help=Help(
            "Add the adapter to the weights when the run is over.",
            "A merged model loads like any other, without peft.",
            "off: the adapter alone is small, and its base stays one file for many adapters.",
            "Disk for a whole model. The adapter is kept beside it.",
        ),
    ),
    FieldSpec(
        id="lora_alpha",
        label="LoRA scale",
        step=MODEL,
        keys=("peft.alpha",),
        kind="number",
        empty="twice the rank",
        rare=True,
        when=trains_adapters,
        help=Help(
            "The adapter counts with scale / rank.",
            "It sets how strongly the adapter speaks.",
            "Empty: twice the rank.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="lora_dropout",
        label="LoRA dropout",
        step=MODEL,
        keys=("peft.dropout",),
        kind="number",
        rare=True,
        when=trains_adapters,
        help=Help(
            "Share of an adapter's input that is left out while training.",
            "It keeps small data from being learnt by heart.",
            "0, or 0.05 for a few thousand rows.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="tokenizer",
        label="Tokenizer",
        step=MODEL,
        keys=("model.tokenizer",),
        kind="choice",
        choices=("train",),
        empty="the model's own",
        rare=True,
        when=has_text,
        help=Help(
            "What cuts text into tokens: a hub id, a folder, or one that is trained on your data.",
            "Pretrained weights only understand their own tokens.",
            "Empty: the model's own; a model from scratch that has none here makes one from the data.",
            "Training one takes seconds for a few thousand rows.",
        ),
    ),
    FieldSpec(
        id="source_language",
        label="Source language",
        step=MODEL,
        keys=("model.source_language",),
        kind="text",
        rare=True,
        when=has_targets,
        help=Help(
            "The language of the inputs, as a multilingual tokenizer names it: zho_Hans.",
            "NLLB puts it in front of every input.",
            "Empty for models of one pair of languages.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="target_language",
        label="Target language",
        step=MODEL,
        keys=("model.target_language",),
        kind="text",
        rare=True,
        when=has_targets,
        help=Help(
            "The language of the targets, as a multilingual tokenizer names it: eng_Latn.",
            "The model starts every answer with it.",
            "Empty for models of one pair of languages.",
            "Nothing.",
        ),
    ),
)
