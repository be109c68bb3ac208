"""The tools that measure and hurt: benchmarks and the fault campaign."""
