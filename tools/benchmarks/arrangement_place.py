"""What is trained in a comparison: a model folder with weights at their first step, and a file of rows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from trainwiz.core.catalog.models import load_models
from trainwiz.core.data.text_store import MemoryTexts
from trainwiz.core.data.texts import TextRows
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.tokenizer import trained_tokenizer
from trainwiz.core.training.weights import esm_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from tools.benchmarks.grid_cells import CONFIGS as GRID_CONFIGS
from tools.benchmarks.training_arms import TRAINWIZ, environment

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
HELD_OUT, VOCABULARY = 500, 8000
T5_SMALL = "t5-11m"
CONFIGS: dict[str, dict[str, Any]] = {
    **GRID_CONFIGS,
    T5_SMALL: {
        "model_type": "t5", "vocab_size": 0, "d_model": 256, "d_ff": 1024, "d_kv": 64, "num_layers": 4, "num_heads": 4,
        "dropout_rate": 0.0, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Of models that the catalogue does not have. Vocabularies grow to the tokenizer that is made from the rows."""
AUTO_MODELS: Mapping[str, Any] = {
    "masked-lm": AutoModelForMaskedLM,
    "causal-lm": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
}
Rows = Literal["proteins", "pairs", "answers"]
COLUMNS: Mapping[Rows, tuple[str, str | None]] = {
    "proteins": ("sequence", None),
    "pairs": ("source", "target"),
    "answers": ("response", None),
}


@dataclass(frozen=True)
class Case:
    """What is trained, and the size of a step."""

    name: str
    model: str
    """Of the catalogue or of CONFIGS; its weights are random."""
    task: str
    rows: Rows
    length: int
    micro_batch: int
    accumulation: int
    precision: str = "fp32"
    device: str = "cpu"
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further keys of the config."""

    @property
    def columns(self) -> tuple[str, str | None]:
        return COLUMNS[self.rows]

    @property
    def step_rows(self) -> int:
        return self.micro_batch * self.accumulation


class Place:
    """A folder with the model at its first step (`model`), the rows that train and those that are held out."""

    def __init__(self, folder: Path, case: Case, seed: int = 0) -> None:
        self.folder, self.case = folder, case
        self.model, self.train, self.held_out = folder / "model", folder / "train.parquet", folder / "held_out.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        if not self.train.exists():
            table = READERS[case.rows]()
            drawn = table.take(np.random.default_rng(0).permutation(len(table)))
            pq.write_table(drawn.slice(0, HELD_OUT), self.held_out)
            torch.manual_seed(seed)
            self._write_model(drawn)
            pq.write_table(drawn.slice(HELD_OUT), self.train)

    def _write_model(self, table: pa.Table) -> None:
        values = architecture_of(self.case)
        kind = str(values.pop("model_type"))
        if self.case.rows == "proteins":
            tokenizer: Any = esm_tokenizer()
        else:
            tokenizer = _tokenizer(self.model, table)
            special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
            if self.case.task == "seq2seq":
                special["decoder_start_token_id"] = tokenizer.pad_token_id
            values |= {"vocab_size": max(values["vocab_size"], len(tokenizer)), **special}
        model = AUTO_MODELS[self.case.task].from_config(AutoConfig.for_model(kind, **values))
        model.save_pretrained(self.model)
        tokenizer.save_pretrained(self.model)

    def run_folder(self, name: str, steps: int, seed: int) -> RunFolder:
        """A run folder that the product has planned and written, nothing started; or the one that is there.

        Raises RuntimeError with the findings for a plan that is refused.
        """
        case, place = self.case, self.folder / name
        if RunFolder(place).run_yaml.exists():
            return RunFolder(place)
        text, target = case.columns
        settings = {
            "model.init": "pretrained",
            "data.sources.0.text_column": text,
            **({"data.sources.0.target_column": target} if target else {}),
            "data.validation_rows": 0,
            **({"data.concatenate": False} if case.task == "causal-lm" else {}),
            "logging.report_to": "none",
            "training.learning_rate": 1e-3,
            "training.warmup": 10,
            "training.seed": seed,
            "checkpoint.every_steps": 100_000,
            "checkpoint.keep": 1,
            "engine.device": case.device,
            "engine.processes": 1,
            **case.changes,
        }
        command = [TRAINWIZ, "--dry-run", "--model", str(self.model), "--dataset", str(self.train), "--task", case.task]
        command += ["--length", str(case.length), "--max-steps", str(steps), "--micro-batch", str(case.micro_batch)]
        command += ["--accumulation", str(case.accumulation), "--precision", case.precision, "--output-dir", str(place)]
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        done = subprocess.run(command, env=environment(self.folder), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the plan was refused: {done.stdout}{done.stderr}")
        return RunFolder(place)


def architecture_of(case: Case) -> dict[str, Any]:
    """The values of the model's config, `model_type` among them."""
    return dict(CONFIGS[case.model] if case.model in CONFIGS else load_models()[case.model].architecture)


def config_of(place: Place) -> dict[str, Any]:
    """The config of the model that was written."""
    found: dict[str, Any] = json.loads((place.model / "config.json").read_text(encoding="utf-8"))
    return found


def _proteins() -> pa.Table:
    return pq.read_table(SHARED / "uniref90_10k.parquet", columns=["sequence"])


def _pairs() -> pa.Table:
    path = SHARED / "tatoeba_zh_en.tsv"
    options = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    read = pa.csv.ReadOptions(column_names=["target", "source", "license"])
    return pa.csv.read_csv(path, read_options=read, parse_options=options).select(["source", "target"])


def _answers() -> pa.Table:
    answers = pq.read_table(SHARED / "chat_zh_train_3k.parquet", columns=["response"])["response"]
    # trainwiz leaves out white space around a text, which a plain script does not.
    return pa.table({"response": pc.utf8_trim_whitespace(answers)})


READERS: Mapping[Rows, Any] = {"proteins": _proteins, "pairs": _pairs, "answers": _answers}


def _tokenizer(folder: Path, table: pa.Table) -> Any:
    store = MemoryTexts(
        pa.concat_arrays([table[column].combine_chunks().cast(pa.large_string()) for column in table.column_names])
    )
    rows = TextRows(store, None, np.arange(len(store)), np.arange(0))
    return trained_tokenizer(folder, rows, VOCABULARY, "seq2seq")
