"""What fits: the rule that ranks rows, the limit, what rows are told to be, and rows that are plans like any other."""

import json
import shlex
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.run import DataSource
from trainwiz.core.data.detect import what_rows_are
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.fit import Fits, Limit, Question, find_fits, group_of, improved, sort_key
from trainwiz.core.plan.gather import plan_gathered, plan_run
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan
from trainwiz.tui.cli import main
from trainwiz.tui.commands.fit import limit_of, parse_until

from tests.each import each
from tests.tui.test_pasted_remedies import planned

GIB = 2**30
HERE = Machine(cpu_cores=4, ram_total_bytes=16 * GIB, ram_available_bytes=12 * GIB, disk_free_bytes=100 * GIB)
NOON = datetime(2026, 11, 26, 12, 0)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(data: str = "sample-chat", gpu: str | None = "RTX 3060 12GB", **more: object) -> Question:
    overrides = {"data.sources.0.name": data, **{key.replace("__", "."): value for key, value in more.items()}}
    return Question(PlanRequest(gpu=gpu, num_gpus=None if gpu is None else 1, overrides=overrides))


def found(question: Question) -> Fits:
    return find_fits(question, HERE, Refiner())


@pytest.fixture(scope="module")
def chats() -> Fits:
    return found(asked())


def test_the_largest_that_sees_the_data_in_time_comes_first(chats: Fits) -> None:
    """And a row that may not fit, or sees the data less often, never before one that does."""
    keys = [sort_key(fit, "largest") for fit in chats.rows]
    assert keys == sorted(keys) and all(group_of(fit) == 0 for fit in chats.rows)
    sizes = [fit.parameters for fit in chats.rows]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 8e9
    best, second = chats.rows[0], chats.rows[-1]
    late = replace(best, in_time=False, limit_s=(best.plan.time.total_s or 0) / 2)
    assert late.passes == pytest.approx(1.5) and sort_key(second, "largest") < sort_key(late, "largest")
    tight = replace(best, plan=replace(best.plan, memory=replace(best.plan.memory, verdict="tight")))
    assert sort_key(second, "largest") < sort_key(tight, "largest") < sort_key(late, "largest")
    assert sort_key(second, "largest") < sort_key(replace(best, cut=0.3), "largest")


def test_another_rule_is_another_order(chats: Fits) -> None:
    rows = found(replace(asked("sample-pairs"), limit=Limit(per_hour=1.0), rule="cheapest")).rows
    times = [fit.plan.time.total_s or 0.0 for fit in rows if group_of(fit) == 0]
    assert times == sorted(times) and len(times) > 2
    assert all(fit.cost is not None and fit.cost[0] < fit.cost[1] < fit.cost[2] for fit in rows)
    cut = [replace(fit, cut=number % 3 / 10) for number, fit in enumerate(chats.rows)]
    assert [fit.cut for fit in sorted(cut, key=lambda fit: sort_key(fit, "uncut"))] == sorted(fit.cut for fit in cut)
    fastest = sorted(chats.rows, key=lambda fit: sort_key(fit, "fastest"))
    assert fastest == sorted(chats.rows, key=lambda fit: fit.plan.time.total_s or 0.0)


def test_a_row_without_enough_time_is_planned_for_the_time_that_there_is(chats: Fits) -> None:
    whole = min(fit.plan.time.total_s or 0.0 for fit in chats.rows)
    models = tuple({fit.plan.config.model.name: None for fit in (*chats.rows[:2], *chats.rows[-2:])})
    rows = found(replace(asked(), limit=Limit(seconds=whole / 8), models=models)).rows
    for fit in rows:
        assert fit.plan.time.total_s is not None and fit.plan.time.total_s <= whole / 8
        assert fit.in_time == ((fit.plan.time.epochs or 0) == pytest.approx(3))
        assert fit.in_time or "training.max_steps" in fit.request.overrides
    assert rows and not all(fit.in_time for fit in rows)


def test_a_row_is_the_plan_of_its_command(chats: Fits) -> None:
    for fit in (chats.rows[0], chats.rows[-1]):
        words = shlex.split(fit.command)
        assert words[:2] == ["trainwiz", "plan"]
        plan = planned(shlex.join(words[2:]))
        ours, theirs = (json.loads(json.dumps(document, default=str)) for document in (fit.to_json(), plan.to_json()))
        assert all(ours[part] == theirs[part] for part in ("model", "batch", "memory", "time"))
        wizard = plan_run(fit.request)
        assert (wizard.memory, wizard.time) == (plan.memory, plan.time)


def test_better_figures_move_a_row_or_drop_it(chats: Fits) -> None:
    def too_large(gathered: object) -> Plan:
        plan = plan_gathered(gathered)  # type: ignore[arg-type]
        return replace(plan, memory=replace(plan.memory, verdict="does_not_fit"))

    first = next(improved(chats, too_large))
    assert len(first.rows) == len(chats.rows) - 1 and chats.rows[0].model not in [fit.model for fit in first.rows]


def test_what_a_sample_is() -> None:
    """Chats, pairs and classes are searched for elsewhere here."""
    for name, kind in {"text": "texts", "names": "tags", "proteins": "proteins"}.items():
        assert what_rows_are(DataSource(name=f"sample-{name}")).kind == kind


@each("row", [
    {"input": "a", "output": "b"}, {"text": "a", "note": "b"}, {"text": "a", "category": "b", "summary": "c"},
    {"messages": "hello", "title": "x"}, {"sequence": "once upon a time", "answer": "b"},
])  # fmt: skip
def test_what_may_be_several_things_is_asked(row: dict[str, str]) -> None:
    Path("mine.jsonl").write_text("\n".join([json.dumps(row)] * 20))
    with pytest.raises(UsageError, match=r"cannot be detected .*Set it with --task"):
        found(asked("mine.jsonl"))


def test_a_named_task_is_taken() -> None:
    Path("mine.jsonl").write_text("\n".join([json.dumps({"input": "a b c", "output": "d e"})] * 50))
    chats = found(asked("mine.jsonl", task="causal-lm"))
    assert chats.kind == "chats" and chats.told is None
    assert all(fit.plan.config.data.sources[0].layout == "chat" for fit in chats.rows)
    pairs = found(asked("mine.jsonl", task="seq2seq"))
    assert {fit.plan.task for fit in pairs.rows} == {"seq2seq"}


def test_what_cannot_be_is_said_with_the_nearest() -> None:
    with pytest.raises(CannotRunError, match=r"Nothing fits: even the smallest of \d+ models, smollm2-135m-instruct"):
        question = asked(gpu="RTX 3090")
        found(replace(question, request=replace(question.request, gpu_memory_bytes=2**28)))
    with pytest.raises(UsageError, match=r"Not enough time to train: the fastest, .* for 3 epochs"):
        found(replace(asked(), limit=Limit(seconds=2.0)))
    with pytest.raises(UsageError, match=r"Closest: RTX 3090, RTX 3090 Ti"):
        found(asked(gpu="3091"))
    Path("none.csv").write_text("prompt,response\n")
    with pytest.raises(UsageError, match=r"none\.csv has no rows"):
        found(asked("none.csv"))
    with pytest.raises(UsageError, match="Specify the data to"):
        found(Question(PlanRequest()))
    with pytest.raises(UsageError, match=r"power draw of the machine is unknown: .*--per-hour"):
        found(replace(asked(gpu=None, planning__energy_price_per_kwh=0.3), limit=Limit(cost=5.0)))


def test_a_clock_is_the_next_one_over_midnight_too() -> None:
    ends = {"12:01": (26, 12, 1), "08:00": (27, 8, 0), "12:00": (27, 12, 0), "2026-11-30 06:30": (30, 6, 30)}
    for text, end in ends.items():
        assert parse_until(text, NOON) == datetime(2026, 11, *end)


@each("bounds, sentence", [
    ({"until": "2026-11-26 11:00"}, r"has passed \(it is 2026-11-26 12:00\); the next one is 2026-11-27 11:00"),
    ({"until": "24:30"}, "is not a time"),
    ({"until": "08:00", "hours": 3.0}, "keep one"),
    ({"budget": "5EUR"}, "no price is set: .*--per-hour"),
    ({"budget": "5€$ 3", "per_hour": "1"}, "not an amount"),
    ({"budget": "5EUR", "per_hour": "1USD"}, "are different currencies"),
])  # fmt: skip
def test_a_limit_that_cannot_be(bounds: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        limit_of(NOON, {}, **bounds)


def test_a_budget_is_the_time_that_it_pays_for(chats: Fits) -> None:
    own: dict[str, object] = {}
    limit = limit_of(NOON, own, budget="2 EUR", per_hour="0.5EUR")
    assert limit.cost == 2.0 and list(own.values()) == ["EUR"]
    plan = chats.rows[0].plan
    assert limit.seconds_of(plan) == pytest.approx(4 * 3600)
    assert Limit(cost=1.0).cost_of(plan) is None


def test_json_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = "fit --dataset sample-reviews --gpu 3090 --num-gpus 2 --budget 1EUR --per-hour 0.8 --json"
    assert main(words.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert [document[key] for key in ("rows_are", "task", "rule")] == ["classes", "sequence-classification", "largest"]
    assert document["limit"] == {"seconds": None, "cost": 1.0, "per_hour": 0.8, "currency": "EUR"}
    first = document["fits"][0]
    assert len(document["machine"]["gpus"]) == 2 and first["time"]["currency"] == "EUR"
    assert first["name"] == "modernbert-large" and first["cost"]["low"] < first["cost"]["likely"]
