"""The training script that people write: transformers' Trainer, its collators, nothing of this project but the gate.

    python -m tools.benchmarks.plain_trainer JSON

JSON: task, model (folder), train and columns (parquet), length, padding (longest | max_length), multiple (lengths are
rounded up to), grouped, lora (keywords of LoraConfig, or none), waits, arguments (of
TrainingArguments).
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

from tools.benchmarks.gate import Gate


def main(given: dict[str, Any]) -> None:
    arguments = dict(given["arguments"])
    if given["grouped"]:
        arguments["train_sampling_strategy"] = "group_by_length"
    args = TrainingArguments(**arguments)
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(given["model"])
    rows, length, fixed = Dataset.from_parquet(given["train"]), given["length"], given["padding"] == "max_length"
    text, target = given["columns"]

    def tokens(batch: dict[str, Any]) -> dict[str, Any]:
        made = tokenizer(batch[text], truncation=True, max_length=length, padding="max_length" if fixed else False)
        if target is not None:
            made["labels"] = tokenizer(text_target=batch[target], truncation=True, max_length=length)["input_ids"]
        made["length"] = [len(row) for row in made["input_ids"]]
        return dict(made)

    rows = rows.map(tokens, batched=True, remove_columns=rows.column_names)
    model = _model(given)
    if given["task"] == "seq2seq":
        collator: Any = DataCollatorForSeq2Seq(
            tokenizer,
            model,
            padding="max_length" if fixed else True,
            max_length=length,
            pad_to_multiple_of=given["multiple"],
        )
    elif given["task"] == "masked-lm":
        collator = DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=0.15, pad_to_multiple_of=given["multiple"]
        )
    else:
        collator = DataCollatorForLanguageModeling(tokenizer, mlm=False, pad_to_multiple_of=given["multiple"])
    trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collator)
    trainer.add_callback(Gate(model, waits=given["waits"]))
    trainer.train()


def _model(given: dict[str, Any]) -> Any:
    kinds = {"masked-lm": AutoModelForMaskedLM, "causal-lm": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM}
    kind: Any = kinds[given["task"]]
    if given["lora"] is None:
        return kind.from_pretrained(given["model"])
    # The frozen base in half precision, as LoRA scripts load it.
    half = torch.bfloat16 if given["arguments"]["bf16"] else torch.float32
    return get_peft_model(kind.from_pretrained(given["model"], dtype=half), LoraConfig(**given["lora"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
