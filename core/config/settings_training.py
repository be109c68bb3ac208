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
        None, "How long to train: optimizer steps, or passes over the data (epochs).",
        "It decides the total time.",
        "Few steps first; a finished short run tells more than a stopped long one.",
        "Time, in proportion.",
        ge=1, le=10**12, label="Run for", group="What you want", id="steps", unit="steps",
        option="--max-steps N", says="Optimizer steps; wins over --epochs.",
        learnt=True,
    )
    epochs: float | None = setting(
        None, "Passes over the data; ignored when max_steps is set.",
        gt=0, le=1e6, beside="training.max_steps", unit="epochs",
        option="--epochs N", says="Passes over the data.",
        learnt=True,
    )
    learning_rate: float = setting(
        4e-4, "The largest step that the optimizer takes.",
        "Too high and the loss jumps or becomes NaN; too low and it hardly falls.",
        "The profile's. Without one: 4e-4 for training from scratch, 2e-5 for fine-tuning.",
        "Nothing in memory or time.",
        gt=0, le=10, label="Peak learning rate", group="What you want",
        option="--learning-rate RATE", says="Peak learning rate.",
        trainer="learning_rate", learnt=True,
    )
    warmup: float = setting(
        0.0, "Steps until the peak learning rate; below 1 it is a share of all steps.",
        "Large first steps can ruin random weights.",
        "0.02 to 0.1.",
        ge=0, label="Warm-up", group="What you want",
        learnt=True,
    )
    schedule: Schedule = setting(
        "linear", "How the learning rate falls after the warm-up.",
        "A falling rate ends at a lower loss.",
        "linear.",
        label="Schedule", group="What you want",
        learnt=True,
    )
    final_learning_rate: float = setting(
        0.0, "Where the decay ends: the rate at the last step.",
        "Some recipes end at a tenth of the peak.",
        "0.",
        ge=0, label="Last learning rate", group="What you want",
        learnt=True,
    )
    weight_decay: float = setting(
        0.01, "Pulls weights towards zero.",
        "It keeps a model from remembering rows.",
        "0.01.",
        ge=0, le=10, label="Weight decay", group="Optimizer and loss", rare=True,
        trainer="weight_decay", learnt=True,
    )
    max_grad_norm: float = setting(
        1.0, "Longer gradients are shortened to this norm; 0 switches it off.",
        "One bad batch cannot throw the weights far.",
        "1.",
        ge=0, label="Gradient clipping", group="Optimizer and loss", rare=True,
        trainer="max_grad_norm", learnt=True,
    )
    adam_beta1: float = setting(
        0.9, "How much of the last steps' direction is kept.",
        "It smooths noisy gradients.",
        "0.9.",
        ge=0, lt=1, label="Adam beta 1", group="Optimizer and loss", rare=True,
        trainer="adam_beta1", learnt=True,
    )
    adam_beta2: float = setting(
        0.999, "How long the size of gradients is remembered.",
        "Large batches and language models from scratch often take 0.95 to 0.98.",
        "0.999.",
        ge=0, lt=1, label="Adam beta 2", group="Optimizer and loss", rare=True,
        trainer="adam_beta2", learnt=True,
    )
    adam_epsilon: float = setting(
        1e-8, "A small number that keeps Adam from dividing by zero.",
        "A larger one damps the steps of weights with tiny gradients.",
        "1e-8.",
        gt=0, lt=1, label="Adam epsilon", group="Optimizer and loss", rare=True,
        trainer="adam_epsilon", learnt=True,
    )
    train_on: Literal["answers", "last_answer", "everything"] = setting(
        "answers", "Of chats, and of prompts with responses: which tokens are learnt.",
        "A model that learns its answers alone does not learn to write questions.",
        "answers: all that the assistant says.",
        "everything: the questions and the marks of the template are learnt too.",
        label="Learnt", group="Optimizer and loss", rare=True, when="causal",
        words={"answers": "answers only", "last_answer": "the last answer only", "everything": "every token"},
        learnt=True,
    )
    label_smoothing: float = setting(
        0.0, "Share of the certainty that is spread over all tokens.",
        "A model that is less sure of the training data often translates better.",
        "0.1 for translation, 0 else.",
        "The loss is higher by it; compare losses with the same smoothing only.",
        ge=0, lt=1, label="Label smoothing", group="Optimizer and loss", rare=True, when="text",
        trainer="label_smoothing_factor", learnt=True,
    )
    neftune_noise_alpha: float | None = setting(
        None, "Random noise on the embeddings while training (NEFTune): alpha / sqrt(length × hidden size) at most.",
        "Chat models fine-tuned on a few thousand answers often write better ones (arXiv:2310.05914).",
        "Empty: none. 5 for instruction tuning.",
        "The training loss is higher by it; the evaluation has no noise.",
        ge=0, le=1000, label="NEFTune noise", group="Optimizer and loss", id="neftune", rare=True,
        empty="none",
        trainer="neftune_noise_alpha", learnt=True,
    )
    loss_mean: LossMean | None = setting(
        None,
        "Over what the loss of an optimizer step is a mean: all its labelled tokens, or the means of its "
        "micro-batches.",
        "With token means the gradient does not depend on which rows share a micro-batch.",
        "Empty: tokens. micro_batches repeats a run of the Trainer of transformers with an ESM model.",
        "micro_batches leaves rows as drawn, with all their padding.",
        label="Mean of the loss", group="Optimizer and loss", rare=True,
        learnt=True,
    )
    mask_probability: float = setting(
        0.15, "Share of the tokens that the model has to guess.",
        "More of them make a harder task from the same rows.",
        "0.15.",
        "Nothing; losses with different shares do not compare.",
        gt=0, lt=1, label="Hidden tokens", group="Optimizer and loss", rare=True, when="masked",
        learnt=True,
    )
    whole_words: bool = setting(
        False, "Hide whole words: all tokens of a word or none.",
        "A part of a word is easily guessed from its other parts.",
        "off, as the model was pretrained; on makes a harder task.",
        label="Whole words", group="Optimizer and loss", rare=True, when="masked_words",
        learnt=True,
    )
    class_weights: Literal["none", "balanced"] = setting(
        "none", "How much a row counts in the loss: all alike, or more for rare classes (rows / classes / rows of the class).",
        "A model can be right on nearly all rows and never find a rare class.",
        "none; balanced where the findings say that the classes are unbalanced.",
        "Frequent classes are told with less certainty.",
        label="Class weights", group="Optimizer and loss", rare=True, when="classifies",
        learnt=True,
    )
    loss_chunk: int | None = setting(
        None, "Compute the loss of so many tokens at a time.",
        "The logits of a large vocabulary can take more memory than the model.",
        "Empty: 512 where the logits fill the card and slices cost no time (few tokens are learnt, or more fits), else all "
        "at once.",
        "Up to a quarter more time where the vocabulary is most of a small model and every token is learnt.",
        ge=1, label="Loss in slices of", group="Optimizer and loss", rare=True, unit="tokens", empty="off",
        option="--loss-chunk N", says="Compute the loss in slices of N tokens.", option_group="how",
    )
    seed: int = setting(
        42, "Start of all random numbers.",
        "The same seed repeats the same run.",
        "42.",
        ge=0, le=2**32 - 1, label="Seed", group="Optimizer and loss", rare=True,
        trainer="seed", learnt=True,
    )
    empty_cache_steps: int | None = setting(
        None, "Steps between two releases of the cached GPU memory.",
        "It helps against fragmentation only.",
        "Empty: never.",
        "Time: the cache has to be filled again.",
        ge=1, label="Release cache every", group="Devices and processes", id="empty_cache", after="engine.compile",
        rare=True, when="cuda", unit="steps", empty="off",
        trainer="torch_empty_cache_steps",
    )


class EngineSection(Section):
    """How the step is computed."""

    gpus: list[str] | None = setting(
        None, "The cards that train, by index or UUID: 0,1. Space on a card of the list takes it or leaves it out.",
        "Each card computes micro-batches of its own; accumulation is solved again, so that the step stays the same.",
        "Empty: all that are visible.",
        "A card that you leave out is free for something else; the run takes longer.",
        label="GPUs", step=HARDWARE, group="Where it begins", when="several_gpus", empty="all",
        option="--gpus LIST", says="GPUs of this machine, like 0,1.", option_group="where",
    )
    precision: Precision | None = setting(
        None, "The number format of the computation.",
        "16 bits halve the memory of activations and use the card's tensor cores.",
        "What was detected: bf16 from sm 8.0 on, fp16 below, fp32 without a GPU.",
        "fp16 needs loss scaling; bf16-true also stores weights in 16 bits and rounds small updates away.",
        label="Precision", group="How it is done",
        option="--precision", says="Number format.", option_group="how",
        learnt=True,
    )
    base_precision: BasePrecision | None = setting(
        None, "The number format in which the frozen base of LoRA adapters is held (QLoRA).",
        "4 bits take a quarter of the memory of 16: an 8B model fits a 12 GB card.",
        "Empty: 16 bits where they fit, else 4 bits.",
        "Up to a third more time a step: weights are made whole each time they are used. 8 bits keep the inputs of their "
        "products, which checkpointing does not save.",
        label="Frozen base in", group="How it is done", when="adapters", empty="decided by the plan",
        words={"none": "the precision of the run", "nf4": "4 bits (NF4)", "int8": "8 bits"},
        option="--base-precision", says="Hold the frozen base of LoRA in 4 or 8 bits.", option_group="how",
        learnt=True,
    )
    attention: Attention | None = setting(
        None, "The kernel that computes attention.",
        "sdpa and flash attention keep no matrix of length × length.",
        "sdpa.",
        "eager costs memory and time; flash attention needs sm 8.0 and its own package.",
        label="Attention", group="How it is done",
        option="--attention", says="Attention kernel.", option_group="how",
    )
    checkpointing: bool | None = setting(
        None, "Compute activations again in the backward pass instead of keeping them.",
        "Activations are most of the memory of long inputs.",
        "off where the plan fits, on where it does not.",
        "About a third more time a step.",
        label="Checkpointing", group="How it is done",
        option="--checkpointing", says="Recompute activations: less memory, more time.", option_group="how",
    )
    optimizer: Optimizer | None = setting(
        None, "How gradients become updates.",
        "AdamW keeps two numbers for each weight: 8 bytes a parameter.",
        "AdamW.",
        "8 bit keeps a quarter of that; SGD none, and needs another learning rate.",
        label="Optimizer", group="How it is done",
        words={
            "adamw_torch": "AdamW", "adamw_torch_fused": "AdamW, fused", "adafactor": "Adafactor", "sgd": "SGD",
            "adamw_bnb_8bit": "AdamW, 8 bit", "paged_adamw_8bit": "AdamW, 8 bit, paged",
        },
        option="--optimizer", says="Optimizer.", option_group="how",
        learnt=True,
    )
    strategy: Strategy | None = setting(
        None, "How processes share the work and the training states.",
        "One process for one device; DDP for several; ZeRO and FSDP split what does not fit.",
        "What was solved.",
        "ZeRO needs DeepSpeed; splitting costs traffic between the devices.",
        label="Strategy", group="How it is done",
        words={
            "single": "one process", "ddp": "DDP", "fsdp": "FSDP",
            "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3",
        },
        option="--strategy", says="How processes share the work.", option_group="how",
        learnt=True,
    )
    offload: Offload = setting(
        "none", "What is kept in host RAM instead of on the GPU.",
        "Optimizer states are the largest part of the training states.",
        "nothing.",
        "Time: every step moves gradients and weights over the bus.",
        label="In host RAM", group="Devices and processes", rare=True,
        words={"none": "nothing", "optimizer": "the optimizer", "all": "optimizer and weights"},
        option="--offload", says="What is kept in host RAM.", option_group="how",
    )
    device: Literal["cuda", "mps", "cpu"] | None = setting(
        None, "The kind of device that trains.",
        "A CPU is tens of times slower than a GPU.",
        "What was detected.",
        "Time.",
        label="Device", group="Devices and processes", rare=True,
    )
    processes: int | None = setting(
        None, "Training processes on this machine.",
        "Each computes micro-batches of its own, on a GPU of its own.",
        "Empty: one for each GPU, one on a CPU.",
        "On a CPU they share RAM and cores.",
        ge=1, le=4096, label="Processes", group="Devices and processes", rare=True,
    )
    nodes: int = setting(
        1, "How many machines train together.",
        "Every machine starts the same folder, on a disk that all share; `trainwiz export` has the commands.",
        "1.",
        "Traffic between the machines at every step.",
        ge=1, le=1024, label="Machines", group="Devices and processes", rare=True,
        option="--nodes N", says="Machines that train together.", option_group="where",
    )
    nodes_timeout_s: int = setting(
        300, "Seconds that a machine waits for the others to come before it gives up.",
        "They are started by hand or by a queue, one after another.",
        "300 s.",
        "Nothing; a machine that does not come is said that late.",
        ge=10, le=10**6, label="Wait for machines", group="Devices and processes", id="nodes_timeout", rare=True,
        when="several_machines", unit="s",
    )
    tf32: bool | None = setting(
        None, "Matrix products of what stays in fp32 are rounded to TF32.",
        "They are several times faster from sm 8.0 on.",
        "on from sm 8.0 on.",
        "Three digits of precision instead of seven.",
        label="TF32 products", group="Devices and processes", rare=True, when="cuda",
    )
    compile: bool = setting(
        False, "Compile the model into fused kernels.",
        "Steps can be a fifth faster on a GPU.",
        "off; on for long runs.",
        "Minutes at the start, and again for each new shape.",
        label="torch.compile", group="Devices and processes", rare=True,
        trainer="torch_compile",
    )
    liger: bool = setting(
        False, "Compute norms, rotary positions and gated layers by the kernels of liger-kernel, where it is installed.",
        "They keep fewer activations, and are often quicker.",
        "off.",
        "Losses differ in the last digits. The logits are not theirs: training.loss_chunk has them in slices.",
        label="Liger kernels", group="How it is done", rare=True, when="cuda", trainer="use_liger_kernel", learnt=True,
    )
    cpu_threads: int | None = setting(
        None, "Threads of each training process.",
        "More threads than cores slow each other down.",
        "Empty: the cores, shared among the processes.",
        ge=1, le=1024, label="CPU threads", group="Devices and processes", rare=True,
    )
    process_timeout_s: int | None = setting(
        None, "Seconds that a process waits for the others before it gives up.",
        "A process that died would be waited for until then.",
        "Empty: 30 minutes, or longer where one step takes longer.",
        ge=1, le=10**6, label="Wait for others", group="Devices and processes", id="process_timeout", rare=True,
        when="several_processes", unit="s",
        trainer="ddp_timeout",
    )
    environment: dict[VariableName, VariableValue] = setting(
        {}, "Environment variables of the run: NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO.",
        "Some machines need one to work around a driver.",
        "Empty.",
        "Nothing; they are written into the launch script, so put no secret here.",
        label="Environment", group="Devices and processes", rare=True, empty="nothing of its own",
    )
    deepspeed_file: str | None = setting(
        None, "A DeepSpeed JSON of your own, used as it is.",
        "For settings that trainwiz does not know.",
        "Empty: trainwiz writes it.",
        "What contradicts the plan is listed, and the run does not start.",
        label="DeepSpeed file", group="Devices and processes", rare=True, empty="none",
        option="--deepspeed FILE", says="Your own DeepSpeed JSON, used as it is.", option_group="how",
    )
