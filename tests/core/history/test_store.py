from __future__ import annotations

import fcntl
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.history import store as lines
from trainwiz.core.history.measurement import gpu_key
from trainwiz.core.history.store import append, history_path, load
from trainwiz.core.run.lost import LOCK_FILE

from tests.core.history.measurements import HERE, measurement

GIB = 1024**3


def test_what_was_appended_last_is_loaded_first_whatever_the_clock_said() -> None:
    assert load(HERE) == ()
    ahead, newer = measurement(measured_at="2031-01-01T10:00:00+00:00"), measurement(lora_targets=("q", "v"))
    append(ahead)
    append(newer)
    assert load(HERE) == (newer, ahead)


def test_other_machines_are_left_out() -> None:
    append(measurement(machine="cpu:Another CPU:8 cores"))
    append(measurement(machine=gpu_key("cuda", "RTX 3090", 24 * GIB)))
    assert load(HERE) == ()
    card = Gpu(0, name="RTX 3090", memory_total_bytes=24 * GIB - 5_000_000)
    with_gpu = replace(HERE, accelerator="cuda", gpus=(card,))
    assert [one.machine for one in load(with_gpu)] == ["cuda:RTX 3090:24 GiB"]
    assert load(replace(with_gpu, hypothetical=True)) == ()


BROKEN: list[dict[str, Any]] = [
    {"step_s": "fast"},
    {"step_s": -1},
    {"step_low_s": 5},
    {"lora_targets": None},
    {"micro_batch": 0},
    {"peak_allocated_bytes": "much"},
    {"step_s": 1e999},
    # Whole numbers of JSON have no end; a float of them overflows.
    {"step_high_s": 10**400},
    {"host_rss_bytes": 10**400},
    {"target_length": -5},
    {"usual_length": 0.5},
    {"checkpointing": "no"},
    {"lora_targets": [1]},
    {"measured_at": "yesterday"},
    {"measured_at": "20261121\x1b10"},
]


def test_a_broken_line_is_left_out() -> None:
    texts = ["", "{", "[]", "null", '{"micro_batch": 8}', "\x00\xff", "[" * 100_000]
    texts += [json.dumps({**measurement().to_json(), **change}) for change in BROKEN]
    # Half a line of a killed writer does not take the next one along.
    for text in [*(text + "\n" for text in texts), '{"measured_at": "2026']:
        history_path().unlink(missing_ok=True)
        append(measurement())
        with history_path().open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
        append(measurement(micro_batch=9))
        assert sorted(one.micro_batch for one in load(HERE)) == [8, 9], text[:200]
    # Keys of a newer version are no hindrance.
    history_path().write_text(json.dumps({**measurement().to_json(), "colour": "blue"}) + "\n")
    assert load(HERE) == (measurement(),)


def test_the_history_stays_small_and_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 10_000)
    for number in range(1, 26):
        append(measurement(steps=number))
    kept = [json.loads(line)["steps"] for line in history_path().read_text().splitlines()]
    assert 5 <= len(kept) <= 12
    assert kept == list(range(kept[0], 26))


def test_a_writer_waits_for_another_and_in_the_end_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone may shorten the history; a shared lock keeps only those out that want it for themselves."""
    append(measurement())
    with (history_path().parent / LOCK_FILE).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        monkeypatch.setattr(lines, "LOCK_WAIT_S", 0.05)
        append(measurement(micro_batch=9))
        assert len(load(HERE)) == 2
        monkeypatch.setattr(lines, "LOCK_WAIT_S", 250.0)
        writer = threading.Thread(target=lambda: append(measurement(micro_batch=10)))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive() and len(load(HERE)) == 2
    writer.join(250)
    assert len(load(HERE)) == 3


def test_a_folder_that_cannot_be_read_is_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainwiz").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load(HERE) == ()
    with pytest.raises(OSError):
        append(measurement())
