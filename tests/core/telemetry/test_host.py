"""The host's line of a sample."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from trainwiz.core.hardware import host as hardware_host
from trainwiz.core.hardware.host import Limits
from trainwiz.core.telemetry.machine import HOST_VALUES, MachineSampler, sample_host


def test_a_sample_has_numbers_in_their_ranges(tmp_path: Path) -> None:
    sample_host(tmp_path)
    sum(number * number for number in range(300_000))
    line = sample_host(tmp_path / "not" / "made")
    assert 0 < line["ram_used_bytes"] < line["ram_total_bytes"]
    assert 0 < line["cpu_percent"] <= 100
    assert 0 < line["disk_free_bytes"] <= line["disk_total_bytes"]
    assert 0 <= line["swap_used_bytes"] <= line["swap_total_bytes"]
    assert set(line) == {*HOST_VALUES, "unavailable"}
    assert line["unavailable"] == {}


def test_the_limit_of_a_container_is_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hardware_host, "memory_limits", lambda groups: Limits(memory_bytes=4_000, memory_available_bytes=1_000)
    )
    line = sample_host(tmp_path)
    assert (line["ram_used_bytes"], line["ram_total_bytes"]) == (3_000, 4_000)


def test_what_cannot_be_read_is_a_reason_and_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(psutil, "swap_memory", refused)
    row = MachineSampler(tmp_path).sample([{"pid": 1}])
    assert row["host"]["swap_used_bytes"] is None
    assert row["unavailable"]["host.swap_used_bytes"] == "Permission denied"
    assert row["host"]["ram_used_bytes"] > 0
    assert row["processes"] == [{"pid": 1}]
