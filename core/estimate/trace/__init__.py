"""A training step on fake tensors, watched: runs only as a child process, for it imports torch."""
