"""One optimizer step of each task: as drawn, arranged (and padded to a multiple), packed, and by the plain Trainer.

    torchrun ... -m tests.core.training.gradients FOLDER PROCESSES

gradients.json in FOLDER then has what `measured` gives.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.training.batches import FILLER_TOKENS
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.tasks import build_task
from trainwiz.core.training.trainer import RunTrainer
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from tests.core.training.runs import CHAT, PAIRS, TINY, text_config, tiny_config

ROWS = {"gpt2-tiny": CHAT, "t5-chat-tiny": PAIRS}
NO_DROPOUT: dict[str, dict[str, float]] = {
    "esm2-tiny": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "gpt2-tiny": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "t5-chat-tiny": {"dropout_rate": 0.0},
}


def config_of(model: str, processes: int, *, arranged: bool) -> RunConfig:
    changes: dict[str, Any] = {
        "engine__processes": processes,
        "engine__strategy": "ddp" if processes > 1 else "single",
        "batch__micro_batch_size": 4,
        "batch__gradient_accumulation_steps": 3,
        "batch__sequence_length": 200,
        "data__arrange_by_length": arranged,
        "data__sources": [{**ROWS.get(model, TINY["data.sources"])[0], "max_rows": 60}],
        "data__pad_to_multiple_of": 1,
        "data__concatenate": False,
        "training__label_smoothing": 0.1,
        "training__max_grad_norm": 0.0,
        "training__max_steps": 1,
    }
    config = tiny_config(**changes) if model == "esm2-tiny" else text_config(model, **changes)
    overrides = {**config.model.architecture_overrides, **NO_DROPOUT[model]}
    return config.with_values({"model.architecture_overrides": overrides}, "you")


class Gradients(TrainerCallback):
    """Keeps the gradients of the first optimizer step."""

    def __init__(self) -> None:
        self.whole = torch.empty(0)

    def on_pre_optimizer_step(self, *args: Any, model: torch.nn.Module, **kwargs: Any) -> None:
        given = [one.grad.flatten().double() for one in model.parameters() if one.grad is not None]
        self.whole = torch.cat(given)


def gradients_of(config: RunConfig, folder: Path) -> tuple[torch.Tensor, int]:
    """(gradient of the first step, tokens with padding that this process computed in it)."""
    folder.mkdir(parents=True, exist_ok=True)
    set_seed(1)
    args = TrainingArguments(**{**training_arguments(config), "output_dir": str(folder)})
    parts = build_task(config, folder, None, args.world_size)
    meter, kept = StepMeter(), Gradients()
    trainer = RunTrainer(args, parts, meter)
    trainer.add_callback(kept)
    trainer.train()
    meter.step_done()
    counts = meter.counts()
    return kept.whole, counts["tokens"] + counts.get("target_tokens", 0)


def stock_gradient(config: RunConfig, folder: Path) -> torch.Tensor:
    """By the Trainer of transformers and the model's own loss, of the same rows."""
    set_seed(1)
    args = TrainingArguments(
        **{**training_arguments(config), "output_dir": str(folder), "save_strategy": "no", "eval_strategy": "no"},
        train_sampling_strategy="sequential",
    )
    parts = build_task(config, folder, None, args.world_size)
    rows = [parts.train[key] for key in parts.sampler]
    kept = Gradients()

    def collate(some: list[Any]) -> dict[str, Any]:
        batch = parts.collate(some)
        batch.pop(FILLER_TOKENS, None)
        return parts.inputs(batch, parts.model)

    trainer = Trainer(model=parts.model, args=args, train_dataset=rows, data_collator=collate)  # type: ignore[arg-type]
    trainer.add_callback(kept)
    trainer.train()
    return kept.whole


def from_stock(model: str, processes: int, folder: Path) -> dict[str, float]:
    """How far each mean of the loss is from what the Trainer of transformers computes for `model`."""
    config = config_of(model, processes, arranged=False)
    stock = stock_gradient(config, folder / f"{model}-stock")
    apart = {}
    for mean in ("tokens", "micro_batches"):
        of_mean = config.with_values({"training.loss_mean": mean}, "you")
        ours, _ = gradients_of(of_mean, folder / f"{model}-{mean}")
        apart[mean] = float((ours - stock).norm() / stock.norm())
    return apart


def measured(folder: Path, processes: int) -> dict[str, Any]:
    """For each model how far the gradients of arranged and of packed rows are from that of the drawn order, and for each
    mean of the loss how far its gradient is from that of the Trainer of transformers."""
    found: dict[str, Any] = {}
    for model in NO_DROPOUT:
        plain = config_of(model, processes, arranged=False)
        orders = {"plain": plain, "arranged": config_of(model, processes, arranged=True)}
        if model == "gpt2-tiny":
            orders["packed"] = orders["arranged"].with_values({"data.packing": True}, "you")
        if model == "t5-chat-tiny":
            orders["multiple"] = orders["arranged"].with_values({"data.pad_to_multiple_of": 8}, "you")
        gradients, tokens = {}, {}
        for order, config in orders.items():
            gradients[order], tokens[order] = gradients_of(config, folder / f"{model}-{order}")
        drawn = gradients["plain"]
        apart = {order: float((drawn - other).norm() / drawn.norm()) for order, other in gradients.items()}
        found[model] = {"apart": apart, "norm": float(drawn.norm()), "tokens": tokens}
    stock = {model: from_stock(model, processes, folder) for model in ("esm2-tiny", "t5-chat-tiny")}
    return {"orders": found, "stock": stock}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    result = measured(place, int(sys.argv[2]))
    if os.environ.get("RANK", "0") == "0":
        (place / "gradients.json").write_text(json.dumps(result))
