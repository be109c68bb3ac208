"""The host's line of a sample."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.telemetry.host import sample_host


def test_a_sample_has_numbers_in_their_ranges(tmp_path: Path) -> None:
    sample_host(tmp_path)
    sum(number * number for number in range(300_000))
    line = sample_host(tmp_path / "not" / "made")
    assert 0 < line["ram_used_bytes"] < line["ram_total_bytes"]
    assert 0 < line["cpu_percent"] <= 100
    assert line["disk_free_bytes"] > 0
    assert line["unavailable"] == {}
