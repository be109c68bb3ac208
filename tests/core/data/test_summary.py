"""Summaries: speed, splits and estimates."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.formats import SAMPLES, sample_path
from trainwiz.core.data.lengths import split_rows
from trainwiz.core.data.summary import SAMPLE_ROWS, summarize_data

from tests.core.data.builders import PROTEINS, config_for, parquet, summary_of, write

REPOSITORY = Path(__file__).resolve().parents[3]


def test_ten_thousand_rows_take_well_under_a_second(shared_data: Path) -> None:
    path = shared_data / "uniref90_10k.parquet"
    summary_of(path)
    start = time.perf_counter()
    summary = summary_of(path)
    assert time.perf_counter() - start < 0.5
    assert (summary.rows, summary.rows_exact, len(summary.lengths)) == (10_000, True, 10_000)
    assert sum(summary.lengths) / 10_000 == pytest.approx(337.4, abs=0.1)


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


def test_a_large_file_is_sampled_and_its_rows_estimated(tmp_path: Path) -> None:
    rows = 50 * SAMPLE_ROWS
    summary = summary_of(write(tmp_path / "a.txt", "MKTAYIAKQR\n" * rows))
    assert not summary.rows_exact
    assert summary.rows == pytest.approx(rows, rel=0.05)


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


def test_relative_paths_are_from_the_folder_that_is_given(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "\n".join(PROTEINS))
    assert summarize_data(config_for("a.txt"), tmp_path).rows == len(PROTEINS)


def test_split_is_a_function_of_the_seed(tmp_path: Path) -> None:
    train, held = split_rows(100, 10, 42)
    again = split_rows(100, 10, 42)
    assert (train.tolist(), held.tolist()) == (again[0].tolist(), again[1].tolist())
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(100))
    assert split_rows(100, 10, 43)[1].tolist() != held.tolist()


def test_the_samples_are_what_their_generator_makes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "scripts/make_samples.py", str(tmp_path)], check=True, cwd=REPOSITORY, capture_output=True
    )
    size = 0
    for name in SAMPLES:
        shipped = sample_path(name)
        assert shipped is not None
        size += shipped.stat().st_size
        assert gzip.decompress((tmp_path / shipped.name).read_bytes()) == gzip.decompress(shipped.read_bytes())
    assert size < 1_000_000
    assert summary_of("sample-proteins").rows == 2000


def test_pretraining_pairs_have_estimated_lengths(shared_data: Path) -> None:
    config = RunConfig.model_validate(
        {
            "task": "seq2seq",
            "data": {
                "sources": [{"name": str(shared_data / "tatoeba_zh_en.tsv"), "text_column": 1, "target_column": 0}],
                "validation_rows": 0,
            },
        }
    )
    summary = summarize_data(config)
    assert summary.length_unit == "tokens (estimated)"
    assert len(summary.lengths) == len(summary.target_lengths) > 1000


def test_parquet_of_dictionary_strings(tmp_path: Path) -> None:
    import pyarrow as pa

    path = parquet(tmp_path / "a.parquet", sequence=pa.array(PROTEINS).dictionary_encode())
    assert summary_of(path).rows == len(PROTEINS)
