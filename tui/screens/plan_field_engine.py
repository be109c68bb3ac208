"""ENGINE_FIELDS: how a step is computed."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help

ENGINE_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="precision",
        label=mark("Precision"),
        step=TRAINING,
        group=mark("How it is done"),
        keys=("engine.precision",),
        kind="choice",
        choices=("fp32", "tf32", "fp16", "bf16", "bf16-true"),
        free_text=False,
        help=Help(
            mark("The number format of the computation."),
            mark("16 bits halve the memory of activations and use the card's tensor cores."),
            mark("What was detected: bf16 from sm 8.0 on, fp16 below, fp32 without a GPU."),
            mark("fp16 needs loss scaling; bf16-true also stores weights in 16 bits and rounds small updates away."),
        ),
    ),
    FieldSpec(
        id="attention",
        label=mark("Attention"),
        step=TRAINING,
        keys=("engine.attention",),
        kind="choice",
        choices=("sdpa", "eager", "flash_attention_2"),
        free_text=False,
        help=Help(
            mark("The kernel that computes attention."),
            mark("sdpa and flash attention keep no matrix of length × length."),
            mark("sdpa."),
            mark("eager costs memory and time; flash attention needs sm 8.0 and its own package."),
        ),
    ),
    FieldSpec(
        id="checkpointing",
        label=mark("Checkpointing"),
        step=TRAINING,
        keys=("engine.checkpointing",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        help=Help(
            mark("Compute activations again in the backward pass instead of keeping them."),
            mark("Activations are most of the memory of long inputs."),
            mark("off where the plan fits, on where it does not."),
            mark("About a third more time a step."),
        ),
    ),
    FieldSpec(
        id="optimizer",
        label=mark("Optimizer"),
        step=TRAINING,
        keys=("engine.optimizer",),
        kind="choice",
        choices=("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adamw_bnb_8bit", "paged_adamw_8bit"),
        free_text=False,
        help=Help(
            mark("How gradients become updates."),
            mark("AdamW keeps two numbers for each weight: 8 bytes a parameter."),
            mark("AdamW."),
            mark("8 bit keeps a quarter of that; SGD none, and needs another learning rate."),
        ),
    ),
    FieldSpec(
        id="strategy",
        label=mark("Strategy"),
        step=TRAINING,
        keys=("engine.strategy",),
        kind="choice",
        choices=("single", "ddp", "fsdp", "zero1", "zero2", "zero3"),
        free_text=False,
        help=Help(
            mark("How processes share the work and the training states."),
            mark("One process for one device; DDP for several; ZeRO and FSDP split what does not fit."),
            mark("What was solved."),
            mark("ZeRO needs DeepSpeed; splitting costs traffic between the devices."),
        ),
    ),
    FieldSpec(
        id="micro_batch",
        label=mark("Micro-batch"),
        step=TRAINING,
        keys=("batch.micro_batch_size",),
        kind="number",
        units=(mark("sequences"),),
        help=Help(
            mark("Sequences that one process computes at once."),
            mark("It decides the memory of activations and how busy the device is."),
            mark("Empty: the largest that fits."),
            mark("Memory, in proportion; below 4 a GPU idles."),
        ),
    ),
    FieldSpec(
        id="accumulation",
        label=mark("Accumulation"),
        step=TRAINING,
        keys=("batch.gradient_accumulation_steps",),
        kind="number",
        help=Help(
            mark("Micro-batches that are summed before one optimizer step."),
            mark("It reaches the target batch on a small card."),
            mark("Empty: solved from the target batch."),
            mark("Time a step, in proportion; hardly any memory."),
        ),
    ),
)
