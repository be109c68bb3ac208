"""The run folder: names, layout, atomic reads and writes."""
