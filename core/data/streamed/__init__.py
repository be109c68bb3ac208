"""Rows that are read while training: from the files where they stand, each by its number."""
