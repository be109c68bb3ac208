"""PlanRequest: what a front end asks for, before anything is detected, read or solved."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from trainwiz.core.config.setting import HARDWARE, REVIEW, setting

Size = Annotated[int, "bytes, also as text with a unit"]
RunMode = Literal["train", "smoke", "dev-run", "overfit", "benchmark"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The wizard, `trainwiz --yes` and `trainwiz plan` all build one of these and get the same plan."""

    profile: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    """RunConfig key path -> value, as the user gave it (typed values or strings from --set)."""
    mode: RunMode = "train"
    overfit_batches: int | None = None
    benchmark_steps: int | None = None
    trace_steps: int | None = None
    gpu: str | None = None
    """Plan for another machine: a name from the GPU catalogue."""
    num_gpus: int | None = None
    ram_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    tflops: float | None = None
    """Dense half-precision rate of a GPU that is not in the catalogue."""
    fp32_tflops: float | None = None
    bandwidth: float | None = None
    """Of its memory, in GB/s."""
    capability: str | None = None
    """Compute capability of a GPU that is not in the catalogue, like "8.6"."""
    output_dir: str | None = None
    name: str | None = None
    force: bool = False


# What a request says beside the values of the run: where it begins, another machine, where it goes. Declared like settings,
# with a row and an option each, and no key of a RunConfig.

# fmt: off


class RequestSettings:
    """Their keys are the names of the options."""

    profile: str = setting(
        None, "A tried set of values for one kind of hardware and one task.",
        "It fills every field below; what you change yourself stays changed.",
        "cpu-demo: a tiny model on sample data, done in about a minute on any machine.",
        "Nothing: profiles can be switched at any time.",
        label="Profile", step=HARDWARE, group="Where it begins", offers=(),
        option="--profile NAME",
        says="Start from this profile; `trainwiz profiles list` shows them, `none` starts from none.",
    )
    gpu: str = setting(
        None, "This machine, or another one: a card of the catalogue, or one that is given by its figures.",
        "What fits and how long it takes is known before the machine is bought, rented or waited for.",
        "This machine, unless the run is to be written here and started elsewhere.",
        "Nothing. A plan for another machine can be written and not started here.",
        label="Plan for", step=HARDWARE, group="Where it begins", id="machine", offers=(), free_text=True,
        option="--gpu NAME", says='Plan for another machine, like "RTX 3080 10GB".', option_group="where",
    )
    num_gpus: int = setting(
        None, "How many such cards the other machine has; 0 is a machine without a GPU.",
        "Each card computes micro-batches of its own; accumulation is solved again, so that the step stays the same.",
        "Empty: as many as the profile is made for.",
        "Memory on each card for what is not sharded; the time goes down.",
        label="Number of GPUs", step=HARDWARE, group="Where it begins", when="another_machine",
        option="--num-gpus N", says="How many of them.", option_group="where",
    )
    ram: Size = setting(
        None, "The memory of the other machine itself: 64G.",
        "Loading, offloading and data loader processes live in it.",
        "What it really has; 64 GiB is assumed where nothing says it.",
        label="Host RAM", step=HARDWARE, group="Where it begins", when="another_machine",
        option="--ram SIZE", says="Its host RAM, like 64G.", option_group="where",
    )
    gpu_memory: Size = setting(
        None, "The memory of one card of the other machine: 24G.",
        "It decides the largest micro-batch.",
        "Empty: as the catalogue has it; a card that is not in the catalogue needs it.",
        label="GPU memory", step=HARDWARE, group="Where it begins", when="another_cuda_card",
        option="--gpu-memory SIZE", says="Memory of a GPU that is not in the catalogue.", option_group="where",
    )
    tflops: float = setting(
        None, "Dense half-precision TFLOP/s of one card, with fp32 accumulation.",
        "Times follow from it; many tables print twice the dense rate, or the sparse one.",
        "Empty: as the catalogue has it; a card that is not in the catalogue needs it.",
        label="Rate (TFLOP/s)", step=HARDWARE, group="Where it begins", when="another_cuda_card",
        option="--tflops N", says="Its dense half-precision rate.", option_group="where",
    )
    fp32_tflops: float = setting(
        None, "TFLOP/s of one card in fp32, without tensor cores.",
        "A run in fp32 takes its time from it.",
        "Empty: as the catalogue has it, or an eighth of the half-precision rate.",
        label="fp32 (TFLOP/s)", step=HARDWARE, group="Where it begins", when="another_cuda_card",
        option="--fp32-tflops N", says="Its fp32 rate.", option_group="where",
    )
    bandwidth: float = setting(
        None, "The bandwidth of the card's memory, in GB/s.",
        "Small models and long rows wait for the memory, not for the products.",
        "Empty: as the catalogue has it, or what cards of this rate usually have.",
        label="Bandwidth (GB/s)", step=HARDWARE, group="Where it begins", when="another_cuda_card",
        option="--bandwidth N", says="Its memory's bandwidth in GB/s.", option_group="where",
    )
    capability: str = setting(
        None, "The CUDA compute capability of the card: 8.6.",
        "It decides whether bf16, TF32 and FlashAttention-2 are there (8.0 and above).",
        "Empty: as the catalogue has it; a card that is not in the catalogue needs it.",
        label="Capability (sm)", step=HARDWARE, group="Where it begins", when="another_cuda_card",
        option="--capability X.Y", says="Its compute capability, like 8.6.", option_group="where",
    )
    name: str = setting(
        None, "The name of the run, part of its folder's name.",
        "You find the run again by it.",
        "A word for what you try.",
        label="Name", step=REVIEW,
        option="--name NAME", says="Name of the run.", option_group="run",
    )
    output_dir: str = setting(
        None, "The run folder: everything about the run is in it.",
        "Another disk may have more room.",
        "Empty: runs/<time>-<name> here. A folder that is not empty is refused.",
        "Disk, as the plan shows.",
        label="Folder", step=REVIEW, id="folder",
        option="--output-dir FOLDER", says="The run folder itself; new or empty.", option_group="run",
    )
