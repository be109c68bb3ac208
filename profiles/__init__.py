"""Data only: hardware profiles, catalogues of GPUs and models, sample data."""
