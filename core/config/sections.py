"""The sections of a RunConfig. `None` (or "auto") means: to be detected or solved by the plan."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from trainwiz.core.config.values import (
    Attention,
    ContextSize,
    LossMean,
    Offload,
    Optimizer,
    Precision,
    Schedule,
    SourceName,
    Strategy,
    VariableName,
    VariableValue,
)


class Section(BaseModel):
    """A group of settings; unknown keys are refused, values are checked on assignment."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)


class ModelSection(Section):
    """What is trained."""

    name: SourceName = Field(
        "esm2-tiny", min_length=1, description="Catalogue name, hub id, local model folder, or a config.json."
    )
    init: Literal["scratch", "pretrained"] | None = Field(
        None,
        description="`scratch` draws random weights from the architecture; `pretrained` loads them; none loads them where "
        "there are any, here or published.",
    )
    architecture: dict[str, Any] | None = Field(
        None,
        description="The Hugging Face architecture config that `name` stands for; filled by the plan so that a run folder needs no catalogue.",
    )
    architecture_overrides: dict[str, Any] = Field(
        default_factory=dict, description="Keys of the architecture config to change, for example num_hidden_layers."
    )
    tokenizer: SourceName | None = Field(
        None,
        description="Hub id or folder of a tokenizer, or `train` to make one from the data; none takes the model's own, "
        "and makes one where a model from scratch has none here.",
    )
    source_language: str | None = Field(
        None, description="Language of the inputs as a multilingual tokenizer names it, for example zho_Hans (NLLB)."
    )
    target_language: str | None = Field(
        None, description="Language of the targets as a multilingual tokenizer names it, for example eng_Latn (NLLB)."
    )
    trust_remote_code: bool = Field(
        False, description="Run Python code that comes with the model. Off unless you say so."
    )


class DataSource(Section):
    """One source of rows: a file, a folder of files, a sample that ships with trainwiz, or a hub id."""

    name: SourceName = Field(min_length=1, description="Sample name, path, or hub id.")
    format: Literal["parquet", "jsonl", "csv", "tsv", "txt", "fasta", "tar"] | None = Field(
        None, description="File format; taken from the file's name when not given."
    )
    split: str = Field("train", description="Split of a hub data set.")
    subset: str | None = Field(None, description="Configuration name of a hub data set.")
    text_column: str | int | None = Field(
        None, description="Column (name, or position from 0) with the text or sequence; the source side for seq2seq."
    )
    target_column: str | int | None = Field(
        None, description="Column (name or position) with the target text, for seq2seq."
    )
    max_rows: int | None = Field(None, ge=1, description="Use at most this many rows.")
    min_characters: int | None = Field(None, ge=0, description="Drop rows with a shorter text.")
    max_characters: int | None = Field(None, ge=1, description="Drop rows with a longer text.")


class DataSection(Section):
    """Where the rows come from and how they reach the model."""

    sources: list[DataSource] = Field(
        default_factory=lambda: [DataSource(name="sample-proteins")],
        min_length=1,
        description="One source or several, mixed.",
    )
    validation_sources: list[DataSource] = Field(
        default_factory=list,
        description="Separate rows for evaluation; empty holds some rows of the training data out.",
    )
    validation_rows: int | None = Field(
        None,
        ge=0,
        description="Rows held out for evaluation; 0 switches evaluation off, none means 1 % (at most 2,000).",
    )
    min_characters: int | None = Field(
        None, ge=0, description="Drop shorter texts of every source that has no limit of its own."
    )
    max_characters: int | None = Field(
        None, ge=1, description="Drop longer texts of every source that has no limit of its own."
    )
    concatenate: bool | None = Field(
        None,
        description="causal-lm: join the texts and cut them into sequences of full length; none joins them for training "
        "of all weights on plain text.",
    )
    arrange_by_length: bool | None = Field(
        None,
        description="Sort the rows of each optimizer step by length before they are cut into micro-batches: the same "
        "gradient, less padding.",
    )
    group_by_length: bool = Field(
        False, description="Put rows of like length into the same micro-batch: less padding, the same rows an epoch."
    )
    packing: bool = Field(
        False,
        description="Lay the rows of a micro-batch end to end instead of padding them, each seeing itself alone; "
        "of causal models.",
    )
    pad_to_multiple_of: int | None = Field(
        None,
        ge=1,
        le=1048576,
        description="Pad each micro-batch to a multiple of this many tokens, at most to the sequence length.",
    )
    streaming: bool | None = Field(None, description="Read rows while training instead of holding them in memory.")
    workers: int | None = Field(None, ge=0, le=256, description="Loader worker processes for each training process.")
    prefetch: int | None = Field(None, ge=1, le=256, description="Batches that each worker prepares ahead.")
    pin_memory: bool | None = Field(None, description="Page-locked host memory for faster copies to the GPU.")
    persistent_workers: bool | None = Field(None, description="Keep loader workers between epochs.")


class BatchSection(Section):
    """How many sequences and tokens one optimizer step sees."""

    target_tokens: int | None = Field(None, ge=1, le=10**13, description="Aim: tokens a step, padding included.")
    target_samples: int | None = Field(None, ge=1, le=10**10, description="Aim: sequences a step.")
    target_real_tokens: int | None = Field(
        None, ge=1, le=10**13, description="Aim: tokens a step, padding not counted (needs data that can be measured)."
    )
    micro_batch_size: int | None = Field(
        None, ge=1, le=65536, description="Sequences that one process computes at once."
    )
    gradient_accumulation_steps: int | None = Field(
        None, ge=1, le=1048576, description="Micro-batches summed before one optimizer step."
    )
    eval_micro_batch_size: int | None = Field(
        None, ge=1, le=65536, description="Sequences that one process evaluates at once."
    )
    sequence_length: int = Field(512, ge=8, le=1048576, description="Longest input in tokens; longer rows are cut.")
    target_length: int | None = Field(None, ge=1, le=1048576, description="Longest target in tokens, for seq2seq.")


class TrainingSection(Section):
    """What one step does and how many there are."""

    epochs: float | None = Field(None, gt=0, le=1e6, description="Passes over the data; ignored when max_steps is set.")
    max_steps: int | None = Field(None, ge=1, le=10**12, description="Optimizer steps.")
    learning_rate: float = Field(4e-4, gt=0, le=10, description="Peak learning rate.")
    schedule: Schedule = Field("linear", description="Decay after the warm-up.")
    final_learning_rate: float = Field(
        0.0, ge=0, description="Learning rate at the last step (linear decay ends here)."
    )
    warmup: float = Field(0.0, ge=0, description="Warm-up: steps when 1 or more, a share of all steps below 1.")
    weight_decay: float = Field(0.01, ge=0, le=10)
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    adam_beta2: float = Field(0.999, ge=0, lt=1)
    adam_epsilon: float = Field(1e-8, gt=0, lt=1)
    max_grad_norm: float = Field(1.0, ge=0, description="Gradients are clipped to this norm; 0 switches clipping off.")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    loss_mean: LossMean | None = Field(
        None,
        description="`tokens`: the mean over all labelled tokens of a step. `micro_batches`: the mean over each micro-batch, "
        "then over those means, as the Trainer of transformers does for models that take no num_items_in_batch (ESM).",
    )
    mask_probability: float = Field(0.15, gt=0, lt=1, description="Share of tokens that masked-LM training hides.")
    seed: int = Field(42, ge=0, le=2**32 - 1)
    loss_chunk: int | None = Field(
        None, ge=1, description="Compute the loss in slices of this many tokens, to save memory."
    )
    empty_cache_steps: int | None = Field(
        None, ge=1, description="Release cached GPU memory every N steps (slow; only against fragmentation)."
    )


class EngineSection(Section):
    """How the step is computed."""

    device: Literal["cuda", "mps", "cpu"] | None = Field(None, description="Kind of device the run is made for.")
    precision: Precision | None = Field(None, description="Number format of the computation.")
    tf32: bool | None = Field(None, description="TF32 matrix products for what stays in fp32 (sm 8.0 and later).")
    attention: Attention | None = Field(None, description="Attention kernel.")
    checkpointing: bool | None = Field(
        None, description="Recompute activations in the backward pass: less memory, about a third more time."
    )
    optimizer: Optimizer | None = Field(None, description="Optimizer implementation.")
    strategy: Strategy | None = Field(None, description="How processes share the work.")
    offload: Offload = Field("none", description="What is kept in host RAM instead of on the GPU.")
    deepspeed_file: str | None = Field(None, description="A DeepSpeed JSON of your own, used as it is and checked.")
    compile: bool = Field(False, description="torch.compile the model.")
    gpus: list[str] | None = Field(None, description="GPUs by index or UUID; none means all visible ones.")
    processes: int | None = Field(None, ge=1, le=4096, description="Training processes on this node: one for each GPU.")
    nodes: int = Field(1, ge=1, le=1024, description="Machines that train together.")
    nodes_timeout_s: int = Field(
        300, ge=10, le=10**6, description="Seconds that a machine waits for the others to come before it gives up."
    )
    environment: dict[VariableName, VariableValue] = Field(
        default_factory=dict, description="Environment variables of the run, for example NCCL_P2P_DISABLE."
    )
    process_timeout_s: int | None = Field(
        None, ge=1, le=10**6, description="Seconds that a process waits for the others before it gives up (NCCL, gloo)."
    )
    cpu_threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of each training process; none shares the cores among them."
    )


class PeftSection(Section):
    """Adapters instead of full training."""

    method: Literal["none", "lora"] = "none"
    rank: int = Field(8, ge=1, le=4096)
    alpha: float | None = Field(None, gt=0, description="LoRA scale; none means twice the rank.")
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: list[str] = Field(
        default_factory=list,
        description="Modules that get an adapter; none or all-linear means every linear layer of the blocks.",
    )
    merge: bool = Field(False, description="Merge the adapter into the model at the end.")


class EvaluationSection(Section):
    """When and how the held-out rows are measured."""

    every_steps: int | None = Field(
        None, ge=1, description="Evaluate every N steps; none means at each save and at the end."
    )
    every_epoch: bool = Field(False, description="Evaluate at the end of each epoch, whatever every_steps says.")
    metric: str | None = Field(
        None, description="Metric for choosing the best checkpoints, for example eval_loss or eval_bleu."
    )
    generate: bool = Field(False, description="Generate text in evaluation, for BLEU.")
    generate_at: Literal["evaluation", "epoch", "end"] = Field(
        "evaluation",
        description="Generate in every evaluation, in those at the end of an epoch, or in the last one only.",
    )
    generation_rows: int | None = Field(
        None, ge=1, description="Generate for the first N held-out rows only; none means all of them."
    )
    bleu_tokenizer: Literal["13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "none"] | None = Field(
        None, description="How sacrebleu cuts text into words; none picks zh for Chinese references, else 13a."
    )
    beams: int = Field(1, ge=1, le=64, description="Beams of the search that generates; 1 is greedy.")
    generation_length: int | None = Field(
        None, ge=1, le=1048576, description="Longest generated text in tokens; none means the target length."
    )


class CheckpointSection(Section):
    """What is saved."""

    every_steps: int | None = Field(
        None, ge=1, description="Save every N steps; none means ten times over the run, at least every 500 steps."
    )
    keep: int = Field(2, ge=1, le=10000, description="Checkpoints to keep.")
    keep_best: bool = Field(
        False, description="Keep the best by evaluation.metric instead of the newest; the newest stays for resuming."
    )


class RecoverySection(Section):
    """What trainwiz does by itself when a run fails while nobody looks."""

    on: bool = Field(True, description="Start again by itself after a failure that a new start can cure.")
    max_restarts: int = Field(
        3, ge=0, le=100, description="Starts in a row without a new checkpoint before it gives up."
    )
    on_nan: Literal["stop", "continue"] = Field(
        "stop", description="What a loss that is no longer a number does: end the run, or only say so."
    )
    disk_wait_s: float = Field(
        3600.0, ge=0, le=604800, description="Seconds that a save waits for room on a full disk before the run ends."
    )


class LoggingSection(Section):
    """What is reported."""

    every_steps: int | None = Field(None, ge=1, description="Log every N steps; none picks it from the step time.")
    report_to: list[str] = Field(default_factory=lambda: ["tensorboard"], description="tensorboard, wandb, none, ...")
    memory_every_steps: int | None = Field(None, ge=1, description="Log memory every N steps.")
    system_every_s: float = Field(1.0, ge=0.2, le=3600, description="Seconds between two samples of the machine.")


class PlanningSection(Section):
    """What only the preview needs."""

    energy_price_per_kwh: float | None = Field(
        None, ge=0, le=1e6, description="Price of a kilowatt-hour, in the currency of your choice; none shows no cost."
    )
    currency: str = Field("", max_length=8, description="Shown behind the cost, for example EUR.")
    network_gbit_s: float | None = Field(
        None, gt=0, le=1e5, description="Gigabits a second between the machines of a run; none assumes 10."
    )
    context_bytes: ContextSize | None = Field(
        None,
        description="What nvidia-smi shows for a process that has only a CUDA context on this card, like 500M; "
        "none takes what was measured here, else 0.45 ± 0.2 GiB.",
    )


class ModeSection(Section):
    """Which of the guides' modes this run is."""

    kind: Literal["train", "smoke", "dev-run", "overfit", "benchmark"] = "train"
    overfit_batches: int | None = Field(None, ge=1, description="Train on these few micro-batches again and again.")
    trace_steps: int | None = Field(None, ge=1, description="Write a profiler trace of this many steps.")
    dev_steps: int | None = Field(None, ge=1, description="Steps of a dev run.")
    benchmark_steps: int | None = Field(None, ge=1, description="Measured steps of a benchmark, which saves nothing.")

    @property
    def saves(self) -> bool:
        """Whether the run leaves checkpoints and a model."""
        return self.kind != "benchmark"
