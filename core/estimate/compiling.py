"""What torch.compile costs before it pays, as far as it was measured."""

from __future__ import annotations

from trainwiz.core.estimate.time import Range

COMPILED_START = Range(2.0, 120.0)
"""Seconds that the first step takes longer. With the cache of an earlier run 3 s; without one 24 s (esm2-tiny, 4 layers) and 34 s
(esm2-35m, 12 layers) on 4 CPU cores, by `--benchmark 10` with and without engine.compile, torch 2.13. The upper end is
an assumption: more layers, and rows of other lengths, compile longer."""

COMPILING_HOST_BYTES = 6 * 2**30 // 10
"""More host RAM while it compiles, of all processes of one training process: 0.2 and 0.6 GiB in the same two runs."""
