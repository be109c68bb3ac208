"""DATA_FIELDS: what is learnt from, and how much of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.tui.screens.plan_fields import DATA, FieldSpec, Help, has_targets, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


def can_join(plan: Plan) -> bool:
    return plan.task == "causal-lm"


DATA_FIELDS: tuple[FieldSpec, ...] = (
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
        empty="found by name",
        help=Help(
            "The column that holds the text or the sequence.",
            "Files often hold more columns than training needs.",
            "The one that was found; look at the first rows below.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="target_column",
        label="Target column",
        step=DATA,
        keys=("data.sources.0.target_column",),
        kind="choice",
        empty="none",
        when=has_text,
        help=Help(
            "The column that the model should answer with: the translation, or the response to a prompt.",
            "seq2seq needs one; a causal model learns only the response where there is one.",
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
        id="target_length",
        label="Longest target",
        step=DATA,
        keys=("batch.target_length",),
        kind="number",
        units=("tokens",),
        when=has_targets,
        help=Help(
            "Targets longer than this are cut.",
            "The decoder's activations and its scores over the vocabulary grow with it; they are often the peak.",
            "A length that cuts few targets.",
            "Memory and time, in proportion.",
        ),
    ),
    FieldSpec(
        id="concatenate",
        label="Join texts",
        step=DATA,
        keys=("data.concatenate",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        when=can_join,
        help=Help(
            "Join the texts and cut them into sequences of full length.",
            "No padding: every token of a batch is learnt from.",
            "Empty: on for plain text and all weights, off for prompts with responses and for LoRA.",
            "A sequence may hold the end of one text and the beginning of another.",
        ),
    ),
    FieldSpec(
        id="max_rows",
        label="Rows at most",
        step=DATA,
        keys=("data.sources.0.max_rows",),
        kind="number",
        empty="all rows",
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
    FieldSpec(
        id="min_characters",
        label="Shortest text",
        step=DATA,
        keys=("data.min_characters",),
        kind="number",
        units=("characters",),
        empty="no limit",
        rare=True,
        help=Help(
            "Rows with a shorter text are dropped.",
            "Very short rows are often headings or noise.",
            "Empty: no limit.",
            "Fewer rows.",
        ),
    ),
    FieldSpec(
        id="max_characters",
        label="Longest text",
        step=DATA,
        keys=("data.max_characters",),
        kind="number",
        units=("characters",),
        empty="no limit",
        rare=True,
        help=Help(
            "Rows with a longer text are dropped, not cut.",
            "A cut text ends in the middle of a sentence.",
            "Empty: no limit.",
            "Fewer rows.",
        ),
    ),
    FieldSpec(
        id="streaming",
        label="Streamed",
        step=DATA,
        keys=("data.streaming",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            "Keep the rows in files and read them while training, instead of in memory.",
            "Data that is larger than host RAM can be trained on.",
            "Empty: on where the rows would fill the RAM.",
            "Disk for the rows, once. The order and the loss are the same.",
        ),
    ),
)
