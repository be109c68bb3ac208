"""Settings: the model, the data, the batch, adapters."""

from typing import Any, Literal

from trainwiz.core.config.setting import MODEL, REQUIRED, Section, setting
from trainwiz.core.config.values import CLASSIFIES, RunName, SourceName, Task

# A table: the texts of an entry, its bounds and its row, its option.
# fmt: off


class RunSection(Section):
    """What stands above the sections."""

    schema_version: Literal[1] = setting(1)
    name: RunName = setting("run", "Name of the run, part of its folder's name.", min_length=1, max_length=80)
    profile: str | None = setting(None, "The profile that this run came from.")
    task: Task = setting(
        "masked-lm",
        "What the model learns: fill in masked words or letters (masked-lm), continue a text (causal-lm), turn one "
            "text into another (seq2seq), classify a text (sequence-classification) or each of its words "
            "(token-classification).",
        "Determines how a row becomes a sample, which loss is computed and which metrics are evaluated.",
        "The task the model is built for; it follows from the model.",
        label="Task", step=MODEL, after="model.init", offers=("masked-lm", "causal-lm", "seq2seq", *CLASSIFIES),
        option="--task", says="What the model learns to do.",
    )


class ModelSection(Section):
    """What is trained."""

    name: SourceName = setting(
        "esm2-tiny", "A catalog name, Hub ID, local model folder or config.json.",
        "Its size affects memory and time more than anything else.",
        "Start with the smallest of its family; the same settings carry over to the larger models.",
        "Memory and time grow roughly in proportion to the number of parameters.",
        min_length=1, label="Model", id="model", offers=(), free_text=True,
        option="--model MODEL", says="Catalog name, Hub ID, model folder or config.json.",
    )
    init: Literal["scratch", "pretrained"] | None = setting(
        None, "From scratch (random initialization), or pretrained weights.",
        "Pretraining starts from random weights; fine-tuning needs pretrained weights.",
        "Pretrained, if the weights are on this machine.",
        "Training from scratch needs far more data and time to give a useful model.",
        label="Initial weights", words={"scratch": "from scratch", "pretrained": "pretrained weights"},
    )
    architecture: dict[str, Any] | None = setting(
        None,
        "The Hugging Face architecture config that `name` stands for; filled by the plan so that a run folder needs "
        "no catalogue.",
    )
    tokenizer: SourceName | None = setting(
        None, "Splits text into tokens: a Hub ID, a folder, or one trained on your data.",
        "Pretrained weights only understand the tokens of their own tokenizer.",
        "Empty: the model's own; a model from scratch without one on this machine trains one on the data.",
        "Training a tokenizer takes seconds for a few thousand rows.",
        label="Tokenizer", rare=True, when="text", empty="the model's own",
        words={"train": "trained on the data"}, offers=("train",), free_text=True,
    )
    chat_template: SourceName | None = setting(
        None, "How chat turns are written as text: own (the model's), chatml, or a file with a Jinja template.",
        "An instruct model answers well in the template it was trained with.",
        "Empty: the model's own; chatml if it has none, saved with the trained model.",
        "A template other than its own has to be learned first.",
        label="Chat template", rare=True, when="causal", empty="the model's own", offers=("own", "chatml"),
        free_text=True, option="--chat-template NAME", says="own (the model's), chatml, or a file with a Jinja "
            "template.",
    )
    source_language: str | None = setting(
        None, "Language of the inputs, as a multilingual tokenizer names it: zho_Hans.",
        "NLLB prepends it to every input.",
        "Empty for models of a single language pair.",
        label="Source language", rare=True, when="targets",
    )
    target_language: str | None = setting(
        None, "Language of the targets, as a multilingual tokenizer names it: eng_Latn.",
        "The model starts every output with it.",
        "Empty for models of a single language pair.",
        label="Target language", rare=True, when="targets",
    )
    architecture_overrides: dict[str, Any] = setting(
        {}, "Keys of the model config to override: num_hidden_layers=6 hidden_dropout_prob=0.1.",
        "A model from scratch can differ from the published one in depth or width.",
        "Empty.",
        "Memory and time change with it; pretrained weights only fit their own shapes.",
        label="Config overrides", id="architecture", rare=True, empty="same as the model",
    )
    new_head: bool = setting(
        False, "Reinitialize the classification head, even if the model already has one.",
        "A model trained for other classes can be trained for yours.",
        "off: the model keeps its classes if they match those of the data.",
        label="New classifier head", rare=True, when="classifies",
    )
    trust_remote_code: bool = setting(
        False, "Run the Python code that comes with the model (trust_remote_code).",
        "Some models on the Hub cannot be loaded without it.",
        "off.",
        "The code can do anything that you can do on this machine; read it first.",
        label="Trust remote code", id="remote_code", rare=True,
    )


class DataSource(Section):
    """One source of rows: a file, a folder of files, a sample that ships with trainwiz, or a hub id."""

    name: SourceName = setting(
        REQUIRED, "A sample dataset of trainwiz, or a file or folder: parquet, jsonl, csv, tsv, txt, fasta or conll.",
        "The model is trained on it.",
        "A sample first, to see a run from start to finish.",
        "Large files take disk space and loading time; the plan shows how much.",
        min_length=1, label="Data", id="data", offers=(), free_text=True,
        option="--dataset DATA", says="Sample name, file, folder or Hub ID.",
    )
    split: str = setting(
        "train", "Split of a Hub dataset to train on, as named on its page.",
        "Datasets keep test rows apart; training on them invalidates every comparison.",
        "train.",
        label="Split", when="hub_data",
    )
    subset: str | None = setting(
        None, "Configuration (subset) of a Hub dataset, if it has several.",
        "Subsets are often languages or versions.",
        "Empty if there is only one.",
        label="Subset", when="hub_data", empty="the only one",
    )
    layout: Literal["plain", "chat"] | None = setting(
        None, "What a row is: a text (with an optional target), or a chat of several turns.",
        "Chats are formatted with the model's chat template, and the assistant's turns are trained on.",
        "Empty: chats if the file contains lists of turns or instructions, or the model has a chat template.",
        label="Row "
            "type", when="causal", words={"plain": "texts", "chat": "chats"}, empty="detected from the file",
    )
    text_column: str | int | None = setting(
        None, "Column with the text or the sequence.",
        "Files often have more columns than training needs.",
        "The detected column; look at the first rows below.",
        label="Text column", id="column", empty="detected by name", offers=(), free_text=True,
    )
    target_column: str | int | None = setting(
        None, "Column with the expected output: the translation, the response to a prompt, or the class.",
        "Required for seq2seq and classification; a causal model is trained on the response only, if there is one.",
        "The detected column; look at the first rows below.",
        label="Target column", when="text", empty="none", offers=(), free_text=True,
    )
    chat_columns: dict[Literal["context", "system", "history", "tools"], str] = setting(
        {}, "Columns that belong to a chat: context (added to the instruction), system, history, tools.",
    )
    json_turns: bool | None = setting(
        None, "Whether the cells of the prompt and the answer are lists of turns, written as JSON (a CSV file of chats).",
    )
    format: Literal["parquet", "jsonl", "csv", "tsv", "txt", "fasta", "conll"] | None = setting(
        None, "Format of the file, if its name does not show it or is wrong.",
        "A folder with several formats needs one of them specified.",
        "Empty: by file extension.",
        label="File format", rare=True, empty="by file extension",
    )
    max_rows: int | None = setting(
        None, "Use only the first rows, up to this number.",
        "For quick experiments.",
        "Empty: all rows.",
        "The model sees less data.",
        ge=1, label="Max rows", rare=True, unit="rows", empty="all rows",
    )
    min_characters: int | None = setting(None, "Drop rows with a shorter text.", ge=0)
    max_characters: int | None = setting(None, "Drop rows with a longer text.", ge=1)


class DataSection(Section):
    """Where the rows come from and how they reach the model."""

    sources: list[DataSource] = setting(
        [{"name": "sample-proteins"}], "One source or several, mixed.",
        min_length=1,
    )
    too_long: Literal["cut", "drop"] = setting(
        "cut", "Truncate or drop rows that exceed the max input length.",
        "A truncated chat ends in the middle of an answer, and its end is not trained on.",
        "cut (truncate), if few rows are too long; the findings show how many.",
        "Fewer rows.",
        label="Overlong rows", rare=True, when="causal", words={"cut": "truncated", "drop": "dropped"},
    )
    concatenate: bool | None = setting(
        None, "Concatenate the texts and split them into sequences of full length.",
        "No padding: every token of a batch is trained on.",
        "Empty: on for plain text when all weights are trained, off for prompts with responses and for LoRA.",
        "A sequence may contain the end of one text and the start of another.",
        label="Concatenate texts", rare=True, when="causal",
    )
    validation_sources: list[DataSource] = setting(
        [], "A separate file or folder whose rows are used for evaluation and never trained on.",
        "A held-out set fixed once makes runs comparable.",
        "Empty: some rows of the dataset are held out.",
        "Time for each evaluation.",
        label="Held-out data", id="validation_data", rare=True, empty="some of the dataset", offers=(),
        free_text=True,
    )
    validation_rows: int | None = setting(
        None, "Rows used for evaluation and never trained on.",
        "Only the loss on unseen rows shows whether the model learns or memorizes.",
        "Empty: 1% of the rows, at most 2,000. 0 disables evaluation.",
        "Time for each evaluation.",
        ge=0, label="Held-out rows", rare=True, unit="rows",
    )
    min_characters: int | None = setting(
        None, "Drop rows with a shorter text.",
        "Very short rows are often headings or noise.",
        "Empty: no limit.",
        "Fewer rows.",
        ge=0, label="Min text length", rare=True, unit="characters", empty="no limit",
    )
    max_characters: int | None = setting(
        None, "Drop rows with a longer text instead of truncating them.",
        "A truncated text ends in the middle of a sentence.",
        "Empty: no limit.",
        "Fewer rows.",
        ge=1, label="Max text length", rare=True, unit="characters", empty="no limit",
    )
    streaming: bool | None = setting(
        None, "Read the rows from disk during training instead of keeping them in memory.",
        "Allows training on data larger than RAM.",
        "Empty: on if the rows would fill the RAM.",
        "A one-time copy of the texts on disk. Rows are shuffled in windows of 128 MiB of text.",
        label="Streaming", rare=True,
    )
    arrange_by_length: bool | None = setting(
        None, "Sort the rows of an optimizer step by length before splitting them into micro-batches.",
        "The gradient is the same sum, with less padding to compute.",
        "Empty: on if a step has more than one micro-batch.",
        "off uses the row order of the transformers Trainer.",
        label="Arrange by length", group="Data loading",
    )
    group_by_length: bool = setting(
        False, "Put rows of similar length into the same micro-batch.",
        "Less padding to compute.",
        "on if row lengths differ a lot; the findings show how much it saves.",
        "The rows of a small step are of similar length; an epoch has the same rows.",
        label="Group by length", group="Data loading",
    )
    packing: bool = setting(
        False, "Padding-free: the rows of a micro-batch are placed end to end; each attends only to itself.",
        "No padding is computed, and the gradient is the same sum.",
        "on if a step is one micro-batch of rows that differ a lot in length.",
        "Only for causal models; does not work with eager attention, torch.compile, FSDP or ZeRO-3.",
        label="Packing", group="Data loading",
    )
    pad_to_multiple_of: int | None = setting(
        None, "Round the length of each micro-batch up to a multiple of this.",
        "Tensor cores are fastest with such lengths.",
        "Empty: 8 for 16-bit precision on an NVIDIA GPU, 4 for TF32, otherwise 1.",
        "Slightly more padding, which does not affect the loss.",
        ge=1, le=1048576, label="Pad to multiple of", group="Data loading", unit="tokens",
    )
    workers: int | None = setting(
        None, "Data loader processes per training process.",
        "With too few, the device waits for data.",
        "Empty: as many as hid the loading when measured, otherwise as many as RAM and CPU cores allow.",
        "About 40 MiB of RAM each, plus the batches they prefetch.",
        ge=0, le=256, label="Loader workers", group="Data loading",
    )
    prefetch: int | None = setting(
        None, "Batches that each worker prefetches.",
        "They cover for rows that are slow to read; a step takes all its micro-batches at once.",
        "Empty: enough for the micro-batches of a step, at least 2; 1 if RAM is short.",
        "RAM, in proportion.",
        ge=1, le=256, label="Prefetch", group="Data loading", unit="batches",
    )
    pin_memory: bool | None = setting(
        None, "Keep batches in pinned (page-locked) RAM, which cannot be swapped out.",
        "Copies to the GPU are faster.",
        "on with an NVIDIA GPU and at least 15 GB of RAM.",
        "RAM that nothing else can use.",
        label="Pinned memory", group="Data loading",
    )
    persistent_workers: bool | None = setting(
        None, "Keep loader workers alive from one epoch to the next.",
        "Restarting them takes seconds.",
        "on if there are workers.",
        "Their RAM stays in use between epochs.",
        label="Persistent workers", group="Data loading",
    )


class BatchSection(Section):
    """How many sequences and tokens one optimizer step sees."""

    sequence_length: int = setting(
        512, "Rows longer than this are truncated.",
        "Attention and activations grow with it; truncated tokens are never seen.",
        "A length that truncates few rows: the bars show how many.",
        "Twice the length needs at least twice the memory and time per row.",
        ge=8, le=1048576, label="Max input length", id="length", after="data.sources.0.target_column",
        unit="tokens",
        option="--length TOKENS", says="Max input length in tokens.",
    )
    target_length: int | None = setting(
        None, "Targets longer than this are truncated.",
        "The decoder's activations and its logits grow with it; they are often the memory peak.",
        "A length that truncates few targets.",
        "Memory and time, in proportion.",
        ge=1, le=1048576, label="Max target length", when="targets", unit="tokens",
        option="--target-length TOKENS", says="Max target length in tokens (seq2seq).",
    )
    target_tokens: int | None = setting(
        None, "Target size of one optimizer step: tokens, non-padding tokens or sequences.",
        "A recipe is tuned for one batch size; the same effective batch gives the same training on any GPU.",
        "The profile's value.",
        "A larger batch makes a step longer and needs a higher learning rate; memory stays the same.",
        ge=1, le=10**13, label="Target batch", group="Goals", id="target", unit="tokens",
        option="--target-tokens N", says="Target tokens per step, such as 2M.",
    )
    target_real_tokens: int | None = setting(
        None, "Aim: tokens a step, padding not counted (needs data that can be measured).",
        ge=1, le=10**13, beside="batch.target_tokens", unit="non-padding tokens",
        option="--target-real-tokens N", says="Target non-padding tokens per step; needs a dataset that can be read "
            "before the start.",
    )
    target_samples: int | None = setting(
        None, "Aim: sequences a step.",
        ge=1, le=10**10, beside="batch.target_tokens", unit="sequences",
        option="--target-samples N", says="Target sequences per step.",
    )
    micro_batch_size: int | None = setting(
        None, "Sequences that one process computes at once (per-device batch size).",
        "Determines activation memory and how busy the device is.",
        "Empty: the largest that fits.",
        "Memory, in proportion; below 4, a GPU is underused.",
        ge=1, le=65536, label="Micro-batch", group="Computation", id="micro_batch", after="engine.strategy",
        unit="sequences",
        option="--micro-batch N", says="Sequences per device and forward pass; lower it when out of memory.",
        option_group="how",
    )
    gradient_accumulation_steps: int | None = setting(
        None, "Gradient accumulation: micro-batches summed before one optimizer step.",
        "Reaches the target batch on a small GPU.",
        "Empty: computed from the target batch.",
        "Time per step, in proportion; hardly any memory.",
        ge=1, le=1048576, label="Accumulation", group="Computation", id="accumulation",
        option="--accumulation N", says="Micro-batches per step; computed from the target if not set.",
        option_group="how",
    )
    eval_micro_batch_size: int | None = setting(
        None, "Sequences that one process evaluates at once.",
        "Evaluation stores no activations, but it computes logits too.",
        "Empty: the largest that fits.",
        "Memory during evaluation.",
        ge=1, le=65536, label="Evaluation batch", group="Devices and processes", id="eval_micro_batch",
        after="engine.offload", unit="sequences",
    )


class PeftSection(Section):
    """Adapters instead of full training."""

    method: Literal["none", "lora"] = setting(
        "none", "Full training or full fine-tuning (all weights), or LoRA (small adapters on frozen weights).",
        "LoRA needs no gradients or optimizer states for the frozen weights: a 7B model fits on one GPU.",
        "All weights from scratch; LoRA to fine-tune a large pretrained model.",
        "LoRA needs little memory and can learn less than full training.",
        label="Method", id="peft", after="model.name", when="may_adapt",
        words={"none": "full (all weights)", "lora": "LoRA"},
        option="--peft", says="Train LoRA adapters instead of all weights.",
    )
    rank: int = setting(
        8, "Rank (width) of the adapters.",
        "Determines how much they can learn.",
        "8 to 64.",
        "Adapter memory and time, in proportion; little compared with the frozen weights.",
        ge=1, le=4096, label="LoRA rank", id="lora_rank", when="adapters",
        option="--lora-rank N", says="Rank of the LoRA adapters.",
    )
    targets: list[str] = setting(
        [], "Names of the modules that get an adapter: q_proj,v_proj.",
        "More modules can learn more.",
        "all-linear: every linear layer of the transformer blocks.",
        "Memory and time for each adapter.",
        label="LoRA targets", id="lora_targets", when="adapters", empty="all-linear",
        option="--lora-targets A,B,...", says="Modules that get an adapter, or all-linear.",
    )
    merge: bool = setting(
        False, "Merge the adapter into the base model at the end of the run.",
        "A merged model loads like any other, without PEFT.",
        "off: the adapter alone is small, and one base model serves many adapters.",
        "Disk space for a full model. The adapter is kept too.",
        label="Merge at the end", when="adapters",
    )
    alpha: float | None = setting(
        None, "LoRA alpha: the adapter output is scaled by alpha / rank.",
        "Sets how strongly the adapter contributes.",
        "Empty: twice the rank.",
        gt=0, label="LoRA alpha", id="lora_alpha", rare=True, when="adapters", empty="twice the rank",
    )
    dropout: float = setting(
        0.0, "Share of the adapter input that is dropped during training.",
        "Helps against overfitting on small datasets.",
        "0, or 0.05 for a few thousand rows.",
        ge=0, lt=1, label="LoRA dropout", id="lora_dropout", rare=True, when="adapters",
    )
    rslora: bool = setting(
        False, "Scale by alpha / sqrt(rank) instead of alpha / rank (rsLoRA, arXiv:2312.03732).",
        "High-rank adapters then learn as fast as low-rank ones.",
        "off; on for rank 64 and above.",
        label="rsLoRA", rare=True, when="adapters",
    )
    dora: bool = setting(
        False, "Train the magnitude of each weight vector in addition to its direction (DoRA, arXiv:2402.09353).",
        "Low-rank adapters can come closer to full fine-tuning.",
        "off.",
        "Time and memory: every forward pass computes each adapted matrix in full.",
        label="DoRA", rare=True, when="adapters",
    )
    modules_to_save: list[str] = setting(
        [], "Modules trained in full in addition to the adapters (modules_to_save): embed_tokens,lm_head.",
        "New tokens, such as those of a chat template, need them.",
        "Empty: none.",
        "Memory for a copy of each module, its gradients and optimizer states; also disk space, since the adapter "
            "contains them.",
        label="Modules to save", rare=True, when="adapters", empty="none",
    )
    adapter: str | None = setting(
        None, "Folder with an adapter to continue from: its weights, rank, alpha and modules.",
        "A second run, on other data or with another learning rate, starts where the first one ended.",
        "Empty: new adapters.",
        label="Start from adapter", rare=True, when="adapters", empty="new adapters",
    )
