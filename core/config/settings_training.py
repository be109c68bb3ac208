"""Settings: the training and the engine."""

from typing import Literal

from trainwiz.core.config.setting import HARDWARE, Section, setting
from trainwiz.core.config.values import (
    Attention,
    BasePrecision,
    LossMean,
    Offload,
    Optimizer,
    Precision,
    Schedule,
    Strategy,
    VariableName,
    VariableValue,
)

# A table: the texts of an entry, its bounds and its row, its option.
# fmt: off


class TrainingSection(Section):
    """What one step does and how many there are."""

    max_steps: int | None = setting(
        None, "Training length: optimizer steps or epochs.",
        "Determines the total time.",
        "Start with few steps; a short run that finishes tells more than a long one that was stopped.",
        "Time, in proportion.",
        ge=1, le=10**12, label="Training length", group="Goals", id="steps", unit="steps",
        option="--max-steps N", says="Optimizer steps; overrides --epochs.",
        learnt=True,
    )
    epochs: float | None = setting(
        None, "Passes over the data; ignored when max_steps is set.",
        gt=0, le=1e6, beside="training.max_steps", unit="epochs",
        option="--epochs N", says="Number of epochs.",
        learnt=True,
    )
    learning_rate: float = setting(
        4e-4, "The highest learning rate of the schedule.",
        "Too high, and the loss spikes or becomes NaN; too low, and it hardly falls.",
        "The profile's value. Without a profile: 4e-4 from scratch, 2e-5 for fine-tuning.",
        "Nothing in memory or time.",
        gt=0, le=10, label="Peak learning rate", group="Goals",
        option="--learning-rate RATE", says="Peak learning rate.",
        trainer="learning_rate", learnt=True,
    )
    warmup: float = setting(
        0.0, "Steps to reach the peak learning rate; below 1, it is a share of all steps.",
        "Large first steps can ruin randomly initialized weights.",
        "0.02 to 0.1.",
        ge=0, label="Warmup", group="Goals",
        learnt=True,
    )
    schedule: Schedule = setting(
        "linear", "How the learning rate falls after warmup.",
        "A decaying learning rate ends at a lower loss.",
        "linear.",
        label="Schedule", group="Goals",
        learnt=True,
    )
    final_learning_rate: float = setting(
        0.0, "Learning rate at the last step, where the decay ends.",
        "Some recipes end at a tenth of the peak.",
        "0.",
        ge=0, label="Final learning rate", group="Goals",
        learnt=True,
    )
    weight_decay: float = setting(
        0.01, "Pulls weights toward zero.",
        "Helps against overfitting.",
        "0.01.",
        ge=0, le=10, label="Weight decay", group="Optimizer and loss",
        trainer="weight_decay", learnt=True,
    )
    max_grad_norm: float = setting(
        1.0, "Maximum gradient norm; larger gradients are scaled down to it. 0 disables clipping.",
        "A single bad batch cannot move the weights far.",
        "1.",
        ge=0, label="Gradient clipping", group="Optimizer and loss",
        trainer="max_grad_norm", learnt=True,
    )
    adam_beta1: float = setting(
        0.9, "Momentum: how much of the previous steps' direction is kept.",
        "Smooths noisy gradients.",
        "0.9.",
        ge=0, lt=1, label="Adam beta 1", group="Optimizer and loss",
        trainer="adam_beta1", learnt=True,
    )
    adam_beta2: float = setting(
        0.999, "Decay rate of the running average of squared gradients.",
        "Large batches and language models from scratch often use 0.95 to 0.98.",
        "0.999.",
        ge=0, lt=1, label="Adam beta 2", group="Optimizer and loss",
        trainer="adam_beta2", learnt=True,
    )
    adam_epsilon: float = setting(
        1e-8, "A small constant that prevents Adam from dividing by zero.",
        "A larger value damps the updates of weights with tiny gradients.",
        "1e-8.",
        gt=0, lt=1, label="Adam epsilon", group="Optimizer and loss",
        trainer="adam_epsilon", learnt=True,
    )
    train_on: Literal["answers", "last_answer", "everything"] = setting(
        "answers", "Which tokens of chats, and of prompts with responses, are trained on.",
        "A model trained on answers only does not learn to write questions.",
        "answers: everything the assistant says.",
        "everything: questions and template tokens are trained on too.",
        label="Train on", group="Optimizer and loss", when="causal",
        words={"answers": "answers only", "last_answer": "last answer only", "everything": "every token"},
        learnt=True,
    )
    label_smoothing: float = setting(
        0.0, "Share of the target probability that is spread over all tokens.",
        "A model that is less certain about the training data often translates better.",
        "0.1 for translation, otherwise 0.",
        "The loss is higher; only compare losses with the same smoothing.",
        ge=0, lt=1, label="Label smoothing", group="Optimizer and loss", when="text",
        trainer="label_smoothing_factor", learnt=True,
    )
    neftune_noise_alpha: float | None = setting(
        None, "Random noise added to the embeddings during training (NEFTune): at most alpha / sqrt(length × hidden "
            "size).",
        "Chat models fine-tuned on a few thousand answers often answer better with it (arXiv:2310.05914).",
        "Empty: none. 5 for instruction tuning.",
        "The training loss is higher; evaluation adds no noise.",
        ge=0, le=1000, label="NEFTune noise", group="Optimizer and loss", id="neftune",
        empty="none",
        trainer="neftune_noise_alpha", learnt=True,
    )
    loss_mean: LossMean | None = setting(
        None,
        "How the loss of an optimizer step is averaged: over all its labeled tokens, or over the means of its "
            "micro-batches.",
        "With token means, the gradient does not depend on which rows share a micro-batch.",
        "Empty: tokens. micro_batches reproduces a transformers Trainer run with an ESM model.",
        "micro_batches keeps the rows in the order they were drawn, with all their padding.",
        label="Loss averaging", group="Optimizer and loss",
        learnt=True,
    )
    mask_probability: float = setting(
        0.15, "Share of the tokens that the model has to predict (MLM probability).",
        "A higher share makes a harder task of the same rows.",
        "0.15.",
        "Nothing; losses with different shares are not comparable.",
        gt=0, lt=1, label="Mask probability", group="Optimizer and loss", when="masked",
        learnt=True,
    )
    whole_words: bool = setting(
        False, "Mask whole words: all tokens of a word or none.",
        "Part of a word is easy to guess from the rest.",
        "off, as in pretraining; on makes a harder task.",
        label="Whole-word masking", group="Optimizer and loss", when="masked_words",
        learnt=True,
    )
    class_weights: Literal["none", "balanced"] = setting(
        "none", "Weight of a row in the loss: the same for all, or higher for rare classes (rows / classes / rows "
            "of the class).",
        "A model can be right on nearly all rows and never predict a rare class.",
        "none; balanced if the findings say that the classes are unbalanced.",
        "Frequent classes are predicted with less certainty.",
        label="Class weights", group="Optimizer and loss", when="classifies",
        learnt=True,
    )
    loss_chunk: int | None = setting(
        None, "Compute the loss in chunks of this many tokens.",
        "The logits of a large vocabulary can take more memory than the model.",
        "Empty: 512 if the logits fill the GPU and chunks cost no time (few tokens have a loss, or more fits), "
            "otherwise all at once.",
        "Up to a quarter more time if the vocabulary is most of a small model and every token is trained on.",
        ge=1, label="Loss chunk size", group="Optimizer and loss", unit="tokens", empty="off",
        option="--loss-chunk N", says="Compute the loss in chunks of N tokens.", option_group="how",
    )
    seed: int = setting(
        42, "Seed of all random number generators.",
        "The same seed reproduces the same run.",
        "42.",
        ge=0, le=2**32 - 1, label="Seed", group="Optimizer and loss",
        trainer="seed", learnt=True,
    )
    empty_cache_steps: int | None = setting(
        None, "Steps between releases of cached GPU memory (empty_cache).",
        "Only helps against fragmentation.",
        "Empty: never.",
        "Time: the cache has to be refilled.",
        ge=1, label="Empty cache every", group="Devices and processes", id="empty_cache", after="engine.compile",
        when="cuda", unit="steps", empty="off",
        trainer="torch_empty_cache_steps",
    )


class EngineSection(Section):
    """How the step is computed."""

    gpus: list[str] | None = setting(
        None, "GPUs to train on, by index or UUID: 0,1. Space selects or deselects a GPU in the list.",
        "Each GPU computes its own micro-batches; gradient accumulation is recomputed to keep the effective batch "
            "the same.",
        "Empty: all visible GPUs.",
        "A deselected GPU stays free for other work; the run takes longer.",
        label="GPUs", step=HARDWARE, group="Starting point", when="several_gpus", empty="all",
        option="--gpus LIST", says="Which GPUs of this machine to use, such as 0,1.", option_group="where",
    )
    precision: Precision | None = setting(
        None, "Numeric precision of the computation.",
        "16-bit precision halves activation memory and uses the GPU's tensor cores.",
        "As detected: bf16 on sm 8.0 and above, fp16 below, fp32 without a GPU.",
        "fp16 needs loss scaling; bf16-true also stores the weights in 16 bits and rounds small updates away.",
        label="Precision", group="Computation",
        option="--precision", says="Numeric precision.", option_group="how",
        learnt=True,
    )
    base_precision: BasePrecision | None = setting(
        None, "Precision in which the frozen base model of LoRA is stored (QLoRA).",
        "4 bits need a quarter of the memory of 16 bits: an 8B model fits a 12 GB card.",
        "Empty: 16 bits if they fit, otherwise 4 bits.",
        "Up to a third more time per step: weights are dequantized each time they are used. 8-bit weights keep the "
            "inputs of their matrix products, which gradient checkpointing does not save.",
        label="Base precision", group="Computation", when="adapters", empty="decided by the plan",
        words={"none": "the run's precision", "nf4": "4 bits (NF4)", "int8": "8 bits"},
        option="--base-precision", says="Frozen base model of LoRA: nf4 (4 bits, QLoRA), int8, or none (not "
            "quantized).", option_group="how",
        learnt=True,
    )
    attention: Attention | None = setting(
        None, "Attention implementation.",
        "sdpa and flash attention store no length × length matrix.",
        "sdpa.",
        "eager costs memory and time; flash attention needs sm 8.0 or above and its own package.",
        label="Attention", group="Computation",
        option="--attention", says="Attention implementation (kernel).", option_group="how",
    )
    checkpointing: bool | None = setting(
        None, "Gradient checkpointing: recompute activations in the backward pass instead of storing them.",
        "Activations use most of the memory for long inputs.",
        "off if the plan fits, on if it does not.",
        "About a third more time per step.",
        label="Grad. checkpointing", group="Computation",
        option="--checkpointing", says="Gradient checkpointing (recompute activations): less memory, more "
            "time.", option_group="how",
    )
    optimizer: Optimizer | None = setting(
        None, "Optimizer: how gradients become weight updates.",
        "AdamW keeps two values per weight: 8 bytes per parameter.",
        "AdamW.",
        "8-bit keeps a quarter of that; SGD keeps none, but needs another learning rate.",
        label="Optimizer", group="Computation",
        words={
            "adamw_torch": "AdamW", "adamw_torch_fused": "AdamW, fused", "adafactor": "Adafactor", "sgd": "SGD",
            "adamw_bnb_8bit": "AdamW, 8-bit", "paged_adamw_8bit": "AdamW, 8-bit, paged",
        },
        option="--optimizer", says="Optimizer.", option_group="how",
        learnt=True,
    )
    strategy: Strategy | None = setting(
        None, "How processes share the work and the training states.",
        "One process for one device; DDP for several; ZeRO and FSDP shard what does not fit.",
        "The strategy chosen by the plan.",
        "ZeRO needs DeepSpeed; sharding costs communication between the devices.",
        label="Strategy", group="Computation",
        words={
            "single": "one process", "ddp": "DDP", "fsdp": "FSDP",
            "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3",
        },
        option="--strategy", says="How processes share the work.", option_group="how",
        learnt=True,
    )
    offload: Offload = setting(
        "none", "What to offload from the GPU to RAM.",
        "Optimizer states are the largest part of the training states.",
        "nothing.",
        "Time: every step moves gradients and weights over the bus.",
        label="Offload to RAM", group="Devices and processes",
        words={"none": "nothing", "optimizer": "the optimizer", "all": "optimizer and weights"},
        option="--offload", says="What to offload to RAM.", option_group="how",
    )
    device: Literal["cuda", "mps", "cpu"] | None = setting(
        None, "Type of device to train on.",
        "A CPU is tens of times slower than a GPU.",
        "The detected device.",
        "Time.",
        label="Device", group="Devices and processes",
    )
    processes: int | None = setting(
        None, "Training processes on this machine.",
        "Each process computes its own micro-batches on its own GPU.",
        "Empty: one per GPU, one on a CPU.",
        "On a CPU, they share RAM and cores.",
        ge=1, le=4096, label="Processes", group="Devices and processes",
    )
    nodes: int = setting(
        1, "Number of nodes that train together.",
        "Every node starts the same run folder, on a shared disk; `trainwiz export` prints the commands.",
        "1.",
        "Communication between the nodes at every step.",
        ge=1, le=1024, label="Nodes", group="Devices and processes",
        option="--nodes N", says="Number of machines to train on.", option_group="where",
    )
    nodes_timeout_s: int = setting(
        300, "Seconds a node waits for the other nodes before it gives up.",
        "They are started one after another, by hand or by a job queue.",
        "300 s.",
        "Nothing; a missing node is only reported after this time.",
        ge=10, le=10**6, label="Node timeout", group="Devices and processes", id="nodes_timeout",
        when="several_machines", unit="s",
    )
    tf32: bool | None = setting(
        None, "Round the remaining fp32 matrix products to TF32.",
        "They are several times faster on sm 8.0 and above.",
        "on for sm 8.0 and above.",
        "Three digits of precision instead of seven.",
        label="TF32 matmul", group="Devices and processes", when="cuda",
    )
    compile: bool = setting(
        False, "Compile the model into fused kernels.",
        "Steps can be a fifth faster on a GPU.",
        "off; on for long runs.",
        "Minutes of compiling at the start, and again for each new input shape.",
        label="torch.compile", group="Devices and processes",
        trainer="torch_compile",
    )
    liger: bool = setting(
        False, "Use the kernels of liger-kernel for norms, rotary embeddings and gated layers, if it is installed.",
        "They store fewer activations, and are often faster.",
        "off.",
        "Losses differ in the last digits. Logits are not covered: training.loss_chunk computes them in chunks.",
        label="Liger kernels", group="Computation", rare=True, when="cuda", trainer="use_liger_kernel", learnt=True,
    )
    cpu_threads: int | None = setting(
        None, "CPU threads per training process.",
        "More threads than cores slow each other down.",
        "Empty: the cores, divided among the processes.",
        ge=1, le=1024, label="CPU threads", group="Devices and processes",
    )
    process_timeout_s: int | None = setting(
        None, "Seconds a process waits for the others before it gives up.",
        "If one process dies, the others wait this long.",
        "Empty: 30 minutes, or longer if one step takes longer.",
        ge=1, le=10**6, label="Process timeout", group="Devices and processes", id="process_timeout",
        when="several_processes", unit="s",
        trainer="ddp_timeout",
    )
    environment: dict[VariableName, VariableValue] = setting(
        {}, "Environment variables of the run: NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO.",
        "Some machines need one to work around a driver problem.",
        "Empty.",
        "Nothing; they are written to the launch script, so do not put secrets here.",
        label="Environment", group="Devices and processes", empty="none of its own",
    )
    deepspeed_file: str | None = setting(
        None, "Your own DeepSpeed JSON file, used unchanged.",
        "For settings that trainwiz does not support.",
        "Empty: trainwiz writes it.",
        "Conflicts with the plan are listed, and the run does not start.",
        label="DeepSpeed file", group="Devices and processes", empty="none",
        option="--deepspeed FILE", says="Your own DeepSpeed JSON, used unchanged.", option_group="how",
    )
