"""OPTIMIZER_FIELDS: rarely changed values of the optimizer and the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


def hides_tokens(plan: Plan) -> bool:
    return plan.task == "masked-lm"


OPTIMIZER_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="weight_decay",
        label=mark("Weight decay"),
        step=TRAINING,
        group=mark("Optimizer and loss"),
        keys=("training.weight_decay",),
        kind="number",
        rare=True,
        help=Help(
            mark("Pulls weights towards zero."),
            mark("It keeps a model from remembering rows."),
            mark("0.01."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="max_grad_norm",
        label=mark("Gradient clipping"),
        step=TRAINING,
        keys=("training.max_grad_norm",),
        kind="number",
        rare=True,
        help=Help(
            mark("Longer gradients are shortened to this norm; 0 switches it off."),
            mark("One bad batch cannot throw the weights far."),
            mark("1."),
            mark("Nothing to speak of."),
        ),
    ),
    FieldSpec(
        id="adam_beta1",
        label=mark("Adam beta 1"),
        step=TRAINING,
        keys=("training.adam_beta1",),
        kind="number",
        rare=True,
        help=Help(
            mark("How much of the last steps' direction is kept."),
            mark("It smooths noisy gradients."),
            mark("0.9."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="adam_beta2",
        label=mark("Adam beta 2"),
        step=TRAINING,
        keys=("training.adam_beta2",),
        kind="number",
        rare=True,
        help=Help(
            mark("How long the size of gradients is remembered."),
            mark("Large batches and language models from scratch often take 0.95 to 0.98."),
            mark("0.999."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="adam_epsilon",
        label=mark("Adam epsilon"),
        step=TRAINING,
        keys=("training.adam_epsilon",),
        kind="number",
        rare=True,
        help=Help(
            mark("A small number that keeps Adam from dividing by zero."),
            mark("A larger one damps the steps of weights with tiny gradients."),
            mark("1e-8."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="label_smoothing",
        label=mark("Label smoothing"),
        step=TRAINING,
        keys=("training.label_smoothing",),
        kind="number",
        rare=True,
        when=has_text,
        help=Help(
            mark("Share of the certainty that is spread over all tokens."),
            mark("A model that is less sure of the training data often translates better."),
            mark("0.1 for translation, 0 else."),
            mark("The loss is higher by it; compare losses with the same smoothing only."),
        ),
    ),
    FieldSpec(
        id="loss_mean",
        label=mark("Mean of the loss"),
        step=TRAINING,
        keys=("training.loss_mean",),
        kind="choice",
        choices=("tokens", "micro_batches"),
        free_text=False,
        rare=True,
        help=Help(
            mark(
                "Over what the loss of an optimizer step is a mean: all its labelled tokens, or the means of its micro-batches."
            ),
            mark("With token means the gradient does not depend on which rows share a micro-batch."),
            mark("Empty: tokens. micro_batches repeats a run of the Trainer of transformers with an ESM model."),
            mark("micro_batches leaves rows as drawn, with all their padding."),
        ),
    ),
    FieldSpec(
        id="mask_probability",
        label=mark("Hidden tokens"),
        step=TRAINING,
        keys=("training.mask_probability",),
        kind="number",
        rare=True,
        when=hides_tokens,
        help=Help(
            mark("Share of the tokens that the model has to guess."),
            mark("More of them make a harder task from the same rows."),
            mark("0.15."),
            mark("Nothing; losses with different shares do not compare."),
        ),
    ),
    FieldSpec(
        id="loss_chunk",
        label=mark("Loss in slices of"),
        step=TRAINING,
        keys=("training.loss_chunk",),
        kind="number",
        units=(mark("tokens"),),
        empty=mark("off"),
        rare=True,
        help=Help(
            mark("Compute the loss of so many tokens at a time."),
            mark("The logits of a large vocabulary can take more memory than the model."),
            mark("Empty: all tokens at once; 1,024 where the logits do not fit."),
            mark("A little time."),
        ),
    ),
    FieldSpec(
        id="seed",
        label=mark("Seed"),
        step=TRAINING,
        keys=("training.seed",),
        kind="number",
        rare=True,
        help=Help(
            mark("Start of all random numbers."),
            mark("The same seed repeats the same run."),
            mark("42."),
            mark("Nothing."),
        ),
    ),
)
