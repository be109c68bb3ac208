"""EVALUATION_FIELDS: how the model is measured, what is kept and where it is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


def generates(plan: Plan) -> bool:
    return plan.task != "masked-lm" and plan.config.evaluation.generate


EVALUATION_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="generate",
        label="Generate text",
        step=TRAINING,
        group="How it is measured",
        keys=("evaluation.generate",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        when=has_text,
        help=Help(
            "Let the model write the held-out targets, and score them with BLEU.",
            "A loss does not say how well a translation reads.",
            "on for translation, off for the rest.",
            "Time: one token after the other, for every held-out row.",
        ),
    ),
    FieldSpec(
        id="beams",
        label="Beams",
        step=TRAINING,
        keys=("evaluation.beams",),
        kind="number",
        when=generates,
        help=Help(
            "Alternatives that the search keeps while it generates; 1 is greedy.",
            "A few beams raise BLEU by a point or so.",
            "4 for translation, 1 else.",
            "Memory and time of generation, in proportion.",
        ),
    ),
    FieldSpec(
        id="generation_length",
        label="Longest generation",
        step=TRAINING,
        keys=("evaluation.generation_length",),
        kind="number",
        units=("tokens",),
        empty="the target length",
        rare=True,
        when=generates,
        help=Help(
            "Generated texts end here at the latest.",
            "A model that has learnt little never stops by itself.",
            "Empty: the longest target.",
            "Time and memory of generation.",
        ),
    ),
    FieldSpec(
        id="generation_rows",
        label="Rows to generate",
        step=TRAINING,
        keys=("evaluation.generation_rows",),
        kind="number",
        units=("rows",),
        empty="all held-out rows",
        rare=True,
        when=generates,
        help=Help(
            "Generate for the first held-out rows only.",
            "Generation is slow; a few hundred rows give a BLEU that is steady enough to compare.",
            "Empty: all held-out rows.",
            "Time, in proportion.",
        ),
    ),
    FieldSpec(
        id="generate_at",
        label="Generate at",
        step=TRAINING,
        keys=("evaluation.generate_at",),
        kind="choice",
        choices=("evaluation", "epoch", "end"),
        free_text=False,
        rare=True,
        when=generates,
        help=Help(
            "At every evaluation, at the end of each epoch, or once at the end.",
            "Generation can take longer than the training between two evaluations.",
            "every evaluation.",
            "Time.",
        ),
    ),
    FieldSpec(
        id="evaluate_every",
        label="Evaluate every",
        step=TRAINING,
        keys=("evaluation.every_steps",),
        kind="number",
        units=("steps",),
        rare=True,
        help=Help(
            "Steps between two measurements on the held-out rows.",
            "It shows when the model stops learning and starts remembering.",
            "Empty: at each save and at the end.",
            "Time for each.",
        ),
    ),
    FieldSpec(
        id="every_epoch",
        label="Each epoch too",
        step=TRAINING,
        keys=("evaluation.every_epoch",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            "Measure at the end of each epoch as well.",
            "Epochs can be compared with what others report.",
            "off.",
            "Time for each.",
        ),
    ),
    FieldSpec(
        id="metric",
        label="Best by",
        step=TRAINING,
        keys=("evaluation.metric",),
        kind="choice",
        choices=("eval_loss", "eval_perplexity", "eval_accuracy", "eval_bleu"),
        rare=True,
        help=Help(
            "The measurement that says which checkpoint is the best.",
            "The newest is not always the best.",
            "eval_loss, or eval_bleu where text is generated.",
            "Nothing.",
        ),
    ),
    FieldSpec(
        id="keep",
        label="Checkpoints kept",
        step=TRAINING,
        keys=("checkpoint.keep",),
        kind="number",
        rare=True,
        help=Help(
            "How many checkpoints stay on the disk.",
            "A run goes on from the newest; the best may be an older one.",
            "2.",
            "Disk, in proportion.",
        ),
    ),
    FieldSpec(
        id="keep_best",
        label="Keep the best",
        step=TRAINING,
        keys=("checkpoint.keep_best",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            "Keep the best checkpoints instead of the newest; the newest stays for resuming.",
            "Training too long makes a model worse on new rows.",
            "off.",
            "Nothing; evaluation then happens at each save.",
        ),
    ),
    FieldSpec(
        id="report_to",
        label="Report to",
        step=TRAINING,
        keys=("logging.report_to",),
        kind="choice",
        choices=("tensorboard", "wandb", "tensorboard, wandb", "none"),
        rare=True,
        help=Help(
            "Where the curves are written beside the run folder's own.",
            "TensorBoard and wandb compare many runs in a browser.",
            "tensorboard: files in the run folder.",
            "wandb needs its package and an account.",
        ),
    ),
    FieldSpec(
        id="memory_every",
        label="Memory every",
        step=TRAINING,
        keys=("logging.memory_every_steps",),
        kind="number",
        units=("steps",),
        empty="off",
        rare=True,
        help=Help(
            "Steps between two entries of the memory log.",
            "It shows memory that grows from step to step.",
            "Empty: none beyond what each logged step carries.",
            "Nothing to speak of.",
        ),
    ),
)
