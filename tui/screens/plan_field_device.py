"""DEVICE_FIELDS: rarely changed values of the devices and processes that train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import mark
from trainwiz.tui.screens.plan_fields import TRAINING, FieldSpec, Help

if TYPE_CHECKING:
    from trainwiz.core.plan.result import Plan


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
