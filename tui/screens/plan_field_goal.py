"""GOAL_FIELDS: what one wants from the training."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help

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
