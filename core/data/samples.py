"""The small data sets that ship with trainwiz."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from trainwiz.core.config.values import Task

SAMPLES: dict[str, str] = {
    "sample-proteins": "sample-proteins.fasta.gz",
    "sample-text": "sample-text.txt.gz",
    "sample-pairs": "sample-pairs.tsv.gz",
    "sample-chat": "sample-chat.jsonl.gz",
}
"""Name -> file in profiles/samples. Made by scripts/make_samples.py, without a licence of others."""

SAMPLES_OF_TASK: dict[Task, tuple[str, ...]] = {
    "masked-lm": ("sample-proteins",),
    "causal-lm": ("sample-text", "sample-chat"),
    "seq2seq": ("sample-pairs", "sample-chat"),
    "sequence-classification": ("sample-text",),
}


def sample_words(task: Task | None) -> str:
    """The samples that a run of this task can learn from, for a sentence; all of them where no task is known."""
    return ", ".join(SAMPLES if task is None else SAMPLES_OF_TASK[task])


def sample_path(name: str) -> Path | None:
    """The file of a sample, or None when there is no sample of that name."""
    if name not in SAMPLES:
        return None
    return Path(str(files("trainwiz.profiles"))) / "samples" / SAMPLES[name]
