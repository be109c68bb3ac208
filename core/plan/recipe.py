"""What a run begins with (published weights or random ones), and the rate that goes with it, where nobody chose them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import default_init
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.draft import Draft, Facts, type_of_model

INIT, RATE = "model.init", "training.learning_rate"
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
    chosen = config.model.init
    if chosen is None:
        reason = learnt_words(config, model, default_init(model))
        return config.with_values({INIT: default_init(model)}, "solved", {INIT: reason})
    origin = config.origin(INIT)
    if origin.reason and origin.reason != "default":
        return config
    return config.with_values({INIT: chosen}, origin.origin, {INIT: learnt_words(config, model, chosen)})


def learnt_words(config: RunConfig, model: ModelSpec | None, init: str | None = None) -> str:
    """What is about to be learnt, for the first lines of every front end."""
    init = init or config.model.init
    of_folder = model is not None and model.hub_id is None
    where = config.model.name if model is None or of_folder else str(model.hub_id)
    if init != "pretrained":
        if config.peft.method == "lora":
            return tr("trains LoRA adapters on random weights")
        return tr("trains from scratch (random weights)")
    if config.peft.method == "lora":
        sentence = (
            mark("trains LoRA adapters on the weights in {where}")
            if of_folder
            else mark("trains LoRA adapters on the published weights of {where}")
        )
        return tr(sentence, where=where)
    sentence = (
        mark("fine-tunes the weights in {where}") if of_folder else mark("fine-tunes the published weights of {where}")
    )
    return tr(sentence, where=where)


def recipe_of(config: RunConfig, architecture: Architecture | None) -> Recipe:
    """The usual values of `config`'s kind of training: all weights, adapters or from scratch; by task and size."""
    task, lora = config.task, config.peft.method == "lora"
    size = float(architecture.parameters) if architecture is not None else 1e9
    if config.model.init != "pretrained" and not lora:
        return _from_scratch(task, size)
    if task == "seq2seq":
        t5 = "t5" in str(type_of_model(config))
        rate = 1e-4 if t5 else 5e-5
        source = (
            tr("T5 wants 1e-4 to 3e-4 (its page in transformers)") if t5 else tr("transformers' translation example")
        )
        recipe = Recipe(rate, 0.1, "linear", source)
    elif task == "causal-lm":
        rate = 2e-5 if size >= 1e9 or lora else 5e-5
        source = (
            tr("usual for instruction tuning (TRL, the alignment handbook)")
            if rate == 2e-5
            else tr("the Trainer's own, for models below 1B")
        )
        recipe = Recipe(rate, 0.1, "cosine", source)
    else:
        recipe = Recipe(5e-5, 0.1, "linear", tr("the upper end of BERT's fine-tuning rates (Devlin et al. 2019)"))
    if not lora:
        return recipe
    source = tr("ten times the rate of all weights, as LoRA wants (LoRA Without Regret, 2025)")
    return Recipe(recipe.rate * LORA_FACTOR, recipe.warmup, recipe.schedule, source)


def _from_scratch(task: str, size: float) -> Recipe:
    if task == "masked-lm":
        return Recipe(4e-4, 0.02, "linear", tr("as ESM-2 was trained (Lin et al. 2022)"), 0.1)
    if task == "seq2seq":
        return Recipe(3e-4, 0.04, "linear", tr("Marian's for translation from scratch"))
    rate = next((rate for limit, rate in FROM_SCRATCH if size <= limit), RATE_OF_13B)
    return Recipe(rate, 0.02, "cosine", tr("by size, as GPT-3 was trained (Brown et al. 2020)"), 0.1)


def resolve_rates(draft: Draft, architecture: Architecture | None) -> None:
    """Rate, warm-up and schedule where nobody chose them."""
    config = draft.view()
    recipe = recipe_of(config, architecture)
    rate = float(f"{recipe.rate:.3g}")
    if config.origin(RATE).origin == "profile":
        # A recipe is one piece: what a profile leaves out of its own is the default that it was written beside.
        return
    # A rate that somebody chose decays as the schedule says; a share of an unknown peak would be a guess.
    chosen: Mapping[str, Any] = {
        RATE: (rate, recipe.source),
        "training.warmup": (recipe.warmup, tr("a share of the steps, so that the first ones do no harm")),
        "training.schedule": (recipe.schedule, recipe.source),
        "training.final_learning_rate": (
            float(f"{rate * recipe.decays_to:.3g}"),
            tr("as the schedule's source has it"),
        ),
    }
    named = {key for key in chosen if key in config.origins}
    for key, (value, reason) in chosen.items():
        if key in named or (key == "training.final_learning_rate" and (RATE in named or not value)):
            continue
        draft.put(key, value, reason)


def resolve_target(draft: Draft, rows: int | None) -> None:
    """The batch of a fine-tuning of which nobody said anything: what is learnt must not follow the memory of the card."""
    config = draft.view()
    trains = config.mode.kind == "train" and config.model.init == "pretrained"
    if not trains or not all(draft.is_open(key) for key in SAY_THE_BATCH):
        return
    few = max(1, (rows or 0) // STEPS_OF_A_PASS)
    if rows is None or few >= FINE_TUNING_BATCH:
        reason = tr("usual for fine-tuning (QLoRA's 16 for 7B and 13B, BERT's 16 or 32)")
        draft.put("batch.target_samples", FINE_TUNING_BATCH, reason)
    else:
        draft.put("batch.target_samples", few, tr("ten steps for each pass over {rows} rows", rows=f"{rows:,}"))


def recipe_findings(facts: Facts) -> list[Finding]:
    """Adapters on random weights, and rates that no training of this kind survives or that are unusual."""
    config, model = facts.config, facts.given.model
    architecture = facts.work.architecture if facts.work is not None else None
    found: list[Finding] = []
    trains = config.mode.kind != "smoke"
    if trains and config.peft.method == "lora" and config.model.init == "scratch":
        message = tr("LoRA adapters on random weights learn nothing that lasts: they need a pretrained model.")
        remedies = (
            Remedy(tr("load the pretrained weights"), changes={INIT: "pretrained"}),
            Remedy(tr("train all weights from scratch"), changes={"peft.method": "none"}),
        )
        # Without published weights the first remedy would lead to the next error.
        found.append(
            Finding("adapters_on_random_weights", "error", INIT, message,
                    remedies if model is None or default_init(model) == "pretrained" else remedies[1:])
        )  # fmt: skip
    usual, rate = recipe_of(config, architecture), config.training.learning_rate
    if config.engine.optimizer == "sgd" or not trains:
        return found
    remedy = Remedy(tr("the usual rate, {rate}", rate=f"{usual.rate:g}"), changes=_rate_changes(config, usual.rate))
    if rate >= usual.rate * WIPES or rate >= 1:
        message = tr(
            "No training survives a learning rate of {rate}; usual here is {usual} ({source}).",
            rate=f"{rate:g}", usual=f"{usual.rate:g}", source=usual.source,
        )  # fmt: skip
        return [*found, Finding("learning_rate_wipes", "error", RATE, message, (remedy,))]
    unusual = rate > usual.rate * UNUSUAL_ABOVE or rate < usual.rate * UNUSUAL_BELOW
    if unusual and config.origin(RATE).origin == "you":
        message = tr(
            "A learning rate of {rate} is unusual here; usual is {usual} ({source}).",
            rate=f"{rate:g}", usual=f"{usual.rate:g}", source=usual.source,
        )  # fmt: skip
        found.append(Finding("unusual_learning_rate", "warning", RATE, message, (remedy,)))
    return found


def _rate_changes(config: RunConfig, rate: float) -> dict[str, Any]:
    changes: dict[str, Any] = {RATE: rate}
    if config.training.final_learning_rate > rate:
        changes["training.final_learning_rate"] = 0.0
    return changes
