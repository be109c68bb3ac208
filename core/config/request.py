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
        None, "Tested settings for one kind of hardware and one task.",
        "Fills in every field below; your own changes are kept.",
        "cpu-demo: a tiny model on sample data; takes a few minutes on any machine.",
        "Nothing: profiles can be switched at any time.",
        label="Profile", step=HARDWARE, group="Starting point", offers=(),
        option="--profile NAME",
        says="Start from this profile; `trainwiz profiles list` lists all, `none` uses no profile.",
    )
    gpu: str = setting(
        None, "This machine or another one: a GPU from the catalog, or one described by its specs.",
        "Shows what fits and how long it takes before you buy, rent or wait for the machine.",
        "This machine, unless the run is to be written on this machine and started elsewhere.",
        "Nothing. A plan for another machine can be written but not started on this machine.",
        label="Target machine", step=HARDWARE, group="Starting point", id="machine", offers=(), free_text=True,
        option="--gpu NAME", says='Plan for another machine, for example "RTX 3080 10GB".', option_group="where",
    )
    num_gpus: int = setting(
        None, "Number of these GPUs in the other machine; 0 is a machine without a GPU.",
        "Each GPU computes its own micro-batches; gradient accumulation is recomputed to keep the effective batch "
            "the same.",
        "Empty: as many as the profile is for.",
        "GPU memory: every GPU keeps its own copy of what is not sharded. The run takes less time.",
        label="Number of GPUs", step=HARDWARE, group="Starting point", when="another_machine",
        option="--num-gpus N", says="Number of GPUs in that machine.", option_group="where",
    )
    ram: Size = setting(
        None, "RAM of the other machine, such as 64G.",
        "Used by model loading, offloading and data loader workers.",
        "The actual amount; 64 GiB is assumed if it is unknown.",
        label="RAM", step=HARDWARE, group="Starting point", when="another_machine",
        option="--ram SIZE", says="RAM of that machine, such as 64G.", option_group="where",
    )
    # A card that is not in the catalogue is described by options alone: no rows of the wizard.
    gpu_memory: Size = setting(
        None, option="--gpu-memory SIZE", says="Memory of a GPU that is not in the catalog.", option_group="where",
    )
    tflops: float = setting(
        None, option="--tflops N", says="Its dense half-precision TFLOP/s.", option_group="where",
    )
    fp32_tflops: float = setting(None, option="--fp32-tflops N", says="Its fp32 TFLOP/s.", option_group="where")
    bandwidth: float = setting(None, option="--bandwidth N", says="Its memory bandwidth in GB/s.", option_group="where")
    capability: str = setting(
        None, option="--capability X.Y", says="Its compute capability, such as 8.6.", option_group="where",
    )
    name: str = setting(
        None, "Name of the run; part of its folder name.",
        "Identifies the run later.",
        "A word for what you are trying.",
        label="Name", step=REVIEW,
        option="--name NAME", says="Name of the run.", option_group="run",
    )
    output_dir: str = setting(
        None, "The run folder; contains everything about the run.",
        "Another disk may have more free space.",
        "Empty: runs/<time>-<name> in the current folder. A folder that is not empty is refused.",
        "Disk space, as shown in the plan.",
        label="Folder", step=REVIEW, id="folder",
        option="--output-dir FOLDER", says="The run folder; new or empty, except with --resume.", option_group="run",
    )
