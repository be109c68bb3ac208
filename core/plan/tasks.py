"""What is learnt: the task that follows from model and data, what the run begins with, and the usual values of such a training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.model_config import ADAPTER_FILE, ModelSpec
from trainwiz.core.catalog.models import default_init
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import BLEU_METRIC, DEFAULT_METRIC
from trainwiz.core.config.modes import smoke_sample
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.data.formats import SAMPLES, SAMPLES_OF, file_endings
from trainwiz.core.data.lengths import joins_texts, longest_generation, tokenizer_folder, trains_on_chats
from trainwiz.core.data.prompts import HELD_OUT, NO_PROMPTS
from trainwiz.core.errors import Finding, Remedy, Severity
from trainwiz.core.estimate.architecture import ALL_LINEAR, Architecture
from trainwiz.core.files import at_home, read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import counted
from trainwiz.core.profile.profile import Profile, changed_causes
from trainwiz.core.text import parse_json

# What follows from the model and the data that were chosen: the task, a sample of it where a sample is all there is, the run's name.

SOURCES = "data.sources"
LONGEST_PART = 36
"""Letters of the model's or the data's name in that of a run."""


def with_architecture(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`config` that knows its model: how rows are read depends on it."""
    architecture = None if model is None else dict(model.architecture)
    return config.model_copy(update={"model": config.model.model_copy(update={"architecture": architecture})})


def follow_task(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`config` with the task that the model is made for, unless another was chosen."""
    if model is None or model.task == config.task or config.task_is_chosen:
        return config
    return config.with_values(
        {"task": model.task}, "solved", {"task": tr("the task that {name} is built for", name=model.name)}
    )


def with_task_of(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`follow_task`, and where the data are a sample that nobody asked for, the sample of the task."""
    changed = follow_task(config, model)
    of_the_task = set(SAMPLES_OF[changed.row_kind]) >= {source.name for source in changed.data.sources}
    samples = all(source.name in SAMPLES for source in changed.data.sources) and not _data_is_chosen(changed, "you")
    if of_the_task or not samples:
        return changed
    return changed.with_values(
        {SOURCES: [smoke_sample(changed)]},
        "solved",
        {SOURCES: tr("the sample included with trainwiz for {task}", task=changed.task)},
    )


def with_run_name(config: RunConfig, profile: Profile | None) -> RunConfig:
    """`config` named after its model and data ("qwen2-tiny-mydata"), unless the user named it or both are the profile's."""
    subject = {"model.name": config.model.name, SOURCES: config.data.sources}
    is_the_profile = profile is not None and not changed_causes(profile.values, subject)
    if is_the_profile or config.origin("name").origin == "you":
        return config
    parts = (_short_name(config.model.name), _short_name(config.data.sources[0].name))
    return config.model_copy(update={"name": "-".join(filter(None, parts)) or config.name})


def _short_name(source: str) -> str:
    """The last part of a path or hub id, without the ending of a file, as a part of a run's name."""
    path = Path(source)
    name = path.parent.name if path.name == "config.json" else path.name or path.absolute().name
    ending = max((end for end in file_endings() if name.lower().endswith(end)), key=len, default="")
    return re.sub(r"[^\w.-]+", "-", name.removesuffix(name[len(name) - len(ending) :]))[:LONGEST_PART].strip("-._")


def task_is_known(config: RunConfig, model: ModelSpec | None) -> bool:
    """The model says the task, or somebody named it; otherwise what the config holds is a default that means nothing."""
    return model is not None or config.origin("task").origin in ("you", "profile")


def subject_findings(config: RunConfig, model: ModelSpec | None) -> Iterator[Finding]:
    """Of the model, its task and its data: what is not what it seems."""
    name = config.model.name
    if model is not None and model.task != config.task and config.task not in CLASSIFIES:
        # The head and the inputs of a model are those of its own task.
        words = {"name": name, "own": model.task, "task": config.task}
        message = tr("{name} is a model for {own}; it cannot be trained for {task}.", **words)
        remedy = Remedy(tr("train it for {own}", **words), changes={"task": model.task})
        yield Finding("task_of_another_model", "error", "task", message, (remedy,))
    # A fine-tuning whose data nobody named: what it learns would be a guess, of a sample or of a profile's other task.
    trains = config.mode.kind == "train" and config.mode.trace_steps is None and config.model.init == "pretrained"
    others = config.origin(SOURCES).origin != "profile" or config.origin("task").origin == "solved"
    if trains and others and not _data_is_chosen(config, "you"):
        yield only_a_sample(config)


def names_no_data(config: RunConfig) -> bool:
    """Whether the sample is there for want of data. A plan for another machine is not of a run on the sample, whose
    short rows would say how much memory the real ones need."""
    return config.mode.kind == "train" and not _data_is_chosen(config, "you", "profile")


def _data_is_chosen(config: RunConfig, *by: str) -> bool:
    return any(key.startswith(SOURCES) and origin.origin in by for key, origin in config.origins.items())


def unnamed_data() -> Finding:
    message = tr("No dataset is specified: every row is assumed to be as long as batch.sequence_length.")
    return Finding("no_data_named", "note", SOURCES, message, (Remedy(tr("specify the dataset: --dataset FILE")),))


def only_a_sample(config: RunConfig) -> Finding:
    """Of a run, or of a folder for another machine, that would train on what is there for want of data."""
    name = config.data.sources[0].name
    message = tr(
        "No dataset is specified: {name} is only a stand-in (a sample, or data for another task).",
        name=name,
    )
    remedies = (tr("specify your dataset: --dataset FILE"), tr("use {name} anyway: --dataset {name}", name=name))
    return Finding("no_data_named", "error", SOURCES, message, tuple(map(Remedy, remedies)))


NO_TASK_READS = frozenset({"missing_data", "unreadable_data", "empty_data", "mixed_formats"})
"""Findings about data that hold for every task."""


def data_is_refused(plan: Plan) -> bool:
    """Whether data are named that cannot be used: nothing is known of the run's length then."""
    refused = (finding for finding in plan.found if finding.severity == "error")
    return plan.data is None and any(
        finding.code in NO_TASK_READS or finding.where.startswith(SOURCES) for finding in refused
    )


# The template in which chats are written: looked for where the model is, before the plan is made.

TEMPLATE = "model.chat_template"


def has_template(config: RunConfig, model: ModelSpec | None) -> bool:
    """Whether one was asked for, or the tokenizer that is here has one. Of a tokenizer that is not here its name tells."""
    from trainwiz.core.catalog.models import has_chat_template, is_instruct

    if config.model.chat_template is not None:
        return True
    folder = tokenizer_folder(config, Path.cwd())
    if folder is not None or model is None or config.model.init != "pretrained":
        return has_chat_template(folder)
    return is_instruct(model, config.model.tokenizer)


def with_template(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`config` with a template where it trains on chats and nobody named one."""
    if not trains_on_chats(config) or config.model.chat_template is not None:
        return config
    published = config.model.init == "pretrained" and model is not None
    if has_template(config, model) or (published and tokenizer_folder(config, Path.cwd()) is None):
        return config.with_values({TEMPLATE: "own"}, "detected", {TEMPLATE: tr("the model's own")})
    why = tr("the tokenizer has no chat template; this one is saved with the trained model")
    return config.with_values({TEMPLATE: "chatml"}, "solved", {TEMPLATE: why})


# An adapter that a run goes on from: its own settings are those of the run.

ADAPTER = "peft.adapter"


def with_adapter(config: RunConfig) -> tuple[RunConfig, tuple[Finding, ...]]:
    """`config` with the rank, scale and modules of the adapter that it names, and what speaks against it. peft gives an
    adapter its own shape whatever else is asked, so that another rank beside it is refused."""
    name = config.peft.adapter
    if name is None:
        return config, ()
    leave = Remedy(tr("start with new adapters"), changes={ADAPTER: None})
    try:
        own = _adapter_values(parse_json(read_small(at_home(Path(name)) / ADAPTER_FILE).decode(errors="replace")))
    except (OSError, ValueError):
        message = tr(
            "{name} contains no LoRA adapter on named modules, the only kind that trainwiz trains: specify a folder with "
            "{file} (peft.adapter).",
            name=name,
            file=ADAPTER_FILE,
        )
        return config, (Finding("missing_adapter", "error", ADAPTER, message, (leave,)),)
    findings = []
    for key in [key for key in own if config.origin(key).origin == "you"]:
        asked = sorted(config.value(key)) if isinstance(own[key], list) else config.value(key)
        if asked == own[key]:
            continue
        values = {"key": key, "value": config.value(key), "name": name, "own": own[key]}
        message = tr("{key} is {value}, but the adapter in {name} has {own}.", **values)
        take = Remedy(tr("use the adapter's value"), changes={key: own.pop(key)})
        findings.append(Finding("adapter_differs", "error", key, message, (take, leave)))
    reason = tr("from the adapter in {name}", name=name)
    return config.with_values(own, "detected", dict.fromkeys(own, reason)), tuple(findings)


def _adapter_values(said: Any) -> dict[str, Any]:
    """Of the file of peft. Raises ValueError for another kind of adapter, or one that goes by a pattern of names."""
    named = isinstance(said, dict) and isinstance(said.get("r"), int) and isinstance(said.get("target_modules"), list)
    if not named or said.get("peft_type") != "LORA":
        raise ValueError(said)
    return {
        "peft.method": "lora",
        "peft.rank": said["r"],
        "peft.alpha": float(said.get("lora_alpha") or said["r"]),
        "peft.targets": sorted(map(str, said["target_modules"])),
        "peft.rslora": bool(said.get("use_rslora")),
        "peft.dora": bool(said.get("use_dora")),
        "peft.modules_to_save": sorted(said.get("modules_to_save") or ()),
    }


# What belongs to one task alone.


def resolve_task(plan: Plan) -> None:
    """Joined texts, target and generation lengths, adapters, the metric that ranks checkpoints."""
    causal = plan.get("task") == "causal-lm"
    if causal:
        joined = joins_texts(plan.view())
        why = tr("plain texts fill every sequence: no padding") if joined else tr("each row stays a separate sequence")
        plan.resolve("data.concatenate", joined, why)
    if plan.get("task") == "seq2seq":
        plan.resolve("batch.target_length", int(plan.get("batch.sequence_length")), tr("as long as the input"))
    if plan.get("peft.method") == "lora":
        rank = int(plan.get("peft.rank"))
        if not plan.get("peft.targets"):
            every = tr("every linear layer of the blocks, the best choice in the QLoRA paper")
            plan.put("peft.targets", list(ALL_LINEAR), every)
        if "peft.rank" not in plan.config.origins:
            plan.put("peft.rank", rank, tr("with every layer adapted, a higher rank gains little (QLoRA)"))
        plan.resolve("peft.alpha", 2.0 * rank, tr("twice the rank"))
        if plan.get("task") in CLASSIFIES and "peft.merge" not in plan.config.origins:
            plan.put("peft.merge", True, tr("its head is new: once merged, the model loads without its base"))
    if plan.get("evaluation.generate"):
        half, whole = tr("half of the sequence; the rest is for the prompt"), tr("as long as the longest target")
        plan.resolve("evaluation.generation_length", longest_generation(plan.view()), half if causal else whole)


ANSWERS = ("causal-lm", "seq2seq", "masked-lm")
"""Tasks whose models answer prompts."""
FINAL = "checkpoint.final"


def resolve_measuring(plan: Plan) -> None:
    """Whether the model is measured before it trains, which weights final_model has, and by which metric."""
    if not evaluates(plan):
        for key, value in (("evaluation.prompts", NO_PROMPTS), ("evaluation.at_start", False), (FINAL, "last")):
            plan.resolve(key, value, tr("no rows are held out"))
        return
    writes = plan.get("task") in ANSWERS and plan.config.mode.kind != "benchmark"
    words = (
        mark("this run generates no text"),
        mark("three held-out rows, answered before step 1 and at every evaluation"),
    )
    plan.resolve("evaluation.prompts", HELD_OUT if writes else NO_PROMPTS, tr(words[writes]))
    trained = plan.get(INIT) == "pretrained"
    words = mark("with random weights there is nothing to measure"), mark("gives a baseline before training")
    plan.resolve("evaluation.at_start", trained, tr(words[trained]))
    late = plan.get("evaluation.metric") in ("bleu", BLEU_METRIC) and plan.get("evaluation.generate_at") != "evaluation"
    words = mark("keeps the best; every checkpoint is evaluated"), mark("BLEU is not measured at every checkpoint")
    plan.resolve(FINAL, "last" if late else "best", tr(words[late]))
    if plan.get("checkpoint.keep_best") or plan.get(FINAL) == "best" or plan.get("evaluation.patience"):
        plan.resolve("evaluation.metric", DEFAULT_METRIC, tr("every evaluation measures it"))


def evaluates(plan: Plan) -> bool:
    """Whether rows are held out, as far as it is known; where it is not, they are."""
    if plan.get("data.validation_rows") == 0 and not plan.get("data.validation_sources"):
        return False
    return plan.counted is None or plan.counted.validation_rows > 0


# What a run begins with (published weights or random ones), and the rate that goes with it, where nobody chose them.

INIT, RATE, FINAL_RATE = "model.init", "training.learning_rate", "training.final_learning_rate"
LORA_FACTOR = 10
"""Adapters want about ten times the rate of all weights (Schulman et al. 2025, "LoRA Without Regret"; TRL's guides)."""
FROM_SCRATCH: tuple[tuple[float, float], ...] = (
    (125e6, 6e-4), (350e6, 3e-4), (760e6, 2.5e-4), (1.3e9, 2e-4), (2.7e9, 1.6e-4), (6.7e9, 1.2e-4),
)  # fmt: skip
"""(parameters, peak rate): table 2.1 of Brown et al. 2020 (GPT-3); above the last one the rate of 13B."""
RATE_OF_13B = 1e-4
FINE_TUNING_BATCH, STEPS_OF_A_PASS = 16, 10
"""Sequences a step: table 9 of Dettmers et al. 2023 (QLoRA); Devlin et al. 2019, appendix A.3."""
SAY_THE_BATCH = (
    "batch.micro_batch_size", "batch.gradient_accumulation_steps",
    "batch.target_samples", "batch.target_tokens", "batch.target_real_tokens",
)  # fmt: skip
WIPES, UNUSUAL_ABOVE, UNUSUAL_BELOW = 1000, 20, 1 / 100
"""Times the usual rate: from the first on nothing of a model is left (or nothing is ever learnt), outside the others it is
worth a word. Recipes of the field differ by less than tenfold either way."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Usual values of a kind of training, and where they are from."""

    rate: float
    warmup: float
    """A share of all steps."""
    schedule: str
    source: str
    decays_to: float = 0.0
    """Share of the peak at the last step."""


def with_init(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`config` with `model.init`, and the reason of whoever chose it in words of what is learnt."""
    if model is None:
        return config
    chosen, origin = config.model.init, config.origin(INIT)
    if chosen is not None and origin.reason and origin.reason != "default":
        return config
    init = chosen or default_init(model)
    return config.with_values(
        {INIT: init}, origin.origin if chosen else "solved", {INIT: learnt_words(config, model, init)}
    )


def learnt_words(config: RunConfig, model: ModelSpec | None, init: str | None = None) -> str:
    """What is about to be learnt, for the first lines of every front end; empty where there is no such model."""
    if model is None:
        return ""
    lora = config.peft.method == "lora"
    if (init or config.model.init) != "pretrained":
        return tr("trains LoRA on random weights") if lora else tr("trains from scratch (random initialization)")
    words = mark("fine-tunes the weights in {where}"), mark("fine-tunes the published weights of {where}")
    if lora:
        words = (
            mark("trains LoRA adapters on the weights in {where}"),
            mark("trains LoRA adapters on the published weights of {where}"),
        )
    return tr(words[model.hub_id is not None], where=model.hub_id or config.model.name)


def recipe_of(config: RunConfig, model_type: str | None, architecture: Architecture | None) -> Recipe:
    """The usual values of `config`'s kind of training: all weights, adapters or from scratch; by task and size."""
    task, lora = config.task, config.peft.method == "lora"
    size = float(architecture.parameters) if architecture is not None else 1e9
    if config.model.init != "pretrained" and not lora:
        return _from_scratch(task, size)
    rate, schedule = 5e-5, "cosine" if task == "causal-lm" else "linear"
    if task == "seq2seq" and "t5" in str(model_type):
        rate, source = 1e-4, tr("T5 needs 1e-4 to 3e-4 (its page in the transformers docs)")
    elif task == "seq2seq":
        source = tr("transformers' translation example")
    elif task != "causal-lm":
        source = tr("the upper end of BERT's learning rates for fine-tuning (Devlin et al. 2019)")
    elif size >= 1e9 or lora:
        rate, source = 2e-5, tr("usual for instruction tuning (TRL, the Alignment Handbook)")
    else:
        source = tr("the Trainer's default, for models below 1B")
    if lora:
        rate *= LORA_FACTOR
        source = tr("10x the learning rate of full fine-tuning, as recommended for LoRA (LoRA Without Regret, 2025)")
    return Recipe(rate, 0.1, schedule, source)


def _from_scratch(task: str, size: float) -> Recipe:
    if task == "masked-lm":
        return Recipe(4e-4, 0.02, "linear", tr("as ESM-2 was trained (Lin et al. 2022)"), 0.1)
    if task == "seq2seq":
        return Recipe(3e-4, 0.04, "linear", tr("Marian's value for translation from scratch"))
    rate = next((rate for limit, rate in FROM_SCRATCH if size <= limit), RATE_OF_13B)
    return Recipe(rate, 0.02, "cosine", tr("by model size, as in GPT-3 (Brown et al. 2020)"), 0.1)


def resolve_rates(plan: Plan) -> None:
    """Rate, warm-up and schedule where nobody chose them."""
    config = plan.view()
    recipe = recipe_of(config, plan.model_type, plan.architecture)
    if config.origin(RATE).origin == "profile":
        # A recipe is one piece: what a profile leaves out of its own is the default that it was written beside.
        return
    rate = float(f"{recipe.rate:.3g}")
    chosen: dict[str, tuple[Any, str]] = {
        RATE: (rate, recipe.source),
        "training.warmup": (recipe.warmup, tr("a share of the steps, so the first ones do not harm the model")),
        "training.schedule": (recipe.schedule, tr("usual with this learning rate")),
    }
    # A rate that somebody chose decays as the schedule says; a share of an unknown peak would be a guess.
    if recipe.decays_to and RATE not in config.origins:
        chosen[FINAL_RATE] = float(f"{rate * recipe.decays_to:.3g}"), tr("as in the source of the schedule")
    for key, (value, reason) in chosen.items():
        if key not in config.origins:
            plan.put(key, value, reason)


def resolve_target(plan: Plan) -> None:
    """The batch of a fine-tuning of which nobody said anything: what is learnt must not follow the memory of the card."""
    trains = plan.config.mode.kind == "train" and plan.get(INIT) == "pretrained"
    if not trains or not all(plan.is_open(key) for key in SAY_THE_BATCH):
        return
    rows = plan.counted.rows if plan.counted is not None else None
    few = max(1, (rows or 0) // STEPS_OF_A_PASS)
    if rows is None or few >= FINE_TUNING_BATCH:
        few, reason = FINE_TUNING_BATCH, tr("usual for fine-tuning (QLoRA's 16 for 7B and 13B, BERT's 16 or 32)")
    else:
        reason = tr("ten steps per epoch of {rows} rows", **counted(rows=rows))
    plan.put("batch.target_samples", few, reason)


def recipe_findings(plan: Plan) -> Iterator[Finding]:
    """Adapters on random weights, and rates that no training of this kind survives or that are unusual."""
    config, model = plan.config, plan.spec
    if config.mode.kind == "smoke":
        return
    if config.peft.method == "lora" and config.model.init == "scratch":
        message = tr("LoRA on random weights learns nothing lasting: it needs a pretrained model.")
        ways = [(tr("train all weights from scratch"), {"peft.method": "none"})]
        # Without published weights this remedy would lead to the next error.
        if model is None or default_init(model) == "pretrained":
            ways.insert(0, (tr("load the pretrained weights"), {INIT: "pretrained"}))
        yield plan.finding("adapters_on_random_weights", "error", INIT, message, *ways)
    usual, rate = recipe_of(config, plan.model_type, plan.architecture), config.training.learning_rate
    wipes, yours = rate >= usual.rate * WIPES or rate >= 1, config.origin(RATE).origin == "you"
    unusual = rate > usual.rate * UNUSUAL_ABOVE or rate < usual.rate * UNUSUAL_BELOW
    if config.engine.optimizer == "sgd" or not (wipes or (unusual and yours)):
        return
    words = mark("A learning rate of {rate} is unusual; usual is {usual} ({source}).")
    if wipes:
        words = mark("A learning rate of {rate} destroys any training; usual is {usual} ({source}).")
    message = tr(words, rate=f"{rate:g}", usual=f"{usual.rate:g}", source=usual.source)
    changes = {RATE: usual.rate, **({FINAL_RATE: 0.0} if config.training.final_learning_rate > usual.rate else {})}
    remedy = tr("the usual learning rate, {rate}", rate=f"{usual.rate:g}"), changes
    severity: Severity = "error" if wipes else "warning"
    yield plan.finding("learning_rate_wipes" if wipes else "unusual_learning_rate", severity, RATE, message, remedy)
