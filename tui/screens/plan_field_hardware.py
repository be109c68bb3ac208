"""HARDWARE_FIELDS, and the fields of one step: the first frame waits for no other table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import GOAL, HARDWARE, PROFILE, FieldSpec, Help

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


# HARDWARE_FIELDS: the profile, and the machine that the plan is for.


def has_several_gpus(plan: Plan) -> bool:
    """There are cards here to choose among."""
    return not plan.machine.hypothetical and len(plan.machine.gpus) > 1


def is_of_another_machine(plan: Plan) -> bool:
    return plan.machine.hypothetical


def is_of_cuda_cards(plan: Plan) -> bool:
    """The planned cards have figures of their own: an Apple GPU's memory is the machine's RAM."""
    return plan.machine.hypothetical and plan.machine.accelerator == "cuda"


GOALS: Mapping[str, tuple[str, str]] = {
    "demo": (mark("Run the demo"), mark("a minute, on any machine")),
    "fine-tune": (mark("Fine-tune a model"), mark("pretrained, on your data")),
    "pretrain": (mark("Pretrain a model"), mark("from scratch")),
    "profile": (mark("Use a profile"), mark("for one kind of hardware")),
}
"""Goal -> its label, and what it means in a few words."""

HARDWARE_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id=GOAL,
        label=mark("Goal"),
        step=HARDWARE,
        group=mark("What do you want to do?"),
        keys=(GOAL,),
        kind="choice",
        choices=tuple(GOALS),
        free_text=False,
        help=Help(
            mark("The demo, fine-tuning, pretraining, or a profile. Arrow keys and enter choose."),
            mark("Everything else has defaults that fit the goal, the model, the data and the machine."),
            mark("The demo first; then fine-tuning with data of your own."),
            mark("Nothing: the goal can be changed at any time. Back to the demo drops what you chose."),
        ),
    ),
    FieldSpec(
        id="profile",
        label=mark("Profile"),
        step=HARDWARE,
        group=mark("Where it begins"),
        keys=(PROFILE,),
        kind="choice",
        free_text=False,
        help=Help(
            mark("A tried set of values for one kind of hardware and one task."),
            mark("It fills every field below; what you change yourself stays changed."),
            mark("cpu-demo: a tiny model on sample data, done in about a minute on any machine."),
            mark("Nothing: profiles can be switched at any time."),
        ),
    ),
    FieldSpec(
        id="machine",
        label=mark("Plan for"),
        step=HARDWARE,
        keys=("gpu",),
        kind="choice",
        help=Help(
            mark("This machine, or another one: a card of the catalogue, or one that is given by its figures."),
            mark("What fits and how long it takes is known before the machine is bought, rented or waited for."),
            mark("This machine, unless the run is to be written here and started elsewhere."),
            mark("Nothing. A plan for another machine can be written and not started here."),
        ),
    ),
    FieldSpec(
        id="num_gpus",
        label=mark("Number of GPUs"),
        step=HARDWARE,
        keys=("num_gpus",),
        kind="number",
        when=is_of_another_machine,
        help=Help(
            mark("How many such cards the other machine has; 0 is a machine without a GPU."),
            mark(
                "Each card computes micro-batches of its own; accumulation is solved again, so that the step stays the same."
            ),
            mark("Empty: as many as the profile is made for."),
            mark("Memory on each card for what is not sharded; the time goes down."),
        ),
    ),
    FieldSpec(
        id="ram",
        label=mark("Host RAM"),
        step=HARDWARE,
        keys=("ram",),
        kind="text",
        when=is_of_another_machine,
        help=Help(
            mark("The memory of the other machine itself: 64G."),
            mark("Loading, offloading and data loader processes live in it."),
            mark("What it really has; 64 GiB is assumed where nothing says it."),
            mark("Nothing by itself."),
        ),
    ),
    FieldSpec(
        id="gpu_memory",
        label=mark("GPU memory"),
        step=HARDWARE,
        keys=("gpu_memory",),
        kind="text",
        when=is_of_cuda_cards,
        help=Help(
            mark("The memory of one card of the other machine: 24G."),
            mark("It decides the largest micro-batch."),
            mark("Empty: as the catalogue has it; a card that is not in the catalogue needs it."),
            mark("Nothing by itself."),
        ),
    ),
    FieldSpec(
        id="tflops",
        label=mark("Rate (TFLOP/s)"),
        step=HARDWARE,
        keys=("tflops",),
        kind="number",
        when=is_of_cuda_cards,
        help=Help(
            mark("Dense half-precision TFLOP/s of one card, with fp32 accumulation."),
            mark("Times follow from it; many tables print twice the dense rate, or the sparse one."),
            mark("Empty: as the catalogue has it; a card that is not in the catalogue needs it."),
            mark("Nothing by itself."),
        ),
    ),
    FieldSpec(
        id="capability",
        label=mark("Capability (sm)"),
        step=HARDWARE,
        keys=("capability",),
        kind="text",
        when=is_of_cuda_cards,
        help=Help(
            mark("The CUDA compute capability of the card: 8.6."),
            mark("It decides whether bf16, TF32 and FlashAttention-2 are there (8.0 and above)."),
            mark("Empty: as the catalogue has it; a card that is not in the catalogue needs it."),
            mark("Nothing by itself."),
        ),
    ),
    FieldSpec(
        id="gpus",
        label=mark("GPUs"),
        step=HARDWARE,
        keys=("engine.gpus",),
        kind="text",
        empty=mark("all"),
        when=has_several_gpus,
        help=Help(
            mark("The cards that train, by index or UUID: 0,1. Space on a card of the list takes it or leaves it out."),
            mark(
                "Each card computes micro-batches of its own; accumulation is solved again, so that the step stays the same."
            ),
            mark("Empty: all that are visible."),
            mark("A card that you leave out is free for something else; the run takes longer."),
        ),
    ),
)


# The fields of one step. Those of the first step need no other table, and the first frame waits for none.


def _all_of(step: int) -> Iterable[FieldSpec]:
    if step == HARDWARE:
        return HARDWARE_FIELDS
    from trainwiz.tui.screens.plan_field_table import FIELDS

    return (spec for spec in FIELDS if spec.step == step)


def fields_of(step: int, rare: bool) -> tuple[FieldSpec, ...]:
    """The fields of a step; the rarely changed ones only where `rare` is true."""
    return tuple(spec for spec in _all_of(step) if rare or not spec.rare)


def hidden_fields(step: int, plan: Plan | None) -> int:
    """How many rarely changed fields of a step have something to say to this plan."""
    return sum(spec.rare and spec.applies(plan) for spec in _all_of(step))


def field_of(field_id: str) -> FieldSpec | None:
    """The field with this id."""
    from trainwiz.tui.screens.plan_field_table import FIELD_BY_ID

    return FIELD_BY_ID.get(field_id)
