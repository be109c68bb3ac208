"""MODEL_FIELDS and ARCHITECTURE_FIELDS: what is trained, and which of its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import MODEL, FieldSpec, Help, has_targets, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


# MODEL_FIELDS: what is trained, and which of its weights.


def trains_adapters(plan: Plan) -> bool:
    return plan.config.peft.method == "lora"


def can_train_adapters(plan: Plan) -> bool:
    return has_text(plan) or trains_adapters(plan)


MODEL_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="model",
        label=mark("Model"),
        step=MODEL,
        keys=("model.name",),
        kind="choice",
        help=Help(
            mark("A name from the catalogue, a hub id, a local model folder, or a config.json."),
            mark("Its size decides memory and time more than anything else."),
            mark("The smallest of its family first; the same settings then carry over to the larger ones."),
            mark("Memory and time grow about in proportion to its parameters."),
        ),
    ),
    FieldSpec(
        id="peft",
        label=mark("Trains"),
        step=MODEL,
        keys=("peft.method",),
        kind="choice",
        choices=("none", "lora"),
        free_text=False,
        when=can_train_adapters,
        help=Help(
            mark("All weights, or small adapters beside frozen ones (LoRA)."),
            mark(
                "Adapters need no gradients and no optimizer states for the weights that stay frozen: a 7B model fits one card."
            ),
            mark("All weights from scratch; LoRA to fine-tune a large pretrained model."),
            mark("LoRA costs little memory and can learn less than full training."),
        ),
    ),
    FieldSpec(
        id="lora_rank",
        label=mark("LoRA rank"),
        step=MODEL,
        keys=("peft.rank",),
        kind="number",
        when=trains_adapters,
        help=Help(
            mark("How wide the adapters are."),
            mark("It decides how much they can learn."),
            mark("8 to 64."),
            mark("Memory and time of the adapters, in proportion; little beside the frozen weights."),
        ),
    ),
    FieldSpec(
        id="lora_targets",
        label=mark("LoRA targets"),
        step=MODEL,
        keys=("peft.targets",),
        kind="text",
        empty=mark("all-linear"),
        when=trains_adapters,
        help=Help(
            mark("The modules that get an adapter, by name: q_proj,v_proj."),
            mark("More modules learn more."),
            mark("all-linear: every linear layer of the blocks."),
            mark("Memory and time of each adapter."),
        ),
    ),
    FieldSpec(
        id="merge",
        label=mark("Merge at the end"),
        step=MODEL,
        keys=("peft.merge",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        when=trains_adapters,
        help=Help(
            mark("Add the adapter to the weights when the run is over."),
            mark("A merged model loads like any other, without peft."),
            mark("off: the adapter alone is small, and its base stays one file for many adapters."),
            mark("Disk for a whole model. The adapter is kept beside it."),
        ),
    ),
    FieldSpec(
        id="init",
        label=mark("Starts from"),
        step=MODEL,
        keys=("model.init",),
        kind="choice",
        choices=("scratch", "pretrained"),
        free_text=False,
        help=Help(
            mark("From scratch, or pretrained weights."),
            mark("Pretraining begins with random weights; fine-tuning needs pretrained ones."),
            mark("Pretrained, where the weights are on this machine."),
            mark("Random weights need far more data and time to become useful."),
        ),
    ),
    FieldSpec(
        id="task",
        label=mark("Task"),
        step=MODEL,
        keys=("task",),
        kind="choice",
        choices=("masked-lm", "causal-lm", "seq2seq"),
        free_text=False,
        help=Help(
            mark(
                "What the model learns: fill in hidden letters (masked-lm), go on with a text (causal-lm), turn one text into another (seq2seq)."
            ),
            mark("It decides how a row becomes a sample, which loss is computed and what is measured."),
            mark("What the model is made for; it comes with the model."),
            mark("Nothing by itself."),
        ),
    ),
    FieldSpec(
        id="lora_alpha",
        label=mark("LoRA scale"),
        step=MODEL,
        keys=("peft.alpha",),
        kind="number",
        empty=mark("twice the rank"),
        rare=True,
        when=trains_adapters,
        help=Help(
            mark("The adapter counts with scale / rank."),
            mark("It sets how strongly the adapter speaks."),
            mark("Empty: twice the rank."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="lora_dropout",
        label=mark("LoRA dropout"),
        step=MODEL,
        keys=("peft.dropout",),
        kind="number",
        rare=True,
        when=trains_adapters,
        help=Help(
            mark("Share of an adapter's input that is left out while training."),
            mark("It keeps small data from being learnt by heart."),
            mark("0, or 0.05 for a few thousand rows."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="tokenizer",
        label=mark("Tokenizer"),
        step=MODEL,
        keys=("model.tokenizer",),
        kind="choice",
        choices=("train",),
        empty=mark("the model's own"),
        rare=True,
        when=has_text,
        help=Help(
            mark("What cuts text into tokens: a hub id, a folder, or one that is trained on your data."),
            mark("Pretrained weights only understand their own tokens."),
            mark("Empty: the model's own; a model from scratch that has none here makes one from the data."),
            mark("Training one takes seconds for a few thousand rows."),
        ),
    ),
    FieldSpec(
        id="source_language",
        label=mark("Source language"),
        step=MODEL,
        keys=("model.source_language",),
        kind="text",
        rare=True,
        when=has_targets,
        help=Help(
            mark("The language of the inputs, as a multilingual tokenizer names it: zho_Hans."),
            mark("NLLB puts it in front of every input."),
            mark("Empty for models of one pair of languages."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="target_language",
        label=mark("Target language"),
        step=MODEL,
        keys=("model.target_language",),
        kind="text",
        rare=True,
        when=has_targets,
        help=Help(
            mark("The language of the targets, as a multilingual tokenizer names it: eng_Latn."),
            mark("The model starts every answer with it."),
            mark("Empty for models of one pair of languages."),
            mark("Nothing."),
        ),
    ),
)


# ARCHITECTURE_FIELDS: rarely changed values of how the model is made.

ARCHITECTURE_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="architecture",
        label=mark("Architecture changes"),
        step=MODEL,
        keys=("model.architecture_overrides",),
        kind="text",
        empty=mark("as the model has it"),
        rare=True,
        help=Help(
            mark("Keys of the model's config to change: num_hidden_layers=6 hidden_dropout_prob=0.1."),
            mark("A model from scratch may have another depth or width than the published one."),
            mark("Empty."),
            mark("Memory and time follow; pretrained weights fit their own shape only."),
        ),
    ),
    FieldSpec(
        id="remote_code",
        label=mark("The model's own code"),
        step=MODEL,
        keys=("model.trust_remote_code",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Run Python code that comes with the model."),
            mark("Some models on the hub cannot be loaded without it."),
            mark("off."),
            mark("The code can do everything that you can do on this machine; read it first."),
        ),
    ),
)
