"""`trainwiz bench --choose` in words; real comparisons are in tests/core/launch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trainwiz.core.history.comparison import Alternative
from trainwiz.core.history.store import comparisons_path, load, load_comparisons
from trainwiz.tui.cli import main
from trainwiz.tui.commands.bench_choose import comparison_lines, keep

from tests.core.history.comparisons import comparison, faster
from tests.core.history.measurements import HERE, measurement
from tests.core.plan.machines import config, machine, plan, real

PLAN = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=1000, batch__micro_batch_size=8))


def test_each_alternative_has_its_gain_and_what_becomes_of_it() -> None:
    attention = faster("engine.attention", "eager", "sdpa")
    made = comparison(
        noise=1.02,
        alternatives=(
            attention,
            replace(faster("engine.optimizer", "adamw_torch_fused", "adamw_torch", 1.01), verdict="no_difference"),
            faster("engine.precision", "bf16", "fp32", 2.25, taken=False),
            faster("engine.compile", True, False, 1.6, once_s=30.0),
            Alternative({"engine.tf32": False}, {"engine.tf32": True}, "not_measured", note="the time was up"),
            Alternative({"engine.attention": "x"}, {"engine.attention": "sdpa"}, "failed", note="no \x1b[31mkernel"),
            replace(attention, verdict="differs", note="its loss is 4.0 where the plan's own is 3.0", taken=False),
        ),
    )
    text = "\n".join(comparison_lines(PLAN, made))
    for words in (
        "two processes of these settings differed by 2 %",
        "eager instead of sdpa: 1.40 times the pace (1.30 to 1.50 in 8 turns); taken",
        "1.01 times the pace (0.91 to 1.11 in 8 turns); no difference",
        "bf16 instead of fp32: 2.25 times the pace (2.15 to 2.35 in 8 turns); yours to choose: --precision bf16",
        # 0.75 s of each step of 2 s is saved.
        "compiling takes 30 s, which 41 steps save again; this run has 1,000",
        "off instead of on: not measured: the time was up",
        "not taken: its loss is 4.0 where the plan's own is 3.0",
    ):
        assert words in text
    assert "\x1b" not in text


def test_what_was_compared_is_kept_with_its_measurements() -> None:
    assert keep(comparison(), [measurement()]) == ""
    assert load_comparisons(HERE) == (comparison(),) and len(load(HERE)) == 1
    nothing = (Alternative({"engine.tf32": False}, {"engine.tf32": True}, "not_measured", note="the time was up"),)
    assert keep(comparison(alternatives=nothing), []).startswith("Nothing was compared, so nothing was kept")
    assert len(load_comparisons(HERE)) == 1


def test_another_machine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--choose", "--gpu", "RTX 3090"]) == 2
    assert "it plans for another machine" in capsys.readouterr().err
    assert not comparisons_path().exists()
