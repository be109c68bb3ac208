"""Traces of a training step: what is asked, what comes back, and the child process that does it. Never imports torch."""
