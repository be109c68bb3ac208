"""EVALUATION_FIELDS: how the model is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


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
