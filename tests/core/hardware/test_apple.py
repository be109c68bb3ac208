"""Apple Silicon, decided from what the platform says."""

from __future__ import annotations

from trainwiz.core.hardware.host import apple_gpu

from tests.each import each

GIB = 1024**3


def test_an_m2_max() -> None:
    gpu, reason = apple_gpu("arm64", "14.5", "Apple M2 Max", 64 * GIB, 40 * GIB)
    assert reason is None and gpu is not None
    assert (gpu.name, gpu.catalogue_name, gpu.capability) == ("Apple M2 Max", "Apple M2 Max", None)
    assert (gpu.memory_total_bytes, gpu.memory_free_bytes) == (48 * GIB, 40 * GIB)


@each(
    ("machine", "macos", "why"), [("x86_64", "14.5", "for Intel"), ("arm64", "12.2", "needs macOS 12.3, this is 12.2")]
)
def test_what_has_no_mps_says_why(machine: str, macos: str, why: str) -> None:
    gpu, reason = apple_gpu(machine, macos, "Apple M1", 16 * GIB, 8 * GIB)
    assert gpu is None and why in str(reason)
