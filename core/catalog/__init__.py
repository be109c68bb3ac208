"""Known GPUs and models."""
