"""ARCHITECTURE_FIELDS: rarely changed values of how the model is made."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import MODEL, FieldSpec, Help

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
