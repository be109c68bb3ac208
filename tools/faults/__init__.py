"""The fault campaign: real runs, hurt on purpose, and a judge of what became of them. See docs/faults.md."""
