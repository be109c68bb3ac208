"""The same rows come out of every format; WebDataset shards; what a parquet file holds in memory while it is read."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainwiz.core.data import parquet as parquet_module
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.parquet import ParquetReader
from trainwiz.core.data.streamed import CopiedPart, PlacedPart, StreamedTexts
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

from tests.core.data.builders import PROTEINS, config_of, fasta_text, parquet, summary_of, write
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


def shard(path: Path, members: dict[str, str | bytes], mode: str = "w", kind: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, mode, format=kind) as tar:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def rows(path: Path, folder: Path, *, streaming: bool, **source: object) -> tuple[list[str], list[str] | None]:
    task = "seq2seq" if "target_column" in source else "causal-lm"
    config = config_of(task, {"name": str(path), **source}, streaming=streaming, validation_rows=0)
    found = load_text_rows(config, folder)
    return list(found.texts), None if found.targets is None else list(found.targets)


SAMPLES: dict[str, str | bytes] = {
    name: content
    for n in range(120)
    for name, content in {
        f"a/{n:04}.jpg": b"\xff\xd8" + bytes(n),
        f"a/{n:04}.txt": f" text {n} 你好 ",
        f"a/{n:04}.json": json.dumps({"caption": f"caption {n}", "size": {"w": n, "title": f"title {n}"}}),
    }.items()
}


@each("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@each("packed", [False, True])
def test_rows_are_the_samples_in_memory_and_streamed(tmp_path: Path, packed: bool, kind: int) -> None:
    name = f"{'very long folder ' * 12 if kind != tarfile.USTAR_FORMAT else 'b'}/"
    members = {name + key: value for key, value in SAMPLES.items()}
    path = shard(tmp_path / f"a.tar{'.gz' * packed}", members, "w:gz" if packed else "w", kind)
    expected = [f"text {n} 你好" for n in range(120)], [f"title {n}" for n in range(120)]
    for streaming in (False, True):
        found = rows(path, tmp_path, streaming=streaming, text_column="txt", target_column="json.size.title")
        assert found == expected
    names = {column.name: column.is_text for column in open_reader(path).columns}
    assert names == {"jpg": False, "txt": True, "json.caption": True, "json.size.w": False, "json.size.title": True}
    assert open_reader(path).head(2)[1] == (None, " text 1 你好 ", "caption 1", None, "title 1")


def test_a_field_of_lines_has_a_row_on_each(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"prompt": f"p{n}", "response": f"r{n}"}) + "\n" for n in range(30))
    path = shard(tmp_path / "a.tar", {"x.jsonl": lines, "y.jsonl": "\n" + lines[:-1]})
    for streaming in (False, True):
        texts, targets = rows(
            path, tmp_path, streaming=streaming, text_column="jsonl.prompt", target_column="jsonl.response"
        )
        assert texts == [f"p{n}" for n in range(30)] * 2 and targets == [f"r{n}" for n in range(30)] * 2


def test_streamed_rows_of_shards_are_read_in_place_unless_they_are_packed(tmp_path: Path) -> None:
    for name, part in (("a.tar", PlacedPart), ("a.tar.gz", CopiedPart)):
        shard(tmp_path / name, SAMPLES, "w:gz" if part is CopiedPart else "w")
        source = {"name": name, "text_column": "txt", "target_column": "json.caption"}
        found = load_text_rows(config_of("seq2seq", source, streaming=True), tmp_path).texts
        assert isinstance(found, StreamedTexts) and [type(one) for one in found.rows.parts] == [part]


def test_names_that_climb_are_keys_and_a_sample_without_the_field_is_an_empty_row(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {"../../evil.txt": "one", "/etc/passwd.txt": "two", "no_dot": "x", ".hidden": "y"})
    before = sorted(tmp_path.rglob("*"))
    assert rows(path, tmp_path, streaming=False)[0] == ["one", "two"]
    assert sorted(tmp_path.rglob("*")) == before
    path = shard(tmp_path / "a.tar", {"1.txt": "one", "2.json": "{}", "3.txt": "three"})
    for streaming in (False, True):
        assert rows(path, tmp_path, streaming=streaming)[0] == ["one", "three"]


def _damaged(at: int, found: bytes) -> bytes:
    return found[:at] + bytes([found[at] ^ 1]) + found[at + 1 :]


def test_what_is_no_tar_or_half_of_one_is_one_sentence(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", SAMPLES, kind=tarfile.USTAR_FORMAT)
    tar = path.read_bytes()
    unpacked = gzip.compress(tar, 0)
    damages = [
        b"no tar at all" * 100,
        tar[: 512 * 201 + 7],
        # At the end of a member: the library takes what is there for all.
        tar[: 512 * 200],
        # A letter of a name in the middle, where the library silently ends.
        _damaged(512 * 200 + 2, tar),
    ]
    # The last: one letter of a text, which only the checksum of gzip knows.
    packed = [unpacked[: len(unpacked) // 2], _damaged(unpacked.index(b"text 40"), unpacked)]
    for damaged in (*damages, *map(gzip.compress, damages), *packed):
        path.write_bytes(damaged)
        for streaming in (False, True):
            with pytest.raises(UsageError, match=r"a\.tar is not a whole tar file"):
                rows(path, tmp_path, streaming=streaming, text_column="txt")


def test_archives_after_one_another_and_gzip_in_pieces_are_read_to_the_end(tmp_path: Path) -> None:
    first, second = (
        shard(tmp_path / name, {f"{name}{n}.txt": f"{name} {n}" for n in range(40)}).read_bytes() for name in "ab"
    )
    expected = [f"{name} {n}" for name in "ab" for n in range(40)]
    whole = first + second
    (tmp_path / "both.tar").write_bytes(whole)
    (tmp_path / "both.tar.gz").write_bytes(
        b"".join(gzip.compress(whole[at : at + 3000]) for at in range(0, len(whole), 3000))
    )
    for name in ("both.tar", "both.tar.gz"):
        for streaming in (False, True):
            assert rows(tmp_path / name, tmp_path, streaming=streaming)[0] == expected


def test_a_sample_with_a_file_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for text in (b"one", b"two"):
            member = tarfile.TarInfo("x/1.txt")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    with pytest.raises(UsageError, match=r"a\.tar, file x/1\.txt in it: a file of this sample is there twice"):
        rows(path, tmp_path, streaming=True)


def test_json_that_is_none_and_text_that_is_not_utf8(tmp_path: Path) -> None:
    for name, members, words in (
        ("a", {"1.json": '{"text": "a"}', "2.json": "{half"}, r"a\.tar, file 2\.json in it is not JSON"),
        ("b", {"1.txt": "fine", "2.txt": b"\xff\xfe"}, r"b\.tar, row 2: the text is not UTF-8"),
    ):
        with pytest.raises(UsageError, match=words):
            rows(shard(tmp_path / f"{name}.tar", members), tmp_path, streaming=True)
