"""DataSummary: what a data source holds, as far as planning needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.findings import Finding


@dataclass(frozen=True, slots=True)
class DataSummary:
    """Rows and lengths of the training data."""

    rows: int
    """Rows that training would use, after filters; exact where cheap, else estimated."""
    rows_exact: bool
    lengths: tuple[int, ...]
    """Unclipped lengths in tokens (special tokens included) of a sample of rows."""
    length_unit: str = "tokens"
    """ "tokens" when exact (one token a letter), "tokens (estimated)" when guessed from characters."""
    target_lengths: tuple[int, ...] = ()
    bytes_on_disk: int = 0
    bytes_in_memory: int = 0
    columns: tuple[str, ...] = ()
    preview: tuple[tuple[str, ...], ...] = ()
    """First rows, one tuple a row, as text."""
    findings: tuple[Finding, ...] = ()
    validation_rows: int = 0
    """Rows of evaluation: held out of the training data (and not counted in `rows`), or of their own sources."""
