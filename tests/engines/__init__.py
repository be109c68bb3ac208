"""The engines run for real, and the table of what was run: `python -m tests.engines`."""
