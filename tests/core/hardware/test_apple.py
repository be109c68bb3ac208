"""Apple Silicon, decided from what the platform says."""

from __future__ import annotations

from trainwiz.core.hardware.host import apple_gpu

GIB = 1024**3


def test_an_m2_max() -> None:
    gpu, reason = apple_gpu("arm64", "14.5", "Apple M2 Max", 64 * GIB, 40 * GIB)
    assert reason is None
    assert gpu is not None
    assert (gpu.name, gpu.catalogue_name, gpu.capability) == ("Apple M2 Max", "Apple M2 Max", None)
    assert (gpu.memory_total_bytes, gpu.memory_free_bytes) == (48 * GIB, 40 * GIB)


def test_what_has_no_mps_says_why() -> None:
    intel, rosetta = apple_gpu("x86_64", "14.5", "Intel(R) Core(TM) i9", 32 * GIB, 16 * GIB)
    assert intel is None
    assert rosetta is not None
    assert "Intel" in rosetta
    old, reason = apple_gpu("arm64", "12.2", "Apple M1", 16 * GIB, 8 * GIB)
    assert old is None
    assert reason == "MPS needs macOS 12.3, this is 12.2"
