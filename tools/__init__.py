"""What measures the product and what hurts it on purpose; not installed."""
