"""Settings: what is measured, kept and reported, and what follows a failure."""

from typing import Literal

from trainwiz.core.config.setting import Section, setting
from trainwiz.core.config.values import ContextSize

# A table: the texts of an entry, its bounds and its row, its option.
# fmt: off


class EvaluationSection(Section):
    """When and how the held-out rows are measured."""

    generate: bool = setting(
        False, "Generate the targets of held-out rows and score them with BLEU.",
        "The loss does not show how well a translation reads.",
        "on for translation, otherwise off.",
        "Time: generates token by token for every held-out row.",
        label="Generate text", group="Evaluation", when="text",
    )
    beams: int = setting(
        1, "Number of beams for beam search; 1 is greedy decoding.",
        "A few beams raise BLEU by about a point.",
        "4 for translation, otherwise 1.",
        "Generation memory and time, in proportion.",
        ge=1, le=64, label="Beams", group="Evaluation", when="generates",
    )
    generation_length: int | None = setting(
        None, "Maximum length of generated text.",
        "An undertrained model may never generate an end-of-sequence token.",
        "Empty: the longest target.",
        "Generation time and memory.",
        ge=1, le=1048576, label="Max new tokens", group="Evaluation", rare=True, when="generates",
        unit="tokens", empty="the target length",
    )
    generation_rows: int | None = setting(
        None, "Generate only for this many held-out rows, from the first.",
        "Generation is slow; a few hundred rows give a BLEU stable enough to compare.",
        "Empty: all held-out rows.",
        "Time, in proportion.",
        ge=1, label="Rows to generate", group="Evaluation", rare=True, when="generates", unit="rows",
        empty="all held-out rows",
    )
    generate_at: Literal["evaluation", "epoch", "end"] = setting(
        "evaluation", "When to generate: at every evaluation, at the end of each epoch, or once at the end.",
        "Generation can take longer than the training between two evaluations.",
        "every evaluation.",
        "Time.",
        label="Generate at", group="Evaluation", rare=True, when="generates",
        words={"evaluation": "every evaluation", "epoch": "the end of each epoch", "end": "the end of the run"},
    )
    bleu_tokenizer: Literal["13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "none"] | None = setting(
        None, "How sacrebleu tokenizes texts.",
        "BLEU scores are only comparable with the same tokenization.",
        "Empty: zh for Chinese references, otherwise 13a.",
        label="BLEU "
            "tokenizer", group="Evaluation", rare=True, when="generates", empty="zh for Chinese, otherwise 13a",
    )
    every_steps: int | None = setting(
        None, "Steps between evaluations on the held-out rows.",
        "Shows when the model stops learning and starts memorizing.",
        "Empty: at each save and at the end.",
        "Time for each evaluation.",
        ge=1, label="Evaluate every", group="Evaluation", id="evaluate_every", rare=True, unit="steps",
    )
    every_epoch: bool = setting(
        False, "Also evaluate at the end of each epoch.",
        "Results per epoch can be compared with those of others.",
        "off.",
        "Time for each evaluation.",
        label="Evaluate each epoch", group="Evaluation", rare=True,
    )
    at_start: bool | None = setting(
        None, "Also evaluate before the first step.",
        "The curve then starts at the model's performance before training.",
        "Empty: on for pretrained weights.",
        "Time for one evaluation.",
        label="Evaluate at start", group="Evaluation", rare=True, empty="on for pretrained weights",
        trainer="eval_on_start",
    )
    prompts: str | None = setting(
        None, "File of prompts that the model answers before the first step and at every evaluation.",
        "The loss does not show what the model generates.",
        "Empty: rows, which uses three held-out rows. A text file has one prompt per line, a .jsonl file one list "
            "of messages per line. none disables it.",
        "A few seconds per evaluation; the plan includes them.",
        label="Prompts", group="Evaluation", rare=True, empty="three held-out rows", offers=("rows", "none"),
        free_text=True, option="--prompts FILE", says="Prompts that the model answers at every evaluation: a file, "
            "rows (held-out rows) or none.",
        option_group="how",
    )
    patience: int | None = setting(
        None, "Stop training after this many evaluations in a row without improvement.",
        "Further training makes the model worse on new rows.",
        "Empty: train to the last step.",
        "The run may end before a late improvement.",
        ge=1, label="Early stopping", group="Evaluation", rare=True, unit="evaluations", empty="off",
    )
    metric: str | None = setting(
        None, "Metric that selects the best checkpoint.",
        "The newest checkpoint is not always the best.",
        "eval_loss, or eval_bleu if text is generated.",
        label="Best-model metric", group="Evaluation", rare=True,
        offers=("eval_loss", "eval_perplexity", "eval_accuracy", "eval_f1", "eval_bleu"), free_text=True,
    )


class CheckpointSection(Section):
    """What is saved."""

    every_steps: int | None = setting(
        None, "Steps between checkpoints.",
        "A failed run resumes from the last checkpoint.",
        "Empty: ten times per run, at least every 500 steps.",
        "Disk space and write time; old checkpoints are deleted.",
        ge=1, label="Save every", group="Checkpoints and logging", id="save_every", unit="steps",
    )
    keep: int = setting(
        2, "Number of checkpoints kept on disk.",
        "A run resumes from the newest; the best may be older.",
        "2.",
        "Disk space, in proportion.",
        ge=1, le=10000, label="Checkpoints kept", group="Checkpoints and logging",
    )
    keep_best: bool = setting(
        False, "Keep the best checkpoints instead of the newest; the newest is also kept for resuming.",
        "Training too long makes a model worse on new rows.",
        "off.",
        "Nothing; the run then evaluates at each save.",
        label="Keep the best", group="Checkpoints and logging",
    )
    final: Literal["best", "last"] | None = setting(
        None, "Weights in final_model: from the best checkpoint, or from the last step.",
        "The last step is often not the best on new rows.",
        "Empty: the best if rows are held out, otherwise the last.",
        "Nothing; every checkpoint is then evaluated, and the best one stays on disk.",
        label="Final model", group="Checkpoints and logging", empty="the best, if evaluated",
        words={"best": "the best checkpoint", "last": "the last step"},
    )


class RecoverySection(Section):
    """What trainwiz does automatically when an unattended run fails."""

    on: bool = setting(
        True, "Restart from the last checkpoint after a failure that a restart can fix.",
        "Running out of GPU memory at night costs minutes, not days; the effective batch stays the same.",
        "on.",
        "Nothing unless the run fails.",
        label="Auto restart", group="Failure handling", id="recovery",
    )
    max_restarts: int = setting(
        3, "Maximum automatic restarts without a new checkpoint.",
        "A failure that keeps recurring does not resolve itself.",
        "3; 0 disables restarts.",
        "The time of the failed attempts.",
        ge=0, le=100, label="Max restarts", group="Failure handling",
    )
    on_nan: Literal["stop", "continue"] = setting(
        "stop", "Stop the run at its last good checkpoint, or continue and only report it.",
        "NaN weights never recover.",
        "stop.",
        "continue may waste days of training.",
        label="On NaN loss", group="Failure handling",
    )
    disk_wait_s: float = setting(
        3600.0, "Seconds a save waits for free space on a full disk before the run ends.",
        "Free some space in the meantime, and the save continues.",
        "3,600.",
        "The waiting time.",
        ge=0, le=604800, label="Wait for disk", group="Failure handling", id="disk_wait", unit="s",
    )


class LoggingSection(Section):
    """What is reported."""

    every_steps: int | None = setting(
        None, "Steps between logged points of the curves.",
        "The monitor shows what was logged.",
        "Empty: one every few seconds.",
        ge=1, label="Log every", group="Checkpoints and logging", id="log_every", unit="steps",
    )
    memory_every_steps: int | None = setting(
        None, "Steps between entries of the memory log.",
        "Shows whether memory grows from step to step.",
        "Empty: only what each logged step includes.",
        ge=1, label="Log memory every", group="Checkpoints and logging", id="memory_every", unit="steps",
        empty="off",
    )
    system_every_s: float = setting(
        1.0, "Seconds between samples of GPU, RAM and disk.",
        "The monitor and its advice are based on them.",
        "1.",
        "A little CPU time and disk space.",
        ge=0.2, le=3600, label="Sample system every", group="Checkpoints and logging", id="system_every",
        unit="s",
    )
    report_to: list[str] = setting(
        ["tensorboard"], "Where to report the curves in addition to the run folder.",
        "TensorBoard and wandb compare many runs in a browser.",
        "tensorboard: files in the run folder.",
        "wandb needs the wandb package and an account.",
        label="Report to", group="Checkpoints and logging",
        offers=("tensorboard", "wandb", "tensorboard, wandb", "none"), free_text=True,
        option="--report-to A,B,...", says="tensorboard, wandb, none, ...", option_group="how",
    )


class PlanningSection(Section):
    """What only the preview needs."""

    network_gbit_s: float | None = setting(
        None, "Network bandwidth between the nodes in Gbit/s.",
        "The gradients of each step go through it; the time estimate depends on it.",
        "Empty: 10 is assumed.",
        "Nothing: the run itself does not use it.",
        gt=0, le=1e5, label="Network", group="Devices and processes", id="network",
        after="engine.nodes_timeout_s", when="several_machines", unit="Gbit/s",
    )
    energy_price_per_kwh: float | None = setting(
        None, "Price of a kilowatt-hour in your currency.",
        "The plan then shows the cost of the run.",
        "Empty: cost is not shown.",
        ge=0, le=1e6, label="Price per kWh", group="Plan only", id="energy_price",
    )
    currency: str = setting(
        "", "Currency shown after the cost, such as EUR.",
        "A number without a currency says little.",
        "Empty.",
        max_length=8, label="Currency", group="Plan only",
    )
    context_bytes: ContextSize | None = setting(
        None, "Size of the CUDA context: the memory that nvidia-smi shows for an idle CUDA process on this GPU, "
            "such as 500M.",
        "Every process allocates it before training starts.",
        "Empty: the value measured on this machine, otherwise 0.45 ± 0.2 GiB.",
        "Nothing; the plan gets more accurate.",
        label="CUDA context", group="Plan only", id="context_size",
        empty="measured, or 0.45 GiB",
        option="--context SIZE", says="CUDA context: GPU memory of an idle CUDA process (nvidia-smi), such as 500M.",
        option_group="where",
    )


class ModeSection(Section):
    """Which of the guides' modes this run is."""

    kind: Literal["train", "smoke", "dev-run", "overfit", "benchmark"] = setting("train")
    overfit_batches: int | None = setting(None, "Train on these few micro-batches again and again.", ge=1)
    trace_steps: int | None = setting(
        None, "Write a profiler trace of this many steps to the run folder.",
        "Shows how long each kernel takes.",
        "Empty: none.",
        "Hundreds of MB per step; steps are slower while tracing.",
        ge=1, label="Trace steps", group="Checkpoints and logging", empty="off",
    )
    dev_steps: int | None = setting(
        None, "Number of steps with the real model and data.",
        "Errors show up before hours are spent.",
        "Empty: 5.",
        "Time, in proportion.",
        ge=1, label="Dev run steps", group="Checkpoints and logging", when="dev_run", unit="steps",
        empty="5",
    )
    benchmark_steps: int | None = setting(None, "Measured steps of a benchmark, which saves nothing.", ge=1)

    @property
    def saves(self) -> bool:
        """Whether the run leaves checkpoints and a model."""
        return self.kind != "benchmark"
