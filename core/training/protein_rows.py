"""The training rows of a run as token numbers in memory: one byte a letter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.data.letters import LetterCheck
from trainwiz.core.data.proteins import SPECIAL_TOKENS, EncodedProteins, cut_proteins, encode_proteins
from trainwiz.core.data.rows import read_rows
from trainwiz.core.data.sources import all_sources, find_files
from trainwiz.core.data.split import held_out_count, split_rows
from trainwiz.core.data.tally import SourceTally
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding, has_errors, sort_findings
from trainwiz.core.training.letter_store import LetterStore


@dataclass(frozen=True, slots=True)
class ProteinRows:
    """All sequences, and which of them train and which evaluate."""

    proteins: EncodedProteins
    train: np.ndarray
    """(n,) int64: rows of `proteins` that train."""
    held_out: np.ndarray
    """(m,) int64: rows of `proteins` for evaluation."""


def load_protein_rows(config: RunConfig, folder: Path) -> ProteinRows:
    """Read every source whole; relative paths are from `folder`.

    Sequences are cut to sequence_length - 2 letters. With data.streaming they lie in a file and
    are read from it while training. Raises UsageError with all that is wrong with any source.
    """
    findings: list[Finding] = []
    store = LetterStore(folder if config.data.streaming else None)
    letters = config.batch.sequence_length - SPECIAL_TOKENS
    train, held = all_sources(config)
    for key, source in train:
        _load(source, key, folder, letters, store, findings)
    rows = store.rows
    for key, source in held:
        _load(source, key, folder, letters, store, findings)
    if has_errors(findings):
        raise UsageError(sort_findings(findings))
    proteins = store.finish()
    if config.data.validation_sources:
        return ProteinRows(proteins, np.arange(rows), np.arange(rows, store.rows))
    return ProteinRows(proteins, *split_rows(rows, held_out_count(rows, config.data), config.training.seed))


def _load(
    source: DataSource, key: str, folder: Path, letters: int, store: LetterStore, findings: list[Finding]
) -> None:
    tally, check = SourceTally(), LetterCheck()
    try:
        for rows in read_rows(find_files(source, key, folder, task="masked-lm", fetch=True), tally, "masked-lm"):
            proteins = encode_proteins(rows.texts)
            check.add(rows, proteins)
            store.add(cut_proteins(proteins, letters))
    except UsageError as error:
        findings.extend(error.findings)
    findings.extend(tally.findings)
    findings.extend(check.findings(key))
