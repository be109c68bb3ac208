"""ENGINE_FIELDS and DEVICE_FIELDS: how a step is computed, and by which devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


# ENGINE_FIELDS: how a step is computed.

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


# DEVICE_FIELDS: rarely changed values of the devices and processes that train.


def on_cuda(plan: Plan) -> bool:
    return plan.config.engine.device == "cuda"


def on_cpu(plan: Plan) -> bool:
    return plan.config.engine.device == "cpu"


def has_several_processes(plan: Plan) -> bool:
    return plan.batch.world_size > 1


def has_several_machines(plan: Plan) -> bool:
    return plan.config.engine.nodes > 1


DEVICE_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec(
        id="offload",
        label=mark("In host RAM"),
        step=TRAINING,
        group=mark("Devices and processes"),
        keys=("engine.offload",),
        kind="choice",
        choices=("none", "optimizer", "all"),
        free_text=False,
        rare=True,
        help=Help(
            mark("What is kept in host RAM instead of on the GPU."),
            mark("Optimizer states are the largest part of the training states."),
            mark("nothing."),
            mark("Time: every step moves gradients and weights over the bus."),
        ),
    ),
    FieldSpec(
        id="eval_micro_batch",
        label=mark("Evaluation batch"),
        step=TRAINING,
        keys=("batch.eval_micro_batch_size",),
        kind="number",
        units=(mark("sequences"),),
        rare=True,
        help=Help(
            mark("Sequences that one process evaluates at once."),
            mark("An evaluation keeps no activations, but it makes logits as well."),
            mark("Empty: the largest that fits."),
            mark("Memory while it evaluates."),
        ),
    ),
    FieldSpec(
        id="device",
        label=mark("Device"),
        step=TRAINING,
        keys=("engine.device",),
        kind="choice",
        choices=("cuda", "mps", "cpu"),
        free_text=False,
        rare=True,
        help=Help(
            mark("The kind of device that trains."),
            mark("A CPU is tens of times slower than a GPU."),
            mark("What was detected."),
            mark("Time."),
        ),
    ),
    FieldSpec(
        id="processes",
        label=mark("Processes"),
        step=TRAINING,
        keys=("engine.processes",),
        kind="number",
        rare=True,
        help=Help(
            mark("Training processes on this machine."),
            mark("Each computes micro-batches of its own, on a GPU of its own."),
            mark("Empty: one for each GPU, one on a CPU."),
            mark("On a CPU they share RAM and cores."),
        ),
    ),
    FieldSpec(
        id="nodes",
        label=mark("Machines"),
        step=TRAINING,
        keys=("engine.nodes",),
        kind="number",
        rare=True,
        help=Help(
            mark("How many machines train together."),
            mark("Every machine starts the same folder, on a disk that all share; `trainwiz export` has the commands."),
            mark("1."),
            mark("Traffic between the machines at every step."),
        ),
    ),
    FieldSpec(
        id="nodes_timeout",
        label=mark("Wait for machines"),
        step=TRAINING,
        keys=("engine.nodes_timeout_s",),
        kind="number",
        units=("s",),
        rare=True,
        when=has_several_machines,
        help=Help(
            mark("Seconds that a machine waits for the others to come before it gives up."),
            mark("They are started by hand or by a queue, one after another."),
            mark("300 s."),
            mark("Nothing; a machine that does not come is said that late."),
        ),
    ),
    FieldSpec(
        id="network",
        label=mark("Network"),
        step=TRAINING,
        keys=("planning.network_gbit_s",),
        kind="number",
        units=("Gbit/s",),
        rare=True,
        when=has_several_machines,
        help=Help(
            mark("Gigabits a second between the machines."),
            mark("The gradients of each step go through it; the time of the plan depends on it."),
            mark("Empty: 10 are assumed."),
            mark("Nothing: the run does not look at it."),
        ),
    ),
    FieldSpec(
        id="tf32",
        label=mark("TF32 products"),
        step=TRAINING,
        keys=("engine.tf32",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        when=on_cuda,
        help=Help(
            mark("Matrix products of what stays in fp32 are rounded to TF32."),
            mark("They are several times faster from sm 8.0 on."),
            mark("on from sm 8.0 on."),
            mark("Three digits of precision instead of seven."),
        ),
    ),
    FieldSpec(
        id="compile",
        label=mark("torch.compile"),
        step=TRAINING,
        keys=("engine.compile",),
        kind="choice",
        choices=("off", "on"),
        free_text=False,
        rare=True,
        help=Help(
            mark("Compile the model into fused kernels."),
            mark("Steps can be a fifth faster on a GPU."),
            mark("off; on for long runs."),
            mark("Minutes at the start, and again for each new shape."),
        ),
    ),
    FieldSpec(
        id="empty_cache",
        label=mark("Release cache every"),
        step=TRAINING,
        keys=("training.empty_cache_steps",),
        kind="number",
        units=(mark("steps"),),
        empty=mark("off"),
        rare=True,
        when=on_cuda,
        help=Help(
            mark("Steps between two releases of the cached GPU memory."),
            mark("It helps against fragmentation only."),
            mark("Empty: never."),
            mark("Time: the cache has to be filled again."),
        ),
    ),
    FieldSpec(
        id="cpu_threads",
        label=mark("CPU threads"),
        step=TRAINING,
        keys=("engine.cpu_threads",),
        kind="number",
        rare=True,
        help=Help(
            mark("Threads of each training process."),
            mark("More threads than cores slow each other down."),
            mark("Empty: the cores, shared among the processes."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="process_timeout",
        label=mark("Wait for others"),
        step=TRAINING,
        keys=("engine.process_timeout_s",),
        kind="number",
        units=("s",),
        rare=True,
        when=has_several_processes,
        help=Help(
            mark("Seconds that a process waits for the others before it gives up."),
            mark("A process that died would be waited for until then."),
            mark("Empty: 30 minutes, or longer where one step takes longer."),
            mark("Nothing."),
        ),
    ),
    FieldSpec(
        id="environment",
        label=mark("Environment"),
        step=TRAINING,
        keys=("engine.environment",),
        kind="text",
        empty=mark("nothing of its own"),
        rare=True,
        help=Help(
            mark("Environment variables of the run: NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO."),
            mark("Some machines need one to work around a driver."),
            mark("Empty."),
            mark("Nothing; they are written into the launch script, so put no secret here."),
        ),
    ),
    FieldSpec(
        id="deepspeed_file",
        label=mark("DeepSpeed file"),
        step=TRAINING,
        keys=("engine.deepspeed_file",),
        kind="text",
        empty=mark("none"),
        rare=True,
        help=Help(
            mark("A DeepSpeed JSON of your own, used as it is."),
            mark("For settings that trainwiz does not know."),
            mark("Empty: trainwiz writes it."),
            mark("What contradicts the plan is listed, and the run does not start."),
        ),
    ),
)
