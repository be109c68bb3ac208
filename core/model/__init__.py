"""A trained model after its run: found, spoken to, merged, described, exported, pushed. Never imports torch."""
