"""Watchers: what ails a run while it runs, as lines of advice in its folder. They read what the recorder samples."""
