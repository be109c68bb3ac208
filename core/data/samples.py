"""The small data sets that ship with trainwiz."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

SAMPLES: dict[str, str] = {
    "sample-proteins": "sample-proteins.fasta.gz",
    "sample-text": "sample-text.txt.gz",
    "sample-pairs": "sample-pairs.tsv.gz",
    "sample-chat": "sample-chat.jsonl.gz",
}
"""Name -> file in profiles/samples. Made by scripts/make_samples.py, without a licence of others."""


def sample_path(name: str) -> Path | None:
    """The file of a sample, or None when there is no sample of that name."""
    if name not in SAMPLES:
        return None
    return Path(str(files("trainwiz.profiles"))) / "samples" / SAMPLES[name]
