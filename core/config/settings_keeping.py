"""Settings: what is measured, kept and reported, and what follows a failure."""

from typing import Literal

from trainwiz.core.config.setting import Section, setting
from trainwiz.core.config.values import ContextSize

# A table: the texts of an entry, its bounds and its row, its option.
# fmt: off


class EvaluationSection(Section):
    """When and how the held-out rows are measured."""

    generate: bool = setting(
        False, "Let the model write the held-out targets, and score them with BLEU.",
        "A loss does not say how well a translation reads.",
        "on for translation, off for the rest.",
        "Time: one token after the other, for every held-out row.",
        label="Generate text", group="How it is measured", when="text",
    )
    beams: int = setting(
        1, "Alternatives that the search keeps while it generates; 1 is greedy.",
        "A few beams raise BLEU by a point or so.",
        "4 for translation, 1 else.",
        "Memory and time of generation, in proportion.",
        ge=1, le=64, label="Beams", group="How it is measured", when="generates",
    )
    generation_length: int | None = setting(
        None, "Generated texts end here at the latest.",
        "An undertrained model may never write an end token.",
        "Empty: the longest target.",
        "Time and memory of generation.",
        ge=1, le=1048576, label="Longest generation", group="How it is measured", rare=True, when="generates",
        unit="tokens", empty="the target length",
    )
    generation_rows: int | None = setting(
        None, "Generate for the first held-out rows only.",
        "Generation is slow; a few hundred rows give a BLEU that is steady enough to compare.",
        "Empty: all held-out rows.",
        "Time, in proportion.",
        ge=1, label="Rows to generate", group="How it is measured", rare=True, when="generates", unit="rows",
        empty="all held-out rows",
    )
    generate_at: Literal["evaluation", "epoch", "end"] = setting(
        "evaluation", "At every evaluation, at the end of each epoch, or once at the end.",
        "Generation can take longer than the training between two evaluations.",
        "every evaluation.",
        "Time.",
        label="Generate at", group="How it is measured", rare=True, when="generates",
        words={"evaluation": "every evaluation", "epoch": "the end of each epoch", "end": "the end of the run"},
    )
    bleu_tokenizer: Literal["13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "none"] | None = setting(
        None, "How sacrebleu cuts texts into words.",
        "Scores compare only where texts were cut in the same way.",
        "Empty: zh for Chinese references, else 13a.",
        label="BLEU words", group="How it is measured", rare=True, when="generates", empty="zh for Chinese, else 13a",
    )
    every_steps: int | None = setting(
        None, "Steps between two measurements on the held-out rows.",
        "It shows when the model stops learning and starts remembering.",
        "Empty: at each save and at the end.",
        "Time for each.",
        ge=1, label="Evaluate every", group="How it is measured", id="evaluate_every", rare=True, unit="steps",
    )
    every_epoch: bool = setting(
        False, "Measure at the end of each epoch as well.",
        "Epochs can be compared with what others report.",
        "off.",
        "Time for each.",
        label="Each epoch too", group="How it is measured", rare=True,
    )
    at_start: bool | None = setting(
        None, "Measure before the first step too.",
        "The curve then begins with what the model could do before the training.",
        "Empty: on for a model that was trained before.",
        "Time for one evaluation.",
        label="Before step 1", group="How it is measured", rare=True, empty="on for pretrained weights",
        trainer="eval_on_start",
    )
    prompts: str | None = setting(
        None, "A file of prompts that the model answers before the first step and at every evaluation.",
        "A loss does not say what the model says.",
        "Empty: rows, which takes three held-out rows. A text file has one prompt a line, a .jsonl file one list of "
        "messages a line. none asks nothing.",
        "A few seconds for each evaluation; the plan counts them.",
        label="Prompts", group="How it is measured", rare=True, empty="three held-out rows", offers=("rows", "none"),
        free_text=True, option="--prompts FILE", says="Prompts that the model answers at every evaluation: a file, rows or none.",
        option_group="how",
    )
    patience: int | None = setting(
        None, "End the training after so many evaluations in a row without a better score.",
        "Training on after that makes the model worse on new rows.",
        "Empty: train to the last step.",
        "A run may end before a late gain.",
        ge=1, label="Early stopping", group="How it is measured", rare=True, unit="evaluations", empty="off",
    )
    metric: str | None = setting(
        None, "The measurement that says which checkpoint is the best.",
        "The newest is not always the best.",
        "eval_loss, or eval_bleu where text is generated.",
        label="Best by", group="How it is measured", rare=True,
        offers=("eval_loss", "eval_perplexity", "eval_accuracy", "eval_f1", "eval_bleu"), free_text=True,
    )


class CheckpointSection(Section):
    """What is saved."""

    every_steps: int | None = setting(
        None, "Steps between two checkpoints.",
        "A run that fails resumes from the last one.",
        "Empty: ten times over the run, at least every 500 steps.",
        "Disk and the time to write; old checkpoints are removed.",
        ge=1, label="Save every", group="What is kept and reported", id="save_every", rare=True, unit="steps",
    )
    keep: int = setting(
        2, "How many checkpoints stay on the disk.",
        "A run resumes from the newest; the best may be older.",
        "2.",
        "Disk, in proportion.",
        ge=1, le=10000, label="Checkpoints kept", group="What is kept and reported", rare=True,
    )
    keep_best: bool = setting(
        False, "Keep the best checkpoints instead of the newest; the newest stays for resuming.",
        "Training too long makes a model worse on new rows.",
        "off.",
        "Nothing; evaluation then happens at each save.",
        label="Keep the best", group="What is kept and reported", rare=True,
    )
    final: Literal["best", "last"] | None = setting(
        None, "Which weights final_model has: those of the best checkpoint, or of the last step.",
        "The last step is often not the best one on new rows.",
        "Empty: the best where rows are held out, else the last.",
        "Nothing; every checkpoint is then evaluated, and the best one stays on the disk.",
        label="Final model", group="What is kept and reported", rare=True, empty="the best, where it is measured",
        words={"best": "the best checkpoint", "last": "the last step"},
    )


class RecoverySection(Section):
    """What trainwiz does automatically when an unattended run fails."""

    on: bool = setting(
        True, "Start again from the last checkpoint after a failure that a new start can cure.",
        "GPU memory that runs out at night costs minutes, not days; the effective batch stays.",
        "on.",
        "Nothing while all is well.",
        label="Restart automatically", group="When it fails", id="recovery", rare=True,
    )
    max_restarts: int = setting(
        3, "Automatic restarts without a new checkpoint before it gives up.",
        "What fails again and again does not pass.",
        "3; 0 starts nothing again.",
        "The time of the failed starts.",
        ge=0, le=100, label="Starts in a row", group="When it fails", rare=True,
    )
    on_nan: Literal["stop", "continue"] = setting(
        "stop", "End the run at its last good checkpoint, or go on and only say so.",
        "NaN weights never recover.",
        "stop.",
        "continue may train for days on nothing.",
        label="Loss not a number", group="When it fails", rare=True,
    )
    disk_wait_s: float = setting(
        3600.0, "Seconds that a save waits for room on a full disk before the run ends.",
        "Free some space in the meantime and the save continues.",
        "3,600.",
        "The time of the wait.",
        ge=0, le=604800, label="Wait for disk", group="When it fails", id="disk_wait", rare=True, unit="s",
    )


class LoggingSection(Section):
    """What is reported."""

    every_steps: int | None = setting(
        None, "Steps between two lines of the curves.",
        "The monitor shows what was logged.",
        "Empty: a line every few seconds.",
        ge=1, label="Log every", group="What is kept and reported", id="log_every", rare=True, unit="steps",
    )
    memory_every_steps: int | None = setting(
        None, "Steps between two entries of the memory log.",
        "It shows memory that grows from step to step.",
        "Empty: none beyond what each logged step carries.",
        ge=1, label="Memory every", group="What is kept and reported", id="memory_every", rare=True, unit="steps",
        empty="off",
    )
    system_every_s: float = setting(
        1.0, "Seconds between two samples of GPU, RAM and disk.",
        "The monitor and the advice follow from them.",
        "1.",
        "A little CPU time and disk.",
        ge=0.2, le=3600, label="Sample machine every", group="What is kept and reported", id="system_every", rare=True,
        unit="s",
    )
    report_to: list[str] = setting(
        ["tensorboard"], "Where the curves are written beside the run folder's own.",
        "TensorBoard and wandb compare many runs in a browser.",
        "tensorboard: files in the run folder.",
        "wandb needs its package and an account.",
        label="Report to", group="What is kept and reported", rare=True,
        offers=("tensorboard", "wandb", "tensorboard, wandb", "none"), free_text=True,
        option="--report-to A,B,...", says="tensorboard, wandb, none, ...", option_group="how",
    )


class PlanningSection(Section):
    """What only the preview needs."""

    network_gbit_s: float | None = setting(
        None, "Gigabits a second between the machines.",
        "The gradients of each step go through it; the time of the plan depends on it.",
        "Empty: 10 are assumed.",
        "Nothing: the run does not look at it.",
        gt=0, le=1e5, label="Network", group="Devices and processes", id="network",
        after="engine.nodes_timeout_s", rare=True, when="several_machines", unit="Gbit/s",
    )
    energy_price_per_kwh: float | None = setting(
        None, "What a kilowatt-hour costs, in your currency.",
        "The plan then shows what the run costs.",
        "Empty: no cost is shown.",
        ge=0, le=1e6, label="Price of a kWh", group="For the plan alone", id="energy_price", rare=True,
    )
    currency: str = setting(
        "", "The word behind the cost, such as EUR.",
        "A number alone says little.",
        "Empty.",
        max_length=8, label="Currency", group="For the plan alone", rare=True,
    )
    context_bytes: ContextSize | None = setting(
        None, "What nvidia-smi shows for an idle CUDA process on this card, such as 500M.",
        "Every process takes it from the card's memory before it trains.",
        "Empty: what was measured here, else 0.45 GiB give or take 0.2.",
        "Nothing; the plan is more exact.",
        label="CUDA context", group="For the plan alone", id="context_size", rare=True,
        empty="as measured, or 0.45 GiB",
        option="--context SIZE", says="What nvidia-smi shows for an idle CUDA process on the card, like 500M.",
        option_group="where",
    )


class ModeSection(Section):
    """Which of the guides' modes this run is."""

    kind: Literal["train", "smoke", "dev-run", "overfit", "benchmark"] = setting("train")
    overfit_batches: int | None = setting(None, "Train on these few micro-batches again and again.", ge=1)
    trace_steps: int | None = setting(
        None, "Write a profiler trace of so many steps into the run folder.",
        "It shows what each kernel takes.",
        "Empty: none.",
        "Hundreds of MB a step, and slower steps while it traces.",
        ge=1, label="Trace steps", group="What is kept and reported", rare=True, empty="off",
    )
    dev_steps: int | None = setting(
        None, "How many steps of the real model and data are tried.",
        "Errors show before hours are spent.",
        "Empty: 5.",
        "Time, in proportion.",
        ge=1, label="Steps of a dev run", group="What is kept and reported", rare=True, when="dev_run", unit="steps",
        empty="5",
    )
    benchmark_steps: int | None = setting(None, "Measured steps of a benchmark, which saves nothing.", ge=1)

    @property
    def saves(self) -> bool:
        """Whether the run leaves checkpoints and a model."""
        return self.kind != "benchmark"
