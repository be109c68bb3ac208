"""DataSummary: what a data source holds, as far as planning needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.findings import Finding


@dataclass(frozen=True, slots=True)
class DataSummary:
    """Rows and lengths of the training data."""

    rows: int
    """Rows that training would use, after filters; exact where cheap, else estimated. Joined texts count as sequences."""
    rows_exact: bool
    lengths: tuple[int, ...]
    """Unclipped lengths in tokens (special tokens included) of a sample of rows."""
    length_unit: str = "tokens"
    """ "tokens" when counted (letters, or the model's tokenizer), "tokens (estimated)" when guessed from bytes."""
    target_lengths: tuple[int, ...] = ()
    """Likewise of the targets of seq2seq rows."""
    bytes_on_disk: int = 0
    bytes_in_memory: int = 0
    bytes_streamed: int = 0
    """Written beside the run where rows are read while training: their index, what must be copied, tokens of joined texts."""
    columns: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    validation_rows: int = 0
    """Rows of evaluation: held out of the training data (and not counted in `rows`), or of their own sources."""
    texts: int = 0
    """Rows of the training sources before texts are joined, held-out ones included: what data.validation_rows is a share of."""
    held_out_texts: int = 0
    """`validation_rows` before texts are joined."""
