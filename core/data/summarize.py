"""summarize_data: what the data of a run holds, from footers and a sample of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.data.letters import LetterCheck
from trainwiz.core.data.proteins import SPECIAL_TOKENS, encode_proteins
from trainwiz.core.data.rows import read_rows
from trainwiz.core.data.sources import all_sources, find_files
from trainwiz.core.data.split import held_out_count
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.data.tally import SourceTally
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding, has_errors, sort_findings

SAMPLE_ROWS = 20_000
BYTES_PER_TOKEN = 4.0
"""Rough UTF-8 bytes of one subword token: 4 letters of English, 1.3 characters of Chinese."""
BYTES_PER_ROW = 8
"""Offset kept for each row beside its letters."""


@dataclass(slots=True)
class _Source:
    tally: SourceTally = field(default_factory=SourceTally)
    lengths: list[np.ndarray] = field(default_factory=list)
    target_lengths: list[np.ndarray] = field(default_factory=list)


def summarize_data(config: RunConfig, folder: Path | None = None) -> DataSummary:
    """Rows, lengths and columns of the training data; relative paths are from `folder` (default: here).

    Lengths are unclipped, in tokens: exact for proteins, estimated from bytes otherwise. Raises
    UsageError with all that is wrong with any source.
    """
    folder = folder or Path.cwd()
    findings: list[Finding] = []
    train, held = (
        [_read(source, key, config, folder, findings) for key, source in sources] for sources in all_sources(config)
    )
    if has_errors(findings):
        raise UsageError(sort_findings(findings))
    rows = sum(source.tally.rows for source in train)
    validation = sum(source.tally.rows for source in held) or held_out_count(rows, config.data)
    lengths = _mixed([(source.tally.rows, source.lengths) for source in train])
    kept = np.minimum(lengths, config.batch.sequence_length)
    training_rows = rows if held else rows - validation
    return DataSummary(
        rows=training_rows,
        rows_exact=all(source.tally.exact for source in train),
        validation_rows=validation,
        lengths=tuple(lengths.tolist()),
        length_unit="tokens" if config.task == "masked-lm" else "tokens (estimated)",
        target_lengths=tuple(_mixed([(source.tally.rows, source.target_lengths) for source in train]).tolist()),
        bytes_on_disk=sum(source.tally.bytes_on_disk for source in train),
        bytes_in_memory=int(rows * (float(kept.mean() if len(kept) else 0.0) + BYTES_PER_ROW)),
        columns=train[0].tally.columns,
        preview=train[0].tally.preview,
        findings=sort_findings(findings),
    )


def _read(source: DataSource, key: str, config: RunConfig, folder: Path, findings: list[Finding]) -> _Source:
    result = _Source()
    try:
        files = find_files(source, key, folder)
    except UsageError as error:
        findings.extend(error.findings)
        return result
    is_protein = config.task == "masked-lm"
    letters = LetterCheck()
    for rows in read_rows(files, result.tally, config.task, limit=SAMPLE_ROWS):
        if is_protein:
            proteins = encode_proteins(rows.texts)
            letters.add(rows, proteins)
            result.lengths.append(proteins.lengths + SPECIAL_TOKENS)
        else:
            result.lengths.append(_estimated(rows.texts))
        if rows.targets is not None:
            result.target_lengths.append(_estimated(rows.targets))
    findings.extend(result.tally.findings)
    findings.extend(letters.findings(key))
    return result


def _estimated(texts: pa.Array) -> np.ndarray:
    sizes: np.ndarray = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    return (np.ceil(sizes / BYTES_PER_TOKEN) + 1).astype(np.int64)


def _mixed(sources: Sequence[tuple[int, list[np.ndarray]]]) -> np.ndarray:
    """Lengths of several sources, each in proportion to its rows. (n,) int64, n <= SAMPLE_ROWS."""
    parts = [(rows, np.concatenate(lengths)) for rows, lengths in sources if lengths]
    if not parts:
        return np.empty(0, np.int64)
    total = sum(rows for rows, _ in parts)
    share = min(1.0, SAMPLE_ROWS / max(total, 1), *(len(lengths) / max(rows, 1) for rows, lengths in parts))
    taken = []
    for rows, lengths in parts:
        count = min(len(lengths), max(1, round(rows * share)))
        taken.append(lengths[np.linspace(0, len(lengths) - 1, count).round().astype(np.int64)])
    return np.concatenate(taken)
