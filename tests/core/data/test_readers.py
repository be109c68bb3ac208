"""The same rows come out of every format."""

from __future__ import annotations

import json
from pathlib import Path

from trainwiz.core.data.formats import open_reader

from tests.core.data.builders import PROTEINS, fasta_text, parquet, summary_of, write
from tests.each import each

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


KINDS = [
    "parquet",
    "fasta",
    "fasta.gz",
    "csv",
    "csv with CRLF and a byte order mark",
    "tsv",
    "jsonl",
    "jsonl.gz",
    "txt",
]


@each("kind", KINDS)
def test_every_format_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    summary = summary_of(_files(tmp_path)[kind])
    assert (summary.rows, summary.rows_exact, summary.lengths) == (len(PROTEINS), True, LENGTHS)


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
