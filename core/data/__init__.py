"""Data: readers, filters and summaries of training rows, without torch or datasets."""
