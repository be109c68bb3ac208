"""Summaries: speed, splits and estimates."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import split_rows
from trainwiz.core.data.summary import SAMPLE_ROWS, summarize_data

from tests.core.data.builders import config_for, summary_of, write

REPOSITORY = Path(__file__).resolve().parents[3]


def test_held_out_rows_are_not_counted_as_training_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "MKT\n" * 300)
    config = config_for(path)
    for wanted, held in ((None, 3), (0, 0), (50, 50), (400, 150)):
        config.data.validation_rows = wanted
        summary = summarize_data(config)
        assert (summary.rows, summary.validation_rows) == (300 - held, held)


def test_validation_sources_are_checked_and_counted(tmp_path: Path) -> None:
    config = RunConfig.model_validate(
        {
            "data": {
                "sources": [{"name": str(write(tmp_path / "a.txt", "MKT\n" * 9))}],
                "validation_sources": [{"name": str(write(tmp_path / "b.txt", "MKT\n" * 4))}],
            }
        }
    )
    assert (summarize_data(config).rows, summarize_data(config).validation_rows) == (9, 4)


def test_a_large_parquet_file_is_sampled_over_its_whole_length(tmp_path: Path) -> None:
    rows = 6 * SAMPLE_ROWS
    path = tmp_path / "sorted.parquet"
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["M" * 5] * (rows // 2) + ["M" * 50] * (rows // 2)
    pq.write_table(pa.table({"sequence": texts}), path, row_group_size=5000)
    summary = summary_of(path)
    assert (summary.rows, summary.rows_exact) == (rows, True)
    assert {7, 52} == set(summary.lengths)


def test_split_is_a_function_of_the_seed(tmp_path: Path) -> None:
    train, held = split_rows(100, 10, 42)
    again = split_rows(100, 10, 42)
    assert (train.tolist(), held.tolist()) == (again[0].tolist(), again[1].tolist())
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(100))
    assert split_rows(100, 10, 43)[1].tolist() != held.tolist()
