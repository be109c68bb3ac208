"""`trainwiz bench` as it is typed; the probes themselves are tested in tests/core/launch."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.history.store import history_path, load
from trainwiz.core.launch.probe_order import ProbeResult, Trial
from trainwiz.core.plan.result import Plan
from trainwiz.tui.cli import main
from trainwiz.tui.commands.bench import bench_lines, interrupted_by_signals, keep, progress_words

from tests.core.history.measurements import HERE, measurement
from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

GIB = 1024**3


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made() -> Plan:
    return plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10, batch__micro_batch_size=8))


def result(**changes: Any) -> ProbeResult:
    one = measurement(
        tokens_per_step=1000.0, host_rss_bytes=3 * GIB, largest_micro_batch=64, largest_note="the time was up"
    )
    plain = ProbeResult(
        measurement=one,
        rows="data",
        rows_note="",
        planned_fits=True,
        trials=(Trial(16, True, None, 0.5),),
        searched=True,
        problem="",
        seconds=31.4,
    )
    return replace(plain, **changes)


def test_each_figure_stands_beside_the_one_of_the_plan() -> None:
    text = "\n".join(bench_lines(made(), result()))
    assert "esm2-8m" in text and "on host RAM, 31 s in all" in text
    assert "8 × 2 sequences of at most 64 tokens; rows of the data" in text
    assert "in 20 steps), 1,000 tokens/s with padding" in text
    assert "the plan said " in text and "by roofline" in text
    assert "3.0 GiB at its most" in text
    assert "micro-batch 64 fits; the search ended: the time was up" in text


def test_a_gpu_tells_its_memory() -> None:
    one = measurement(
        peak_allocated_bytes=5 * GIB, peak_reserved_bytes=6 * GIB, device_used_bytes=7 * GIB, world_size=2
    )
    text = "\n".join(bench_lines(made(), result(measurement=one)))
    assert "5.0 GiB allocated, 6.0 GiB reserved, 7.0 GiB in use; the plan said" in text
    assert "8 × 2 × 2 sequences" in text


@each(
    ("changes", "said"),
    [
        ({"planned_fits": False, "measurement": measurement(micro_batch=4)}, "8 does not fit here; measured with 4"),
        ({"rows": "longest"}, "generated rows of full length"),
        ({"rows": "lengths", "rows_note": "no \x1b[31mtokenizer"}, "generated rows with the lengths of the data (no "),
        ({"searched": False}, "micro-batch 8 fits; there was no time to try larger ones"),
        ({"problem": "out of memory"}, "the probe ended early: out of memory"),
    ],
)
def test_what_is_odd_is_said(changes: dict[str, Any], said: str) -> None:
    text = "\n".join(bench_lines(made(), result(**changes)))
    assert said in text and "\x1b" not in text


def test_what_was_measured_is_kept_or_it_is_said_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(result()) == ""
    assert len(load(HERE)) == 1
    (tmp_path / "trainwiz").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert keep(result()).startswith(f"The measurement could not be kept in {history_path()}: ")


@each(
    ("arguments", "code", "said"),
    [
        (["--gpu", "RTX 3090"], 2, "it plans for another machine, and a probe measures this one"),
        (["--ram", "64G", "--tflops", "10"], 2, "--tflops"),
        (["--profile", "a100-opus"], 2, "A probe measures this machine"),
        (["--profile", "cpu-demo", "--nodes", "2"], 2, "the plan has 2"),
        (["--model", "nowhere/nothing"], 2, "What the model nowhere/nothing is made of is not known"),
        (["--model", "esm2-8m", "--seconds", "1"], 2, "--seconds"),
        (["--model", "esm2-8m", "--micro-batch", "0"], 2, "0 must be above 0"),
        (["--profile", "cpu-demo", "--dataset", "sample-proteins", "--task", "sequence-classification"], None, ""),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int | None, said: str
) -> None:
    got = main(["bench", *arguments])
    text = capsys.readouterr()
    assert got in ((code,) if code is not None else (2, 3))
    assert said in text.err and "Traceback" not in text.err
    assert not history_path().exists()


def test_refusals_are_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--gpu", "RTX 3090", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["severity"] == "error"


def test_its_help_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    text = capsys.readouterr().out
    assert "at most 60 seconds" in text and "--seconds N" in text and "--micro-batch" in text
    assert "--gpu NAME" not in text and "--yes" not in text


def test_a_signal_ends_it_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted_by_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_progress_has_words_for_every_line() -> None:
    said = [
        progress_words({"event": name}) for name in ("ready", "warm", "memory", "step", "trial", "largest", "end", "x")
    ]
    assert all(said)
