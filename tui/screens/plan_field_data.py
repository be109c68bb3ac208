"""DATA_FIELDS and LOADING_FIELDS: what is learnt from, and what feeds the devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import DATA, TRAINING, FieldSpec, Help, has_targets, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


# DATA_FIELDS: what is learnt from, and how much of a row.


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


# LOADING_FIELDS: rarely changed values of what feeds the devices.

LOADING_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="arrange_by_length",
        label=mark("Arrange by length"),
        step=TRAINING,
        group=mark("Loading"),
        keys=("data.arrange_by_length",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("The rows of an optimizer step are sorted by length before they are cut into micro-batches."),
            mark("The gradient is the same sum; less of what is computed is padding."),
            mark("Empty: on where a step is more than one micro-batch."),
            mark("off gives the order of the Trainer of transformers."),
        ),
    ),
    FieldSpec(
        id="group_by_length",
        label=mark("Group by length"),
        step=TRAINING,
        keys=("data.group_by_length",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Rows of like length share a micro-batch."),
            mark("Less of what is computed is padding."),
            mark("on where rows differ much in length; the findings say what it saves."),
            mark("The rows of a small step are alike in length; an epoch has the same rows."),
        ),
    ),
    FieldSpec(
        id="packing",
        label=mark("Packing"),
        step=TRAINING,
        keys=("data.packing",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Rows of a micro-batch lie end to end; each sees itself alone."),
            mark("Nothing of what is computed is padding, and the gradient is the same sum."),
            mark("on where a step is one micro-batch of rows that differ much in length."),
            mark("For causal models; not with eager attention, torch.compile, FSDP or ZeRO-3."),
        ),
    ),
    FieldSpec(
        id="pad_to_multiple_of",
        label=mark("Pad to multiple of"),
        step=TRAINING,
        keys=("data.pad_to_multiple_of",),
        kind="number",
        units=(mark("tokens"),),
        rare=True,
        help=Help(
            mark("The length of each micro-batch is rounded up to a multiple of this."),
            mark("Tensor cores are fastest on such lengths."),
            mark("Empty: 8 for 16-bit numbers on an NVIDIA GPU, 4 for TF32, else 1."),
            mark("A little more padding, which counts for nothing."),
        ),
    ),
    FieldSpec(
        id="workers",
        label=mark("Loader workers"),
        step=TRAINING,
        keys=("data.workers",),
        kind="number",
        rare=True,
        help=Help(
            mark("Processes that prepare batches, for each training process."),
            mark("With too few the device waits for data."),
            mark("Empty: what hid the loading when it was measured; else what RAM holds and the cores feed."),
            mark("Some 160 MiB of RAM each, and the batches that they keep ready."),
        ),
    ),
    FieldSpec(
        id="prefetch",
        label=mark("Prefetch"),
        step=TRAINING,
        keys=("data.prefetch",),
        kind="number",
        units=(mark("batches"),),
        rare=True,
        help=Help(
            mark("Batches that each worker prepares ahead."),
            mark("They bridge rows that take long to read; a step takes all its micro-batches at once."),
            mark("Empty: what holds a step's micro-batches, at least 2; 1 where RAM is short."),
            mark("Host RAM, in proportion."),
        ),
    ),
    FieldSpec(
        id="pin_memory",
        label=mark("Pinned memory"),
        step=TRAINING,
        keys=("data.pin_memory",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Batches wait in RAM that cannot be swapped out."),
            mark("Copies to the GPU are faster."),
            mark("on with an NVIDIA GPU and 15 GB of RAM or more."),
            mark("RAM that nothing else can use."),
        ),
    ),
    FieldSpec(
        id="persistent_workers",
        label=mark("Keep workers"),
        step=TRAINING,
        keys=("data.persistent_workers",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Loader workers live on from one epoch to the next."),
            mark("Starting them again takes seconds."),
            mark("on where there are workers."),
            mark("Their RAM stays taken between epochs."),
        ),
    ),
)
