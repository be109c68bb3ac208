"""The training rows of a run as token numbers in memory: one byte a letter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.data.letters import LetterCheck
from trainwiz.core.data.proteins import SPECIAL_TOKENS, EncodedProteins, cut_proteins, encode_proteins
from trainwiz.core.data.rows import SourceTally, read_rows
from trainwiz.core.data.sources import find_files
from trainwiz.core.data.split import held_out_count, split_rows
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding, has_errors, sort_findings


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

    Sequences are cut to sequence_length - 2 letters. Raises UsageError with all that is wrong
    with any source.
    """
    findings: list[Finding] = []
    letters = config.batch.sequence_length - SPECIAL_TOKENS
    train = [_load(s, f"data.sources.{i}", folder, letters, findings) for i, s in enumerate(config.data.sources)]
    held = [
        _load(s, f"data.validation_sources.{i}", folder, letters, findings)
        for i, s in enumerate(config.data.validation_sources)
    ]
    if has_errors(findings):
        raise UsageError(sort_findings(findings))
    proteins = _join([*train, *held])
    rows = sum(len(part.offsets) - 1 for part in train)
    if held:
        return ProteinRows(proteins, np.arange(rows), np.arange(rows, len(proteins.offsets) - 1))
    return ProteinRows(proteins, *split_rows(rows, held_out_count(rows, config.data), config.training.seed))


def _load(source: DataSource, key: str, folder: Path, letters: int, findings: list[Finding]) -> EncodedProteins:
    tally, check, parts = SourceTally(), LetterCheck(), []
    try:
        for rows in read_rows(find_files(source, key, folder), tally, "masked-lm"):
            proteins = encode_proteins(rows.texts)
            check.add(rows, proteins)
            parts.append(cut_proteins(proteins, letters))
    except UsageError as error:
        findings.extend(error.findings)
    findings.extend(tally.findings)
    findings.extend(check.findings(key))
    return _join(parts)


def _join(parts: list[EncodedProteins]) -> EncodedProteins:
    if not parts:
        return EncodedProteins(np.empty(0, np.uint8), np.zeros(1, np.int64))
    sizes = np.concatenate([part.lengths for part in parts])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return EncodedProteins(np.concatenate([part.tokens for part in parts]), offsets)
