"""EVALUATION_FIELDS and KEEPING_FIELDS: how the model is measured, and what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


# EVALUATION_FIELDS: how the model is measured.


def generates(plan: Plan) -> bool:
    return plan.task != "masked-lm" and plan.config.evaluation.generate


EVALUATION_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="generate",
        label=mark("Generate text"),
        step=TRAINING,
        group=mark("How it is measured"),
        keys=("evaluation.generate",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        when=has_text,
        help=Help(
            mark("Let the model write the held-out targets, and score them with BLEU."),
            mark("A loss does not say how well a translation reads."),
            mark("on for translation, off for the rest."),
            mark("Time: one token after the other, for every held-out row."),
        ),
    ),
    FieldSpec(
        id="beams",
        label=mark("Beams"),
        step=TRAINING,
        keys=("evaluation.beams",),
        kind="number",
        when=generates,
        help=Help(
            mark("Alternatives that the search keeps while it generates; 1 is greedy."),
            mark("A few beams raise BLEU by a point or so."),
            mark("4 for translation, 1 else."),
            mark("Memory and time of generation, in proportion."),
        ),
    ),
    FieldSpec(
        id="generation_length",
        label=mark("Longest generation"),
        step=TRAINING,
        keys=("evaluation.generation_length",),
        kind="number",
        units=(mark("tokens"),),
        empty=mark("the target length"),
        rare=True,
        when=generates,
        help=Help(
            mark("Generated texts end here at the latest."),
            mark("A model that has learnt little never stops by itself."),
            mark("Empty: the longest target."),
            mark("Time and memory of generation."),
        ),
    ),
    FieldSpec(
        id="generation_rows",
        label=mark("Rows to generate"),
        step=TRAINING,
        keys=("evaluation.generation_rows",),
        kind="number",
        units=(mark("rows"),),
        empty=mark("all held-out rows"),
        rare=True,
        when=generates,
        help=Help(
            mark("Generate for the first held-out rows only."),
            mark("Generation is slow; a few hundred rows give a BLEU that is steady enough to compare."),
            mark("Empty: all held-out rows."),
            mark("Time, in proportion."),
        ),
    ),
    FieldSpec(
        id="generate_at",
        label=mark("Generate at"),
        step=TRAINING,
        keys=("evaluation.generate_at",),
        kind="choice",
        choices=("evaluation", "epoch", "end"),
        free_text=False,
        rare=True,
        when=generates,
        help=Help(
            mark("At every evaluation, at the end of each epoch, or once at the end."),
            mark("Generation can take longer than the training between two evaluations."),
            mark("every evaluation."),
            mark("Time."),
        ),
    ),
    FieldSpec(
        id="bleu_tokenizer",
        label=mark("BLEU words"),
        step=TRAINING,
        keys=("evaluation.bleu_tokenizer",),
        kind="choice",
        choices=("13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "none"),
        free_text=False,
        empty=mark("zh for Chinese, else 13a"),
        rare=True,
        when=generates,
        help=Help(
            mark("How sacrebleu cuts texts into words."),
            mark("Scores compare only where texts were cut in the same way."),
            mark("Empty: zh for Chinese references, else 13a."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="evaluate_every",
        label=mark("Evaluate every"),
        step=TRAINING,
        keys=("evaluation.every_steps",),
        kind="number",
        units=(mark("steps"),),
        rare=True,
        help=Help(
            mark("Steps between two measurements on the held-out rows."),
            mark("It shows when the model stops learning and starts remembering."),
            mark("Empty: at each save and at the end."),
            mark("Time for each."),
        ),
    ),
    FieldSpec(
        id="every_epoch",
        label=mark("Each epoch too"),
        step=TRAINING,
        keys=("evaluation.every_epoch",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Measure at the end of each epoch as well."),
            mark("Epochs can be compared with what others report."),
            mark("off."),
            mark("Time for each."),
        ),
    ),
    FieldSpec(
        id="metric",
        label=mark("Best by"),
        step=TRAINING,
        keys=("evaluation.metric",),
        kind="choice",
        choices=("eval_loss", "eval_perplexity", "eval_accuracy", "eval_bleu"),
        rare=True,
        help=Help(
            mark("The measurement that says which checkpoint is the best."),
            mark("The newest is not always the best."),
            mark("eval_loss, or eval_bleu where text is generated."),
            mark("Nothing."),
        ),
    ),
)


# KEEPING_FIELDS: rarely changed values of what is kept and reported, and of what the plan alone needs.


def is_dev_run(plan: Plan) -> bool:
    return plan.config.mode.kind == "dev-run"


KEEPING_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="save_every",
        label=mark("Save every"),
        step=TRAINING,
        group=mark("What is kept and reported"),
        keys=("checkpoint.every_steps",),
        units=(mark("steps"),),
        kind="number",
        rare=True,
        help=Help(
            mark("Steps between two checkpoints."),
            mark("A run that breaks goes on from the last one."),
            mark("Empty: ten times over the run, at least every 500 steps."),
            mark("Disk and the time to write; old checkpoints are removed."),
        ),
    ),
    FieldSpec(
        id="keep",
        label=mark("Checkpoints kept"),
        step=TRAINING,
        keys=("checkpoint.keep",),
        kind="number",
        rare=True,
        help=Help(
            mark("How many checkpoints stay on the disk."),
            mark("A run goes on from the newest; the best may be an older one."),
            mark("2."),
            mark("Disk, in proportion."),
        ),
    ),
    FieldSpec(
        id="keep_best",
        label=mark("Keep the best"),
        step=TRAINING,
        keys=("checkpoint.keep_best",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Keep the best checkpoints instead of the newest; the newest stays for resuming."),
            mark("Training too long makes a model worse on new rows."),
            mark("off."),
            mark("Nothing; evaluation then happens at each save."),
        ),
    ),
    FieldSpec(
        id="log_every",
        label=mark("Log every"),
        step=TRAINING,
        keys=("logging.every_steps",),
        kind="number",
        units=(mark("steps"),),
        rare=True,
        help=Help(
            mark("Steps between two lines of the curves."),
            mark("The monitor shows what was logged."),
            mark("Empty: a line every few seconds."),
            mark("Nothing to speak of."),
        ),
    ),
    FieldSpec(
        id="memory_every",
        label=mark("Memory every"),
        step=TRAINING,
        keys=("logging.memory_every_steps",),
        kind="number",
        units=(mark("steps"),),
        empty=mark("off"),
        rare=True,
        help=Help(
            mark("Steps between two entries of the memory log."),
            mark("It shows memory that grows from step to step."),
            mark("Empty: none beyond what each logged step carries."),
            mark("Nothing to speak of."),
        ),
    ),
    FieldSpec(
        id="system_every",
        label=mark("Sample machine every"),
        step=TRAINING,
        keys=("logging.system_every_s",),
        kind="number",
        units=("s",),
        rare=True,
        help=Help(
            mark("Seconds between two samples of GPU, RAM and disk."),
            mark("The monitor and the advice follow from them."),
            mark("1."),
            mark("A little CPU time and disk."),
        ),
    ),
    FieldSpec(
        id="report_to",
        label=mark("Report to"),
        step=TRAINING,
        keys=("logging.report_to",),
        kind="choice",
        choices=("tensorboard", "wandb", "tensorboard, wandb", "none"),
        rare=True,
        help=Help(
            mark("Where the curves are written beside the run folder's own."),
            mark("TensorBoard and wandb compare many runs in a browser."),
            mark("tensorboard: files in the run folder."),
            mark("wandb needs its package and an account."),
        ),
    ),
    FieldSpec(
        id="trace_steps",
        label=mark("Trace steps"),
        step=TRAINING,
        keys=("mode.trace_steps",),
        kind="number",
        empty=mark("off"),
        rare=True,
        help=Help(
            mark("Write a profiler trace of so many steps into the run folder."),
            mark("It shows what each kernel takes."),
            mark("Empty: none."),
            mark("Hundreds of MB a step, and slower steps while it traces."),
        ),
    ),
    FieldSpec(
        id="dev_steps",
        label=mark("Steps of a dev run"),
        step=TRAINING,
        keys=("mode.dev_steps",),
        kind="number",
        units=(mark("steps"),),
        empty="5",
        rare=True,
        when=is_dev_run,
        help=Help(
            mark("How many steps of the real model and data are tried."),
            mark("Errors show before hours are spent."),
            mark("Empty: 5."),
            mark("Time, in proportion."),
        ),
    ),
    FieldSpec(
        id="energy_price",
        label=mark("Price of a kWh"),
        step=TRAINING,
        group=mark("For the plan alone"),
        keys=("planning.energy_price_per_kwh",),
        kind="number",
        rare=True,
        help=Help(
            mark("What a kilowatt-hour costs, in your currency."),
            mark("The plan then shows what the run costs."),
            mark("Empty: no cost is shown."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="currency",
        label=mark("Currency"),
        step=TRAINING,
        keys=("planning.currency",),
        kind="text",
        rare=True,
        help=Help(
            mark("The word behind the cost, such as EUR."),
            mark("A number alone says little."),
            mark("Empty."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="context_size",
        label=mark("CUDA context"),
        step=TRAINING,
        keys=("planning.context_bytes",),
        kind="text",
        empty=mark("as measured, or 0.45 GiB"),
        rare=True,
        help=Help(
            mark("What nvidia-smi shows for an idle CUDA process on this card, such as 500M."),
            mark("Every process takes it from the card's memory before it trains."),
            mark("Empty: what was measured here, else 0.45 GiB give or take 0.2."),
            mark("Nothing; the plan is more exact."),
        ),
    ),
)
