"""Prepare, start and stop a run."""
