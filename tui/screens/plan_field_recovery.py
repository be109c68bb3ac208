"""RECOVERY_FIELDS: rarely changed values of what follows a failure."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help

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
