"""The rows of the estimator's benchmark: each is a workload or has a reason, and each figure answers to what was measured."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.peak import overheads

from tools.benchmarks.published.compare import Figure, figure, stated
from tools.benchmarks.published.coverage import Covered, left_out_spread, spread_of
from tools.benchmarks.published.measured_code import CHANGES, OF_ROWS
from tools.benchmarks.published.rows import TABLE, PublishedRow, read_rows


def _row(rows: list[PublishedRow], name: str) -> PublishedRow:
    return next(row for row in rows if row.id == name)


def test_every_row_of_both_tables_is_a_workload_or_has_a_reason(shared_data: Path) -> None:
    rows = read_rows()
    with (shared_data / "measurements" / "memory.csv").open(newline="") as file:
        names = {values["id"] for values in csv.DictReader(file)}
    with TABLE.open(newline="") as file:
        names |= {values["id"] for values in csv.DictReader(file)}
    assert {row.id for row in rows} == names
    assert all((row.work is None) == bool(row.left_out) for row in rows)
    assert all(row.work is not None for row in rows if row.comparable == "table")
    assert {row.id for row in rows if row.comparable == "yes" and row.left_out} == {"M016", "M017"}, "4-bit bases"


def test_rows_are_read_from_their_columns(shared_data: Path, tmp_path: Path) -> None:
    rows, own = read_rows(), read_rows(shared=tmp_path)
    # Those of BERT need no shared data.
    first, checkpointed, adafactor = (_row(own, name).work for name in ("T1", "T3", "T7"))
    assert _row(own, "T1").measured == 14949 * 2**20 and _row(own, "T1").figure == "device used"
    assert first is not None and checkpointed is not None and adafactor is not None
    assert (first.task, first.micro_batch, first.length) == ("sequence-classification", 4, 512)
    assert (first.attention, first.precision, first.padded) == ("eager", "fp32", False)
    assert checkpointed.checkpointing and checkpointed.accumulation == 4
    assert adafactor.optimizer == "adafactor" and adafactor.precision == "fp16"
    assert _row(own, "T8").left_out == "its config is not available"
    llama, mixtral = _row(rows, "T8").work, _row(rows, "M015").work
    assert llama is not None and mixtral is not None
    assert (llama.lora_rank, llama.lora_targets, llama.precision) == (8, ("q_proj", "v_proj"), "bf16-true")
    assert (mixtral.strategy, mixtral.world_size, mixtral.lora_rank) == ("fsdp", 2, 16)
    assert _row(rows, "M001").smi == 15116 * 2**20
    assert _row(rows, "M032").either_unit and not _row(rows, "M001").either_unit


def test_a_figure_answers_to_what_was_measured(tmp_path: Path) -> None:
    work = _row(read_rows(shared=tmp_path), "T14a").work
    assert work is not None
    estimate, beside = estimate_memory(work), overheads(work)
    used, reserved = figure(estimate, work, "device used"), figure(estimate, work, "reserved")
    assert figure(estimate, work, "allocated").point == estimate.allocated_bytes
    assert used.point == reserved.point + beside.context
    assert used.high - reserved.high == beside.context + beside.spread
    assert used.low - reserved.low == beside.context - beside.spread


def test_every_change_of_the_measured_code_is_used_and_has_its_source() -> None:
    used = {name for names in OF_ROWS.values() for name in names}
    assert used == set(CHANGES)
    assert all(change.because for change in CHANGES.values())


def test_what_is_stated_of_a_run_changes_nothing_else(tmp_path: Path) -> None:
    rows = read_rows(shared=tmp_path)
    bert, phi = _row(rows, "T1").work, _row(rows, "T14a").work
    assert bert is not None and phi is not None
    card = stated("T1", bert)
    assert replace(card, context_bytes=None, context_source="") == bert
    assert estimate_memory(card).breakdown["context"] == 1343 * 2**20
    fused = stated("T14a", phi)
    assert json.loads(fused.model_config) == {**json.loads(phi.model_config), "hidden_act": "gelu_pytorch_tanh"}
    assert replace(fused, model_config=phi.model_config, architecture=phi.architecture) == phi
    assert estimate_memory(fused).allocated_bytes < estimate_memory(phi).allocated_bytes
    assert stated("M136", bert) == bert


def test_a_spread_holds_nine_of_ten_of_a_kind_and_none_of_its_own_source(tmp_path: Path) -> None:
    row = _row(read_rows(shared=tmp_path), "T1")
    shown = Figure(100, 90, 120)

    def measured(size: int, source: str, beyond: float = 0.2) -> Covered:
        return Covered(row, source, beyond, size, shown, shown, read=True, outside=0)

    first = [measured(size, "one") for size in (90, 100, 105, 108, 110, 112, 114, 116, 118)]
    last = measured(153, "two")
    assert measured(130, "one").needed == pytest.approx(0.3) and not last.holds and first[-1].holds
    assert spread_of(first) == 0.2 and spread_of([*first, last]) == 0.2
    assert spread_of([*first[:8], last, last]) == 0.6
    assert left_out_spread([*first, last], last) == 0.2 and left_out_spread([*first, last], first[0]) == 0.6
    assert left_out_spread([*first, last], measured(100, "one", beyond=0.4)) is None
