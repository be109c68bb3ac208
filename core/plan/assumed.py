"""Rows that are not here to count, taken from the limits that the sources name."""

from __future__ import annotations

from trainwiz.core.config import RunConfig
from trainwiz.core.data.joining import joins_texts
from trainwiz.core.data.split import held_out_count
from trainwiz.core.data.summary import DataSummary


def assumed_rows(config: RunConfig) -> DataSummary | None:
    """A summary of rows alone, where every source has a `max_rows`; an upper bound, so `rows_exact` is False.

    None where a source has no limit, and for joined texts, whose number of sequences no limit says.
    """
    if joins_texts(config):
        return None
    rows = _limit([source.max_rows for source in config.data.sources])
    if rows is None:
        return None
    if config.data.validation_sources:
        validation = _limit([source.max_rows for source in config.data.validation_sources]) or 0
        return DataSummary(rows=rows, rows_exact=False, lengths=(), validation_rows=validation)
    held = held_out_count(rows, config.data)
    return DataSummary(rows=rows - held, rows_exact=False, lengths=(), validation_rows=held)


def _limit(limits: list[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(limits) else None
