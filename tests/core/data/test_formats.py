"""The same rows come out of every format; what a parquet file holds in memory while it is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from trainwiz.core.data import parquet as parquet_module
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.parquet import ParquetReader

from tests.core.data.builders import PROTEINS, fasta_text, parquet, summary_of, write

LENGTHS = tuple(len(protein) + 2 for protein in PROTEINS)


def _files(folder: Path) -> dict[str, Path]:
    ids = [f"p{i}" for i in range(len(PROTEINS))]
    table = [f"{i},{s}" for i, s in zip(ids, PROTEINS, strict=True)]
    rows = "\n".join(json.dumps({"id": i, "sequence": s}) for i, s in zip(ids, PROTEINS, strict=True))
    return {
        "parquet": parquet(folder / "a.parquet", id=ids, sequence=PROTEINS),
        "fasta": write(folder / "a.fasta", fasta_text()),
        "fasta.gz": write(folder / "a.fa.gz", fasta_text()),
        "csv": write(folder / "a.csv", "\n".join(["id,sequence", *table])),
        "csv with CRLF and a byte order mark": write(folder / "b.csv", "\ufeff" + "\r\n".join(["id,sequence", *table])),
        "tsv": write(folder / "a.tsv", "\n".join(["id,sequence", *table]).replace(",", "\t")),
        "jsonl": write(folder / "a.jsonl", rows),
        "jsonl.gz": write(folder / "b.jsonl.gz", rows),
        "txt": write(folder / "a.txt", "\n".join(PROTEINS) + "\n\n"),
    }


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    for kind, path in _files(tmp_path).items():
        summary = summary_of(path)
        assert (summary.rows, summary.rows_exact, summary.lengths) == (len(PROTEINS), True, LENGTHS), kind


def test_a_folder_of_parts_is_one_source_and_its_readme_is_left_aside(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    (folder / "sub").mkdir(parents=True)
    parquet(folder / "1.parquet", sequence=PROTEINS[:1])
    parquet(folder / "sub" / "2.parquet", sequence=PROTEINS[1:])
    write(folder / "README.txt", "not a protein 123\n")
    assert summary_of(folder).lengths == LENGTHS


def test_columns_by_position_in_a_file_without_header(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", "Hi there.\tMKT\nBye now!\tGAVL\n")
    assert summary_of(path, text_column=1).lengths == (5, 6)
    assert summary_of(write(tmp_path / "named.tsv", "note\tprotein\nx\tMKT\n"), text_column=1).lengths == (5,)


def test_quotes_in_a_tsv_are_letters_and_in_a_csv_they_join_lines(tmp_path: Path) -> None:
    tsv = open_reader(write(tmp_path / "q.tsv", 'text\n"Hello" she said\nplain\n'))
    assert [row[0] for row in tsv.head(5)] == ['"Hello" she said', "plain"]
    csv = open_reader(write(tmp_path / "q.csv", 'text,n\n"two\nlines",1\nplain,2\n'))
    batch = next(csv.batches([0]))
    assert batch.values[0].to_pylist() == ["two\nlines", "plain"]
    assert batch.positions.tolist() == [3, 4]


def test_content_decides_where_the_name_says_nothing(tmp_path: Path) -> None:
    assert summary_of(write(tmp_path / "proteins", fasta_text())).rows == len(PROTEINS)
    assert summary_of(write(tmp_path / "proteins.dat", "\n".join(PROTEINS)), format="txt").rows == len(PROTEINS)


MB = 1 << 20


def _letters(size: int) -> str:
    return np.random.default_rng(size).integers(97, 123, size, np.uint8).tobytes().decode()


def test_a_large_row_group_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    text = _letters(40 * MB)
    rows = pa.array([text[at : at + 1000] for at in range(0, len(text), 1000)])
    pq.write_table(pa.table({"text": rows}), tmp_path / "a.parquet", use_dictionary=False)
    del rows
    reader = ParquetReader(tmp_path / "a.parquet")
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in reader.batches([0]))
    assert most < 25 * MB


def test_a_text_that_is_stored_once_for_many_rows_makes_batches_of_few_rows(tmp_path: Path) -> None:
    """4,096 rows of the same 100 KB were one batch, for the file is small."""
    documents = [_letters(100_000 + number) for number in range(3)]
    table = pa.table({"text": pa.array([documents[n // 400 % 3] for n in range(1200)])})
    pq.write_table(table, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < MB
    reader = ParquetReader(tmp_path / "a.parquet")
    sizes = [(len(batch.positions), batch.values[0].nbytes) for batch in reader.batches([0])]
    assert sum(rows for rows, _ in sizes) == 1200
    assert max(size for _, size in sizes) < 1.5 * parquet_module.BATCH_BYTES
