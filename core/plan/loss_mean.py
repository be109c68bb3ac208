"""Over what the loss of a step is a mean (training.loss_mean), and what that has to do with the order of its rows."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.catalog.abilities import NO_LABEL_COUNT
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.plan.draft import Draft, type_of_model
from trainwiz.core.plan.facts import Facts

KEY = "training.loss_mean"
ARRANGED = "data.arrange_by_length"


def settle_loss_mean(draft: Draft) -> None:
    """Token means: the one that does not depend on how a step is cut into micro-batches."""
    if not draft.is_open(KEY):
        return
    # As type_of_model has it, without a view of the whole draft: a plan settles dozens of them.
    overridden = draft.get("model.architecture_overrides").get("model_type")
    kind = overridden or (draft.get("model.architecture") or {}).get("model_type")
    if kind is None:
        reason = tr("each label of a step weighs the same, however the step is cut")
    elif kind in NO_LABEL_COUNT:
        reason = tr(
            "each label of a step weighs the same, however the step is cut; the Trainer of transformers takes the mean of "
            "the means of micro-batches for {kind} models",
            kind=kind,
        )
    else:
        reason = tr(
            "each label of a step weighs the same, however the step is cut; so does the Trainer of transformers for "
            "{kind} models",
            kind=kind,
        )
    draft.put(KEY, "tokens", reason)


def loss_mean_findings(facts: Facts) -> Iterator[Finding]:
    """What a mean of means meets: rows in another order, and models for which no Trainer of today takes it."""
    config, kind = facts.config, type_of_model(facts.config)
    if config.training.loss_mean != "micro_batches":
        return
    tokens = facts.remedy(tr("take the token mean"), {KEY: "tokens"})
    if config.data.arrange_by_length:
        message = tr(
            "{mean} micro_batches gives a label more weight where its micro-batch has few, and {key} decides which rows "
            "share one: the gradient of a step is not that of the rows as drawn.",
            mean=KEY,
            key=ARRANGED,
        )
        off = facts.remedy(tr("leave the rows as drawn"), {ARRANGED: False})
        yield Finding("weights_by_arrangement", "warning", KEY, message, (tokens, off))
    if kind is not None and kind not in NO_LABEL_COUNT:
        message = tr(
            "The Trainer of transformers takes the token mean for {kind} models; {mean} micro_batches is what its versions "
            "before 4.46 did.",
            kind=kind,
            mean=KEY,
        )
        yield Finding("not_the_stock_mean", "note", KEY, message, (tokens,))
