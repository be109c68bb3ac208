"""FIELDS: every field of the wizard, in the order of the screen."""

from __future__ import annotations

from trainwiz.tui.screens.plan_field_training import TRAINING_FIELDS
from trainwiz.tui.screens.plan_fields import (
    DATA,
    HARDWARE,
    MODEL,
    NAME,
    OUTPUT_DIR,
    PROFILE,
    REVIEW,
    FieldSpec,
    Help,
)

FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="profile",
        label="Profile",
        step=HARDWARE,
        keys=(PROFILE,),
        kind="choice",
        free_text=False,
        help=Help(
            "A tried set of values for one kind of hardware and one task.",
            "It fills every field below; what you change yourself stays changed.",
            "cpu-demo: a tiny model on sample data, done in about a minute on any machine.",
            "Nothing: profiles can be switched at any time.",
        ),
    ),
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
        id="data",
        label="Data",
        step=DATA,
        keys=("data.sources.0.name",),
        kind="choice",
        help=Help(
            "A sample that ships with trainwiz, or a file or folder: parquet, jsonl, csv, tsv, txt or fasta.",
            "It is what the model learns from.",
            "The sample first, to see a run from end to end.",
            "Large files cost disk and loading time; the plan shows how much.",
        ),
    ),
    FieldSpec(
        id="column",
        label="Text column",
        step=DATA,
        keys=("data.sources.0.text_column",),
        kind="choice",
        help=Help(
            "The column that holds the text or the sequence.",
            "Files often hold more columns than training needs.",
            "The one that was found; look at the first rows below.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="length",
        label="Longest input",
        step=DATA,
        keys=("batch.sequence_length",),
        kind="number",
        units=("tokens",),
        help=Help(
            "Rows longer than this are cut.",
            "Attention and activations grow with it; what is cut is never seen.",
            "A length that cuts few rows: see the share under the rows.",
            "Twice the length is at least twice the memory and the time of a row.",
        ),
    ),
    FieldSpec(
        id="max_rows",
        label="Rows at most",
        step=DATA,
        keys=("data.sources.0.max_rows",),
        kind="number",
        units=("rows",),
        rare=True,
        help=Help("Use only the first rows.", "For quick tries.", "Empty: all rows.", "A model that saw less data."),
    ),
    FieldSpec(
        id="validation_rows",
        label="Held-out rows",
        step=DATA,
        keys=("data.validation_rows",),
        kind="number",
        units=("rows",),
        rare=True,
        help=Help(
            "Rows that are never trained on and measure the model.",
            "Only a loss on unseen rows tells whether the model learns or remembers.",
            "Empty: 1 % of the rows, at most 2,000. 0 switches evaluation off.",
            "Time for each evaluation.",
        ),
    ),
    *TRAINING_FIELDS,
    FieldSpec(
        id="name",
        label="Name",
        step=REVIEW,
        keys=(NAME,),
        kind="text",
        help=Help(
            "The name of the run, part of its folder's name.",
            "You find the run again by it.",
            "A word for what you try.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="folder",
        label="Folder",
        step=REVIEW,
        keys=(OUTPUT_DIR,),
        kind="text",
        help=Help(
            "The run folder: everything about the run is in it.",
            "Another disk may have more room.",
            "Empty: runs/<time>-<name> here. A folder that is not empty is refused.",
            "Disk, as the plan shows.",
        ),
    ),
)

FIELD_BY_ID = {spec.id: spec for spec in FIELDS}


def fields_of(step: int, rare: bool) -> tuple[FieldSpec, ...]:
    """The fields of a step; the rarely changed ones only where `rare` is true."""
    return tuple(spec for spec in FIELDS if spec.step == step and (rare or not spec.rare))
