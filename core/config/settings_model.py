"""Settings: the model, the data, the batch, adapters."""

from typing import Any, Literal

from trainwiz.core.config.setting import DATA, MODEL, REQUIRED, Section, setting
from trainwiz.core.config.values import CLASSIFIES, SourceName, Task

# A table: the texts of an entry, its bounds and its row, its option.
# fmt: off


class RunSection(Section):
    """What stands above the sections."""

    schema_version: Literal[1] = setting(1)
    name: str = setting("run", "Name of the run, part of its folder's name.", min_length=1, max_length=80)
    profile: str | None = setting(None, "The profile that this run came from.")
    task: Task = setting(
        "masked-lm",
        "What the model learns: fill in hidden words or letters (masked-lm), go on with a text (causal-lm), turn one text "
        "into another (seq2seq), tell the class of a text (sequence-classification) or of each word "
        "(token-classification).",
        "It decides how a row becomes a sample, which loss is computed and what is measured.",
        "What the model is made for; it comes with the model.",
        label="Task", step=MODEL, after="model.init", offers=("masked-lm", "causal-lm", "seq2seq", *CLASSIFIES),
        option="--task", says="What the model learns to do.",
    )


class ModelSection(Section):
    """What is trained."""

    name: SourceName = setting(
        "esm2-tiny", "A name from the catalogue, a hub id, a local model folder, or a config.json.",
        "Its size decides memory and time more than anything else.",
        "The smallest of its family first; the same settings then carry over to the larger ones.",
        "Memory and time grow about in proportion to its parameters.",
        min_length=1, label="Model", step=MODEL, id="model", offers=(), free_text=True,
        option="--model MODEL", says="Catalogue name, hub id, model folder or config.json.",
    )
    init: Literal["scratch", "pretrained"] | None = setting(
        None, "From scratch, or pretrained weights.",
        "Pretraining begins with random weights; fine-tuning needs pretrained ones.",
        "Pretrained, where the weights are on this machine.",
        "Random weights need far more data and time to become useful.",
        label="Starts from", step=MODEL, words={"scratch": "random weights", "pretrained": "pretrained weights"},
    )
    architecture: dict[str, Any] | None = setting(
        None,
        "The Hugging Face architecture config that `name` stands for; filled by the plan so that a run folder needs "
        "no catalogue.",
    )
    tokenizer: SourceName | None = setting(
        None, "What cuts text into tokens: a hub id, a folder, or one that is trained on your data.",
        "Pretrained weights only understand their own tokens.",
        "Empty: the model's own; a model from scratch that has none here makes one from the data.",
        "Training one takes seconds for a few thousand rows.",
        label="Tokenizer", step=MODEL, rare=True, when="text", empty="the model's own",
        words={"train": "trained on the data"}, offers=("train",), free_text=True,
    )
    chat_template: SourceName | None = setting(
        None, "How turns are written as text: own (the model's), chatml, or a file with a Jinja template.",
        "An instruct model answers well in the template that it was made with.",
        "Empty: the model's own; chatml where it has none, kept with the trained model.",
        "Another template than its own has to be learnt first.",
        label="Chat template", step=MODEL, rare=True, when="causal", empty="the model's own", offers=("own", "chatml"),
        free_text=True, option="--chat-template NAME", says="own, chatml, or a file with a Jinja template.",
    )
    source_language: str | None = setting(
        None, "The language of the inputs, as a multilingual tokenizer names it: zho_Hans.",
        "NLLB puts it in front of every input.",
        "Empty for models of one pair of languages.",
        label="Source language", step=MODEL, rare=True, when="targets",
    )
    target_language: str | None = setting(
        None, "The language of the targets, as a multilingual tokenizer names it: eng_Latn.",
        "The model starts every answer with it.",
        "Empty for models of one pair of languages.",
        label="Target language", step=MODEL, rare=True, when="targets",
    )
    architecture_overrides: dict[str, Any] = setting(
        {}, "Keys of the model's config to change: num_hidden_layers=6 hidden_dropout_prob=0.1.",
        "A model from scratch may have another depth or width than the published one.",
        "Empty.",
        "Memory and time follow; pretrained weights fit their own shape only.",
        label="Architecture changes", step=MODEL, id="architecture", rare=True, empty="as the model has it",
    )
    new_head: bool = setting(
        False, "Start the layers that tell the classes anew, although the model has some.",
        "A model that was trained for other classes can be trained for yours.",
        "off: a model keeps its classes where they are those of the data.",
        label="New head", step=MODEL, rare=True, when="classifies",
    )
    trust_remote_code: bool = setting(
        False, "Run Python code that comes with the model.",
        "Some models on the hub cannot be loaded without it.",
        "off.",
        "The code can do everything that you can do on this machine; read it first.",
        label="The model's own code", step=MODEL, id="remote_code", rare=True,
    )


class DataSource(Section):
    """One source of rows: a file, a folder of files, a sample that ships with trainwiz, or a hub id."""

    name: SourceName = setting(
        REQUIRED, "A sample that ships with trainwiz, or a file or folder: parquet, jsonl, csv, tsv, txt, fasta or conll.",
        "It is what the model learns from.",
        "The sample first, to see a run from end to end.",
        "Large files cost disk and loading time; the plan shows how much.",
        min_length=1, label="Data", step=DATA, id="data", offers=(), free_text=True,
        option="--dataset DATA", says="Sample name, file, folder or hub id.",
    )
    split: str = setting(
        "train", "The part of a hub data set to learn from, as its page names it.",
        "Data sets keep rows for tests apart; learning from them spoils every comparison.",
        "train.",
        label="Split", step=DATA, when="hub_data",
    )
    subset: str | None = setting(
        None, "Which configuration of a hub data set, where it has several.",
        "They are often languages or versions.",
        "Empty, where there is only one.",
        label="Subset", step=DATA, when="hub_data", empty="the only one",
    )
    layout: Literal["plain", "chat"] | None = setting(
        None, "What a row is: a text (and perhaps its target), or a chat of several turns.",
        "Chats are put into the template of the model, and what the assistant says is learnt.",
        "Empty: chats where the file holds lists of turns or instructions, or the model has a template.",
        label="Rows are", step=DATA, when="causal", words={"plain": "texts", "chat": "chats"}, empty="found by the file",
    )
    text_column: str | int | None = setting(
        None, "The column that holds the text or the sequence.",
        "Files often hold more columns than training needs.",
        "The one that was found; look at the first rows below.",
        label="Text column", step=DATA, id="column", empty="found by name", offers=(), free_text=True,
    )
    target_column: str | int | None = setting(
        None, "The column that the model should answer with: the translation, the response to a prompt, or the class.",
        "seq2seq and classification need one; a causal model learns only the response where there is one.",
        "The one that was found; look at the first rows below.",
        label="Target column", step=DATA, when="text", empty="none", offers=(), free_text=True,
    )
    chat_columns: dict[Literal["context", "system", "history", "tools"], str] = setting(
        {}, "Columns that belong to a chat: context (added to the instruction), system, history, tools.",
        "An instruction without its input is another task.",
        "Those that were found by their names.",
    )
    json_turns: bool | None = setting(
        None, "Whether the cells of the prompt and the answer are lists of turns, written as JSON (a CSV file of chats).",
        "Else the model would learn to write JSON.",
        "Empty: yes where the first 32 rows are all such lists.",
    )
    format: Literal["parquet", "jsonl", "csv", "tsv", "txt", "fasta", "conll"] | None = setting(
        None, "How the file is read, where its name does not tell or tells it wrongly.",
        "A folder with several formats needs one of them named.",
        "Empty: by the end of the file's name.",
        label="File format", step=DATA, rare=True, empty="by the file's name",
    )
    max_rows: int | None = setting(
        None, "Use only the first rows.",
        "For quick tries.",
        "Empty: all rows.",
        "A model that saw less data.",
        ge=1, label="Rows at most", step=DATA, rare=True, unit="rows", empty="all rows",
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
        "cut", "Rows that are longer than the longest input are cut, or left out.",
        "A chat that is cut ends in the middle of an answer, and its end is not learnt.",
        "cut, where few rows are too long; the findings say how many.",
        "Fewer rows.",
        label="Too long rows", step=DATA, rare=True, when="causal", words={"cut": "are cut", "drop": "are left out"},
    )
    concatenate: bool | None = setting(
        None, "Join the texts and cut them into sequences of full length.",
        "No padding: every token of a batch is learnt from.",
        "Empty: on for plain text and all weights, off for prompts with responses and for LoRA.",
        "A sequence may hold the end of one text and the beginning of another.",
        label="Join texts", step=DATA, rare=True, when="causal",
    )
    validation_sources: list[DataSource] = setting(
        [], "A file or folder of its own whose rows measure the model and are never trained on.",
        "Rows that were set apart once make runs comparable.",
        "Empty: some rows of the data are held out.",
        "Time for each evaluation.",
        label="Held-out data", step=DATA, id="validation_data", rare=True, empty="some of the data", offers=(),
        free_text=True,
    )
    validation_rows: int | None = setting(
        None, "Rows that are never trained on and measure the model.",
        "Only a loss on unseen rows tells whether the model learns or remembers.",
        "Empty: 1 % of the rows, at most 2,000. 0 switches evaluation off.",
        "Time for each evaluation.",
        ge=0, label="Held-out rows", step=DATA, rare=True, unit="rows",
    )
    min_characters: int | None = setting(
        None, "Rows with a shorter text are dropped.",
        "Very short rows are often headings or noise.",
        "Empty: no limit.",
        "Fewer rows.",
        ge=0, label="Shortest text", step=DATA, rare=True, unit="characters", empty="no limit",
    )
    max_characters: int | None = setting(
        None, "Rows with a longer text are dropped, not cut.",
        "A cut text ends in the middle of a sentence.",
        "Empty: no limit.",
        "Fewer rows.",
        ge=1, label="Longest text", step=DATA, rare=True, unit="characters", empty="no limit",
    )
    streaming: bool | None = setting(
        None, "Leave the rows in their files and read them while training, instead of in memory.",
        "Data that is larger than host RAM can be trained on.",
        "Empty: on where the rows would fill the RAM.",
        "An index on disk, once. Rows are shuffled in windows of 128 MiB of text.",
        label="Streamed", step=DATA, rare=True,
    )
    arrange_by_length: bool | None = setting(
        None, "The rows of an optimizer step are sorted by length before they are cut into micro-batches.",
        "The gradient is the same sum; less of what is computed is padding.",
        "Empty: on where a step is more than one micro-batch.",
        "off gives the order of the Trainer of transformers.",
        label="Arrange by length", group="Loading", rare=True,
    )
    group_by_length: bool = setting(
        False, "Rows of like length share a micro-batch.",
        "Less of what is computed is padding.",
        "on where rows differ much in length; the findings say what it saves.",
        "The rows of a small step are alike in length; an epoch has the same rows.",
        label="Group by length", group="Loading", rare=True,
    )
    packing: bool = setting(
        False, "Rows of a micro-batch lie end to end; each sees itself alone.",
        "Nothing of what is computed is padding, and the gradient is the same sum.",
        "on where a step is one micro-batch of rows that differ much in length.",
        "For causal models; not with eager attention, torch.compile, FSDP or ZeRO-3.",
        label="Packing", group="Loading", rare=True,
    )
    pad_to_multiple_of: int | None = setting(
        None, "The length of each micro-batch is rounded up to a multiple of this.",
        "Tensor cores are fastest on such lengths.",
        "Empty: 8 for 16-bit numbers on an NVIDIA GPU, 4 for TF32, else 1.",
        "A little more padding, which counts for nothing.",
        ge=1, le=1048576, label="Pad to multiple of", group="Loading", rare=True, unit="tokens",
    )
    workers: int | None = setting(
        None, "Processes that prepare batches, for each training process.",
        "With too few the device waits for data.",
        "Empty: what hid the loading when it was measured; else what RAM holds and the cores feed.",
        "Some 160 MiB of RAM each, and the batches that they keep ready.",
        ge=0, le=256, label="Loader workers", group="Loading", rare=True,
    )
    prefetch: int | None = setting(
        None, "Batches that each worker prepares ahead.",
        "They bridge rows that take long to read; a step takes all its micro-batches at once.",
        "Empty: what holds a step's micro-batches, at least 2; 1 where RAM is short.",
        "Host RAM, in proportion.",
        ge=1, le=256, label="Prefetch", group="Loading", rare=True, unit="batches",
    )
    pin_memory: bool | None = setting(
        None, "Batches wait in RAM that cannot be swapped out.",
        "Copies to the GPU are faster.",
        "on with an NVIDIA GPU and 15 GB of RAM or more.",
        "RAM that nothing else can use.",
        label="Pinned memory", group="Loading", rare=True,
    )
    persistent_workers: bool | None = setting(
        None, "Loader workers live on from one epoch to the next.",
        "Starting them again takes seconds.",
        "on where there are workers.",
        "Their RAM stays taken between epochs.",
        label="Keep workers", group="Loading", rare=True,
    )


class BatchSection(Section):
    """How many sequences and tokens one optimizer step sees."""

    sequence_length: int = setting(
        512, "Rows longer than this are cut.",
        "Attention and activations grow with it; what is cut is never seen.",
        "A length that cuts few rows: the bars show how many.",
        "Twice the length is at least twice the memory and the time of a row.",
        ge=8, le=1048576, label="Longest input", step=DATA, id="length", after="data.sources.0.target_column",
        unit="tokens",
        option="--length TOKENS", says="Longest input in tokens.",
    )
    target_length: int | None = setting(
        None, "Targets longer than this are cut.",
        "The decoder's activations and its scores over the vocabulary grow with it; they are often the peak.",
        "A length that cuts few targets.",
        "Memory and time, in proportion.",
        ge=1, le=1048576, label="Longest target", step=DATA, when="targets", unit="tokens",
        option="--target-length TOKENS", says="Longest target in tokens (seq2seq).",
    )
    target_tokens: int | None = setting(
        None, "How much one optimizer step should see: tokens, real tokens (padding not counted) or sequences.",
        "The recipe of a model is tuned for one batch size; the same batch gives the same training on any card.",
        "The profile's.",
        "A larger batch makes a step longer and needs a higher learning rate; memory stays as it is.",
        ge=1, le=10**13, label="Target batch", group="What you want", id="target", unit="tokens",
        option="--target-tokens N", says="Tokens a step to aim at, like 2M.",
    )
    target_real_tokens: int | None = setting(
        None, "Aim: tokens a step, padding not counted (needs data that can be measured).",
        ge=1, le=10**13, beside="batch.target_tokens", unit="real tokens",
        option="--target-real-tokens N", says="The same without padding; needs data that can be measured.",
    )
    target_samples: int | None = setting(
        None, "Aim: sequences a step.",
        ge=1, le=10**10, beside="batch.target_tokens", unit="sequences",
        option="--target-samples N", says="Sequences a step to aim at.",
    )
    micro_batch_size: int | None = setting(
        None, "Sequences that one process computes at once.",
        "It decides the memory of activations and how busy the device is.",
        "Empty: the largest that fits.",
        "Memory, in proportion; below 4 a GPU idles.",
        ge=1, le=65536, label="Micro-batch", group="How it is done", id="micro_batch", after="engine.strategy",
        unit="sequences",
        option="--micro-batch N", says="Sequences computed at once; lower it when memory runs out.",
        option_group="how",
    )
    gradient_accumulation_steps: int | None = setting(
        None, "Micro-batches that are summed before one optimizer step.",
        "It reaches the target batch on a small card.",
        "Empty: solved from the target batch.",
        "Time a step, in proportion; hardly any memory.",
        ge=1, le=1048576, label="Accumulation", group="How it is done", id="accumulation",
        option="--accumulation N", says="Micro-batches in one step; the target sets it when left out.",
        option_group="how",
    )
    eval_micro_batch_size: int | None = setting(
        None, "Sequences that one process evaluates at once.",
        "An evaluation keeps no activations, but it makes logits as well.",
        "Empty: the largest that fits.",
        "Memory while it evaluates.",
        ge=1, le=65536, label="Evaluation batch", group="Devices and processes", id="eval_micro_batch",
        after="engine.offload", rare=True, unit="sequences",
    )


class PeftSection(Section):
    """Adapters instead of full training."""

    method: Literal["none", "lora"] = setting(
        "none", "All weights, or small adapters beside frozen ones (LoRA).",
        "Adapters need no gradients and no optimizer states for the weights that stay frozen: a 7B model fits one "
        "card.",
        "All weights from scratch; LoRA to fine-tune a large pretrained model.",
        "LoRA costs little memory and can learn less than full training.",
        label="Trains", step=MODEL, id="peft", after="model.name", when="may_adapt",
        words={"none": "all weights", "lora": "LoRA adapters"},
        option="--peft", says="Train adapters instead of all weights.",
    )
    rank: int = setting(
        8, "How wide the adapters are.",
        "It decides how much they can learn.",
        "8 to 64.",
        "Memory and time of the adapters, in proportion; little beside the frozen weights.",
        ge=1, le=4096, label="LoRA rank", step=MODEL, id="lora_rank", when="adapters",
        option="--lora-rank N", says="Rank of the LoRA adapters.",
    )
    targets: list[str] = setting(
        [], "The modules that get an adapter, by name: q_proj,v_proj.",
        "More modules learn more.",
        "all-linear: every linear layer of the blocks.",
        "Memory and time of each adapter.",
        label="LoRA targets", step=MODEL, id="lora_targets", when="adapters", empty="all-linear",
        option="--lora-targets A,B,...", says="Modules that get an adapter, or all-linear.",
    )
    merge: bool = setting(
        False, "Add the adapter to the weights when the run is over.",
        "A merged model loads like any other, without peft.",
        "off: the adapter alone is small, and its base stays one file for many adapters.",
        "Disk for a whole model. The adapter is kept beside it.",
        label="Merge at the end", step=MODEL, when="adapters",
    )
    alpha: float | None = setting(
        None, "The adapter counts with scale / rank.",
        "It sets how strongly the adapter speaks.",
        "Empty: twice the rank.",
        gt=0, label="LoRA scale", step=MODEL, id="lora_alpha", rare=True, when="adapters", empty="twice the rank",
    )
    dropout: float = setting(
        0.0, "Share of an adapter's input that is left out while training.",
        "It keeps small data from being learnt by heart.",
        "0, or 0.05 for a few thousand rows.",
        ge=0, lt=1, label="LoRA dropout", step=MODEL, id="lora_dropout", rare=True, when="adapters",
    )
    rslora: bool = setting(
        False, "Divide the scale by the square root of the rank instead of the rank (rsLoRA, arXiv:2312.03732).",
        "Adapters of a high rank then learn as fast as those of a low one.",
        "off; on from rank 64 on.",
        label="rsLoRA", step=MODEL, rare=True, when="adapters",
    )
    dora: bool = setting(
        False, "Train the length of each weight vector beside its direction (DoRA, arXiv:2402.09353).",
        "Adapters of a low rank can come closer to full fine-tuning.",
        "off.",
        "Time and memory: each adapted matrix is computed whole in every forward pass.",
        label="DoRA", step=MODEL, rare=True, when="adapters",
    )
    modules_to_save: list[str] = setting(
        [], "Modules that are trained whole beside the adapters: embed_tokens,lm_head.",
        "New tokens, such as those of a chat template, need them.",
        "Empty: none.",
        "Memory for a copy of each, its gradients and optimizer states; and disk, for the adapter holds them.",
        label="Trained whole", step=MODEL, rare=True, when="adapters", empty="none",
    )
    adapter: str | None = setting(
        None, "A folder with an adapter to continue from: its weights, and its rank, scale and modules.",
        "A second run, on other data or at another rate, begins where the first one ended.",
        "Empty: new adapters.",
        label="Continue from adapter", step=MODEL, rare=True, when="adapters", empty="new adapters",
    )
