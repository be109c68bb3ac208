"""A real comparison: processes of the plan's own settings and of others, in turns."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.comparison import Alternative
from trainwiz.core.launch import comparing
from trainwiz.core.launch.alternatives import alternatives_of, growth
from trainwiz.core.launch.comparing import Choosing
from trainwiz.core.launch.loss_check import differs, learns_otherwise
from trainwiz.core.plan.gather import gather, plan_gathered
from trainwiz.core.plan.request import PlanRequest

from tests.core.plan.machines import config, machine, plan, real

SMALL = {"batch.sequence_length": 32, "batch.micro_batch_size": 4, "batch.target_samples": 8}
ROWS = 21
"""One is held out: an epoch has five micro-batches, two steps of two and a short one."""


@pytest.mark.all
@pytest.mark.real
def test_processes_that_memory_does_not_hold_together_take_their_turns_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"engine.attention": "sdpa"}
    other = Alternative({"engine.attention": "eager"}, base, "not_measured")
    monkeypatch.setattr(comparing, "alternatives_of", lambda plan: (other,))
    monkeypatch.setattr(comparing, "TURNS", 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gathered = gather(PlanRequest(profile="cpu-demo", overrides=SMALL))
    here = plan_gathered(gathered)
    tight = replace(here, machine=replace(here.machine, ram_available_bytes=here.memory.host_ram_bytes))
    alive: list[int] = []
    choosing = Choosing(tight, gathered.data, 300.0, lambda words: alive.append(len(list(tmp_path.iterdir()))))
    (eager,) = choosing.run().alternatives
    assert max(alive) == 0 and list(tmp_path.iterdir()) == []
    assert eager.turns == 2 and eager.loss_difference is not None and eager.loss_difference < 1e-3


@pytest.mark.real
def test_settings_are_compared_in_turns(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that trains alike, one that this machine cannot run, one that trains otherwise; on rows of a few steps."""
    rows = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows.write_text("".join(f'{{"sequence": "{"MKVLAGTE" * (1 + row % 3)}"}}\n' for row in range(ROWS)))
    base = {"engine.attention": "sdpa"}
    monkeypatch.setattr(
        comparing,
        "alternatives_of",
        lambda plan: (
            Alternative({"engine.attention": "eager"}, base, "not_measured"),
            Alternative({"engine.attention": "flash_attention_2"}, base, "not_measured"),
            Alternative({"training.learning_rate": 0.5}, {"training.learning_rate": 4e-4}, "not_measured"),
        ),
    )
    monkeypatch.setattr(comparing, "TURNS", 3)
    monkeypatch.setattr(comparing, "TURN_S", 0.05)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    overrides = {**SMALL, "data.sources": [{"name": str(rows)}]}
    gathered = gather(PlanRequest(profile="cpu-demo", overrides=overrides))
    said: list[str] = []
    choosing = Choosing(plan_gathered(gathered), gathered.data, 120.0, said.append)
    compared = choosing.run()
    eager, flash, rate = compared.alternatives
    assert list(tmp_path.iterdir()) == []
    assert eager.turns == 3 and eager.gain is not None and eager.verdict in ("faster", "slower", "no_difference")
    assert eager.loss_difference is not None and eager.loss_difference < 1e-3
    assert flash.verdict == "failed" and "flash" in flash.note.lower() and not flash.taken
    assert rate.verdict == "differs" and "where the plan's own is" in rate.note and not rate.taken
    assert compared.noise is not None and compared.noise >= 1.0
    own = choosing.measurements[0]
    assert own.attention == "sdpa" and own.steps >= 3 and own.micro_batch == 4
    assert any("turn 3 of 3" in words for words in said)


def test_what_is_not_measured_says_why() -> None:
    here = real(machine(gpu=None))
    cpu = {one.key + str(one.changes[one.key]): one.note for one in alternatives_of(plan(here, config("esm2-8m")))}
    assert cpu["engine.attentioneager"] == cpu["engine.optimizeradamw_torch_fused"] == cpu["engine.compileTrue"] == ""
    assert cpu["engine.attentionflash_attention_2"] == "it needs an NVIDIA GPU"
    assert "engine.tf32False" not in cpu
    card = real(machine("RTX 3090"), triton="3.4")
    gpu = {one.key: one for one in alternatives_of(plan(card, config("esm2-8m", engine__optimizer="adamw_torch")))}
    assert gpu["engine.optimizer"].note == "you chose adamw_torch"
    assert gpu["engine.attention"].note == "flash-attn is not installed"
    assert (gpu["engine.tf32"].changes, gpu["engine.tf32"].note) == ({"engine.tf32": False}, "")
    assert gpu["engine.compile"].note == "" and "engine.precision" not in gpu
    by_name = alternatives_of(plan(card, config("esm2-8m", engine__precision="tf32")))
    assert "engine.tf32" not in {one.key for one in by_name}, "the precision says it"


def test_what_would_fill_the_ram_of_a_computer_is_not_tried() -> None:
    """Eager attention keeps every row's product with every other: three times the memory at 1,024 tokens."""
    here = plan(real(machine(gpu=None)), config("esm2-8m", batch__micro_batch_size=16, batch__sequence_length=1024))
    assert 2 < growth(here, {"engine.attention": "eager"}) < 4 and growth(here, {"engine.compile": True}) == 1.0
    full = replace(here, machine=replace(here.machine, ram_available_bytes=2 * here.memory.host_ram_bytes))
    notes = {one.key + str(one.changes[one.key]): one.note for one in alternatives_of(full)}
    assert notes["engine.attentioneager"].startswith("it may take") and notes["engine.compileTrue"] == ""


def test_rows_end_to_end_are_not_tried_with_what_cannot_take_them() -> None:
    packed = plan(real(machine(gpu=None)), config("esm2-8m", data__packing=True))
    notes = {one.key + str(one.changes[one.key]): one.note for one in alternatives_of(packed)}
    assert notes["engine.attentioneager"] == notes["engine.compileTrue"] != ""
    assert notes["engine.optimizeradamw_torch_fused"] == ""


def test_losses_are_compared_as_their_formats_allow() -> None:
    work: Workload | None = plan(real(machine(gpu=None)), config("esm2-8m")).work
    own = {3: 3.0, 4: 3.1, 5: 3.0}
    near = {step: 1.01 * loss for step, loss in own.items()}
    assert differs(own, near, same_format=True, work=work)[1] == "its loss is 3.0637 where the plan's own is 3.0333"
    assert differs(own, near, same_format=False, work=work) == (pytest.approx(0.01), "")
    assert differs(own, {3: math.nan}, same_format=False, work=work)[1] == "its loss is no number"
    assert load_models()["esm2-8m"].architecture["hidden_dropout_prob"] == 0


def test_gradients_are_compared_where_they_are_known() -> None:
    work: Workload | None = plan(real(machine(gpu=None)), config("esm2-8m")).work
    own, masked = {3: 13.0, 4: 14.0}, {3: 14.5, 4: 15.0}
    said = learns_otherwise(own, masked, same_format=False, work=work)
    assert said == "its gradient has the norm 14.75 where the plan's own has 13.5"
    assert learns_otherwise(own, {3: 13.01, 4: 14.0}, same_format=True, work=work) == ""
    assert learns_otherwise({}, masked, same_format=True, work=work) == ""
