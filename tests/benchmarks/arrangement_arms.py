"""The same training by plain transformers and by trainwiz: one model folder, one file of rows, one set of settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.text_rows import TextRows
from trainwiz.core.data.text_store import TextWriter
from trainwiz.core.export.launch_script import launch_environment
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.esm import esm_tokenizer
from trainwiz.core.training.session import read_config
from trainwiz.core.training.tokenizer_training import trained_tokenizer
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from tests.benchmarks.training_arms import TRAINWIZ, environment

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
HELD_OUT, VOCABULARY = 500, 8000
PLAIN = ("fixed padding", "dynamic padding", "its own length groups")
OURS = "trainwiz"


@dataclass(frozen=True)
class Case:
    """What is trained, and the size of a step."""

    name: str
    task: str
    length: int
    micro_batch: int
    accumulation: int
    columns: tuple[str, str | None]
    precision: str = "fp32"

    @property
    def step_rows(self) -> int:
        return self.micro_batch * self.accumulation


PROTEINS = Case("ESM-2 8M, UniRef90 at 512", "masked-lm", 512, 20, 16, ("sequence", None))
PAIRS = Case("T5 of 11M, Chinese to English at 128", "seq2seq", 128, 16, 16, ("source", "target"))


class Place:
    """A folder with the model at its first step (`model`), the rows that train and those that are held out."""

    def __init__(self, folder: Path, case: Case, seed: int = 0) -> None:
        self.folder, self.case = folder, case
        self.model, self.train, self.held_out = folder / "model", folder / "train.parquet", folder / "held_out.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        if not self.train.exists():
            table = _proteins() if case.task == "masked-lm" else _pairs()
            drawn = table.take(np.random.default_rng(0).permutation(len(table)))
            pq.write_table(drawn.slice(0, HELD_OUT), self.held_out)
            torch.manual_seed(seed)
            _esm(self.model) if case.task == "masked-lm" else _t5(self.model, drawn)
            pq.write_table(drawn.slice(HELD_OUT), self.train)

    def run_folder(self, name: str, steps: int, seed: int, save_every: int | None = None) -> RunFolder:
        """A run folder that the product has planned and written, nothing started; or the one that is there."""
        case, place = self.case, self.folder / name
        if save_every is not None and RunFolder(place).run_yaml.exists():
            return RunFolder(place)
        text, target = case.columns
        settings = {
            "model.init": "pretrained",
            "data.sources.0.text_column": text,
            **({"data.sources.0.target_column": target} if target else {}),
            "data.validation_rows": 0,
            "logging.report_to": "none",
            "training.learning_rate": 1e-3,
            "training.warmup": 10,
            "training.seed": seed,
            "checkpoint.every_steps": save_every or 100_000,
            "checkpoint.keep": 1,
        }
        command = [TRAINWIZ, "--dry-run", "--model", str(self.model), "--dataset", str(self.train), "--task", case.task]
        command += ["--length", str(case.length), "--max-steps", str(steps), "--micro-batch", str(case.micro_batch)]
        command += ["--accumulation", str(case.accumulation), "--precision", case.precision, "--output-dir", str(place)]
        command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        done = subprocess.run(command, env=environment(self.folder), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the plan was refused: {done.stdout}{done.stderr}")
        return RunFolder(place)


def _proteins() -> pa.Table:
    return pq.read_table(SHARED / "uniref90_10k.parquet", columns=["sequence"])


def _pairs() -> pa.Table:
    path = SHARED / "tatoeba_zh_en.tsv"
    options = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    read = pa.csv.ReadOptions(column_names=["target", "source", "license"])
    return pa.csv.read_csv(path, read_options=read, parse_options=options).select(["source", "target"])


def _esm(folder: Path) -> None:
    tokenizer = esm_tokenizer()
    values = dict(load_models()["esm2-8m"].architecture)
    model = AutoModelForMaskedLM.from_config(AutoConfig.for_model(str(values.pop("model_type")), **values))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _t5(folder: Path, table: pa.Table) -> None:
    writer = TextWriter()
    for column in ("source", "target"):
        writer.add(table[column].combine_chunks().cast(pa.large_string()))
    store = writer.finish()
    rows = TextRows(store, None, np.arange(len(store)), np.arange(0))
    tokenizer = trained_tokenizer(folder, rows, VOCABULARY, ends_texts=True)
    config = AutoConfig.for_model(
        "t5", vocab_size=len(tokenizer), d_model=256, d_ff=1024, d_kv=64, num_layers=4, num_heads=4, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class Arm:
    """One training process that stands still until `step` is called, unless `waits` is false.

    With `save_every` it saves a checkpoint each so many steps, goes on from the newest one there is, and leaves its model.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        *,
        steps: int,
        seed: int,
        waits: bool,
        save_every: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.name = name
        run = place.run_folder(f"{name.replace(' ', '-')}-{seed}", steps, seed, save_every)
        self.run = run
        config = read_config(run)
        self.log = run.file("benchmark.log").open("ab")
        command, self.model = (
            self._ours(run, waits) if name == OURS else self._plain(run, config, place, waits, save_every)
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={
                **os.environ,
                **environment(place.folder),
                # What a run of ours has in its environment; the plain script gets what people start it with.
                **(launch_environment(config) if name == OURS else {"CUDA_VISIBLE_DEVICES": ""}),
                **({"OMP_NUM_THREADS": str(threads)} if threads else {}),
            },
        )

    def _ours(self, run: RunFolder, waits: bool) -> tuple[list[str], Path]:
        words = ["tests.benchmarks.arranged_trainer", str(run.path), "waits" if waits else "goes"]
        return words, run.path / "final_model"

    def _plain(
        self, run: RunFolder, config: RunConfig, place: Place, waits: bool, save_every: int | None
    ) -> tuple[list[str], Path]:
        ours = training_arguments(config)
        same = {
            key: ours[key]
            for key in (
                "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "optim", "learning_rate",
                "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "lr_scheduler_type",
                "warmup_steps", "fp16", "bf16", "use_cpu", "seed", "data_seed",
            )
        }  # fmt: skip
        out = run.path / "plain"
        saving: dict[str, Any] = {"save_strategy": "no"}
        if save_every:
            saving = {"save_strategy": "steps", "save_steps": save_every, "save_total_limit": 1}
        given = {
            "task": place.case.task,
            "model": str(place.model),
            "train": str(place.train),
            "columns": place.case.columns,
            "length": place.case.length,
            "padding": "max_length" if self.name == PLAIN[0] else "longest",
            "grouped": self.name == PLAIN[2],
            "out": str(out) if save_every else None,
            "waits": waits,
            "arguments": {**same, **saving, "output_dir": str(out), "report_to": [], "logging_steps": 1},
        }
        return ["tests.benchmarks.plain_trainer", json.dumps(given)], out

    def step(self) -> dict[str, Any]:
        """One optimizer step: what the gate says of it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        """What the gate says of the next step; raises RuntimeError with the end of the log."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"step"'):
                said: dict[str, Any] = json.loads(line)
                return said
        raise RuntimeError(f"{self.name} ended: {self._log_end()}")

    def wait(self) -> None:
        """Until the training has ended by itself."""
        assert self._process.stdout is not None
        self._process.stdout.read()
        if self._process.wait():
            raise RuntimeError(f"{self.name} failed: {self._log_end()}")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.log.close()

    def _log_end(self) -> str:
        return self.run.file("benchmark.log").read_text(errors="replace")[-2000:]


@dataclass(frozen=True)
class Work:
    """What some steps computed: tokens of both sides, and what encoders of this kind compute for them, as a ratio."""

    seconds: float
    computed: int
    real: int
    computed_operations: float
    real_operations: float


def work_of(steps: Sequence[dict[str, Any]], per_token: float, per_square: float) -> Work:
    """`per_token` + `per_square` x length: operations for a token of a row of this length."""
    seconds = sum(step["seconds"] for step in steps)
    batches = [batch for step in steps for batch in step["batches"]]
    computed = sum(rows * (source + target) for rows, source, target in (batch["shape"] for batch in batches))
    squares = sum(batch["shape"][0] * batch["shape"][1] ** 2 for batch in batches)
    real = sum(batch["real"][0] + batch["real"][2] for batch in batches)
    real_squares = sum(batch["real"][1] for batch in batches)
    return Work(
        seconds,
        computed,
        real,
        per_token * computed + per_square * squares,
        per_token * real + per_square * real_squares,
    )


def turns(arms: Sequence[Arm], repeats: int, steps: int) -> list[list[list[dict[str, Any]]]]:
    """[repeat][arm][step]: each arm does its steps while the others stand still; one step before that is not counted."""
    for arm in arms:
        arm.step()
    found = []
    for repeat in range(repeats):
        found.append([[arm.step() for _ in range(steps)] for arm in arms])
        print(f"  repeat {repeat + 1} of {repeats} at {time.strftime('%H:%M:%S')}", flush=True)
    return found
