"""DATA_FIELDS: what is learnt from, and how much of a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import DATA, FieldSpec, Help, has_targets, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


def is_of_the_hub(plan: Plan) -> bool:
    """The rows come from a data set of the hub, whose parts have names."""
    from trainwiz.core.data.hub import looks_like_hub_id

    slashed = [source.name for source in plan.config.data.sources if looks_like_hub_id(source.name)]
    if not slashed:
        return False
    # It reads files' first bytes by libraries that the reader of a plan with such a name has imported by now.
    from trainwiz.core.data.sources import is_of_the_hub as names_no_file

    return any(names_no_file(name, Path()) for name in slashed)


def can_join(plan: Plan) -> bool:
    return plan.task == "causal-lm"


DATA_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="data",
        label=mark("Data"),
        step=DATA,
        keys=("data.sources.0.name",),
        kind="choice",
        help=Help(
            mark("A sample that ships with trainwiz, or a file or folder: parquet, jsonl, csv, tsv, txt or fasta."),
            mark("It is what the model learns from."),
            mark("The sample first, to see a run from end to end."),
            mark("Large files cost disk and loading time; the plan shows how much."),
        ),
    ),
    FieldSpec(
        id="split",
        label=mark("Split"),
        step=DATA,
        keys=("data.sources.0.split",),
        kind="text",
        when=is_of_the_hub,
        help=Help(
            mark("The part of a hub data set to learn from, as its page names it."),
            mark("Data sets keep rows for tests apart; learning from them spoils every comparison."),
            mark("train."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="subset",
        label=mark("Subset"),
        step=DATA,
        keys=("data.sources.0.subset",),
        kind="text",
        empty=mark("the only one"),
        when=is_of_the_hub,
        help=Help(
            mark("Which configuration of a hub data set, where it has several."),
            mark("They are often languages or versions."),
            mark("Empty, where there is only one."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="column",
        label=mark("Text column"),
        step=DATA,
        keys=("data.sources.0.text_column",),
        kind="choice",
        empty=mark("found by name"),
        help=Help(
            mark("The column that holds the text or the sequence."),
            mark("Files often hold more columns than training needs."),
            mark("The one that was found; look at the first rows below."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="target_column",
        label=mark("Target column"),
        step=DATA,
        keys=("data.sources.0.target_column",),
        kind="choice",
        empty=mark("none"),
        when=has_text,
        help=Help(
            mark("The column that the model should answer with: the translation, or the response to a prompt."),
            mark("seq2seq needs one; a causal model learns only the response where there is one."),
            mark("The one that was found; look at the first rows below."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="length",
        label=mark("Longest input"),
        step=DATA,
        keys=("batch.sequence_length",),
        kind="number",
        units=(mark("tokens"),),
        help=Help(
            mark("Rows longer than this are cut."),
            mark("Attention and activations grow with it; what is cut is never seen."),
            mark("A length that cuts few rows: the bars show how many."),
            mark("Twice the length is at least twice the memory and the time of a row."),
        ),
    ),
    FieldSpec(
        id="target_length",
        label=mark("Longest target"),
        step=DATA,
        keys=("batch.target_length",),
        kind="number",
        units=(mark("tokens"),),
        when=has_targets,
        help=Help(
            mark("Targets longer than this are cut."),
            mark("The decoder's activations and its scores over the vocabulary grow with it; they are often the peak."),
            mark("A length that cuts few targets."),
            mark("Memory and time, in proportion."),
        ),
    ),
    FieldSpec(
        id="concatenate",
        label=mark("Join texts"),
        step=DATA,
        keys=("data.concatenate",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        when=can_join,
        help=Help(
            mark("Join the texts and cut them into sequences of full length."),
            mark("No padding: every token of a batch is learnt from."),
            mark("Empty: on for plain text and all weights, off for prompts with responses and for LoRA."),
            mark("A sequence may hold the end of one text and the beginning of another."),
        ),
    ),
    FieldSpec(
        id="format",
        label=mark("File format"),
        step=DATA,
        keys=("data.sources.0.format",),
        kind="choice",
        choices=("parquet", "jsonl", "csv", "tsv", "txt", "fasta", "tar"),
        free_text=False,
        empty=mark("by the file's name"),
        rare=True,
        help=Help(
            mark("How the file is read, where its name does not tell or tells it wrongly."),
            mark("A folder with several formats needs one of them named."),
            mark("Empty: by the end of the file's name."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="max_rows",
        label=mark("Rows at most"),
        step=DATA,
        keys=("data.sources.0.max_rows",),
        kind="number",
        empty=mark("all rows"),
        units=(mark("rows"),),
        rare=True,
        help=Help(
            mark("Use only the first rows."),
            mark("For quick tries."),
            mark("Empty: all rows."),
            mark("A model that saw less data."),
        ),
    ),
    FieldSpec(
        id="validation_data",
        label=mark("Held-out data"),
        step=DATA,
        keys=("data.validation_sources",),
        kind="choice",
        empty=mark("some of the data"),
        rare=True,
        help=Help(
            mark("A file or folder of its own whose rows measure the model and are never trained on."),
            mark("Rows that were set apart once make runs comparable."),
            mark("Empty: some rows of the data are held out."),
            mark("Time for each evaluation."),
        ),
    ),
    FieldSpec(
        id="validation_rows",
        label=mark("Held-out rows"),
        step=DATA,
        keys=("data.validation_rows",),
        kind="number",
        units=(mark("rows"),),
        rare=True,
        help=Help(
            mark("Rows that are never trained on and measure the model."),
            mark("Only a loss on unseen rows tells whether the model learns or remembers."),
            mark("Empty: 1 % of the rows, at most 2,000. 0 switches evaluation off."),
            mark("Time for each evaluation."),
        ),
    ),
    FieldSpec(
        id="min_characters",
        label=mark("Shortest text"),
        step=DATA,
        keys=("data.min_characters",),
        kind="number",
        units=(mark("characters"),),
        empty=mark("no limit"),
        rare=True,
        help=Help(
            mark("Rows with a shorter text are dropped."),
            mark("Very short rows are often headings or noise."),
            mark("Empty: no limit."),
            mark("Fewer rows."),
        ),
    ),
    FieldSpec(
        id="max_characters",
        label=mark("Longest text"),
        step=DATA,
        keys=("data.max_characters",),
        kind="number",
        units=(mark("characters"),),
        empty=mark("no limit"),
        rare=True,
        help=Help(
            mark("Rows with a longer text are dropped, not cut."),
            mark("A cut text ends in the middle of a sentence."),
            mark("Empty: no limit."),
            mark("Fewer rows."),
        ),
    ),
    FieldSpec(
        id="streaming",
        label=mark("Streamed"),
        step=DATA,
        keys=("data.streaming",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Leave the rows in their files and read them while training, instead of in memory."),
            mark("Data that is larger than host RAM can be trained on."),
            mark("Empty: on where the rows would fill the RAM."),
            mark("An index on disk, once. Rows are shuffled in windows of 128 MiB of text."),
        ),
    ),
)
