"""GOAL, OPTIMIZER, RECOVERY and TRAINING_FIELDS: what one wants from the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_field_data import LOADING_FIELDS
from trainwiz.tui.screens.plan_field_engine import DEVICE_FIELDS, ENGINE_FIELDS
from trainwiz.tui.screens.plan_field_evaluation import EVALUATION_FIELDS, KEEPING_FIELDS
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help, has_text

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


# GOAL_FIELDS: what one wants from the training.

GOAL_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="target",
        label=mark("Target batch"),
        step=TRAINING,
        group=mark("What you want"),
        keys=("batch.target_tokens", "batch.target_real_tokens", "batch.target_samples"),
        units=(mark("tokens"), mark("real tokens"), mark("sequences")),
        kind="number",
        help=Help(
            mark("How much one optimizer step should see: tokens, real tokens (padding not counted) or sequences."),
            mark(
                "The recipe of a model is tuned for one batch size; the same batch gives the same training on any card."
            ),
            mark("The profile's."),
            mark("A larger batch makes a step longer and needs a higher learning rate; memory stays as it is."),
        ),
    ),
    FieldSpec(
        id="steps",
        label=mark("Run for"),
        step=TRAINING,
        keys=("training.max_steps", "training.epochs"),
        units=(mark("steps"), mark("epochs")),
        kind="number",
        help=Help(
            mark("How long to train: optimizer steps, or passes over the data (epochs)."),
            mark("It decides the total time."),
            mark("Few steps first; a finished short run tells more than a stopped long one."),
            mark("Time, in proportion."),
        ),
    ),
    FieldSpec(
        id="learning_rate",
        label=mark("Peak learning rate"),
        step=TRAINING,
        keys=("training.learning_rate",),
        kind="number",
        help=Help(
            mark("The largest step that the optimizer takes."),
            mark("Too high and the loss jumps or becomes NaN; too low and it hardly falls."),
            mark("The profile's. Without one: 4e-4 for training from scratch, 2e-5 for fine-tuning."),
            mark("Nothing in memory or time."),
        ),
    ),
    FieldSpec(
        id="warmup",
        label=mark("Warm-up"),
        step=TRAINING,
        keys=("training.warmup",),
        kind="number",
        help=Help(
            mark("Steps until the peak learning rate; below 1 it is a share of all steps."),
            mark("Large first steps can ruin random weights."),
            mark("0.02 to 0.1."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="schedule",
        label=mark("Schedule"),
        step=TRAINING,
        keys=("training.schedule",),
        kind="choice",
        choices=("linear", "cosine", "constant", "polynomial"),
        free_text=False,
        help=Help(
            mark("How the learning rate falls after the warm-up."),
            mark("A falling rate ends at a lower loss."),
            mark("linear."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="final_learning_rate",
        label=mark("Last learning rate"),
        step=TRAINING,
        keys=("training.final_learning_rate",),
        kind="number",
        help=Help(
            mark("Where the decay ends: the rate at the last step."),
            mark("Some recipes end at a tenth of the peak."),
            mark("0."),
            mark("Nothing."),
        ),
    ),
)


# OPTIMIZER_FIELDS: rarely changed values of the optimizer and the loss.


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


# RECOVERY_FIELDS: rarely changed values of what follows a failure.

RECOVERY_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="recovery",
        label=mark("Go on by itself"),
        step=TRAINING,
        group=mark("When it fails"),
        keys=("recovery.on",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Start again from the last checkpoint after a failure that a new start can cure."),
            mark("GPU memory that runs out at night costs minutes, not days; the effective batch stays."),
            mark("on."),
            mark("Nothing while all is well."),
        ),
    ),
    FieldSpec(
        id="max_restarts",
        label=mark("Starts in a row"),
        step=TRAINING,
        keys=("recovery.max_restarts",),
        kind="number",
        rare=True,
        help=Help(
            mark("Starts by itself without a new checkpoint before it gives up."),
            mark("What fails again and again does not pass."),
            mark("3; 0 starts nothing again."),
            mark("The time of the failed starts."),
        ),
    ),
    FieldSpec(
        id="on_nan",
        label=mark("Loss not a number"),
        step=TRAINING,
        keys=("recovery.on_nan",),
        kind="choice",
        choices=("stop", "continue"),
        free_text=False,
        rare=True,
        help=Help(
            mark("End the run at its last good checkpoint, or go on and only say so."),
            mark("NaN weights never recover."),
            mark("stop."),
            mark("continue may train for days on nothing."),
        ),
    ),
    FieldSpec(
        id="disk_wait",
        label=mark("Wait for disk"),
        step=TRAINING,
        keys=("recovery.disk_wait_s",),
        kind="number",
        units=("s",),
        rare=True,
        help=Help(
            mark("Seconds that a save waits for room on a full disk before the run ends."),
            mark("Free some space meanwhile, and it goes on."),
            mark("3,600."),
            mark("The time of the wait."),
        ),
    ),
)


# TRAINING_FIELDS: the goal first, then how it is done and measured, then what is rarely changed.

TRAINING_FIELDS: tuple[FieldSpec, ...] = (
    *GOAL_FIELDS,
    *ENGINE_FIELDS,
    *EVALUATION_FIELDS,
    *OPTIMIZER_FIELDS,
    *DEVICE_FIELDS,
    *LOADING_FIELDS,
    *RECOVERY_FIELDS,
    *KEEPING_FIELDS,
)
