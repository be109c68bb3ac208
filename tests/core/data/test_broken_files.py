"""Each broken input ends in one sentence that names the file, the place and what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from trainwiz.core.data import rows, sources
from trainwiz.core.errors import UsageError

from tests.core.data.builders import PROTEINS, fasta_text, parquet, summary_of, write
from tests.each import each


def _messages(*paths: Path | str, **source: object) -> list[str]:
    with pytest.raises(UsageError) as caught:
        summary_of(*paths, **source)
    messages = [finding.message for finding in caught.value.findings]
    assert all("\n" not in message and "Traceback" not in message for message in messages)
    return messages


def _message(*paths: Path | str, **source: object) -> str:
    messages = _messages(*paths, **source)
    assert len(messages) == 1, messages
    return messages[0]


def test_empty_files(tmp_path: Path) -> None:
    assert "is empty (0 bytes)" in _message(write(tmp_path / "a.csv", ""))
    assert "holds no rows" in _message(write(tmp_path / "b.csv", "id,sequence\n"))
    assert "all 2 rows" in _message(write(tmp_path / "d.csv", "id,sequence\na,\nb,\n"))


def test_damaged_page_of_a_parquet_file(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", sequence=PROTEINS * 100)
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)
    assert "not a complete parquet file" in _message(path)


def test_truncated_and_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(fasta_text(PROTEINS * 500).encode())
    short = tmp_path / "short.fasta.gz"
    short.write_bytes(whole[: len(whole) // 2])
    assert "gzip data ends in the middle" in _message(short)
    broken = tmp_path / "broken.fasta.gz"
    broken.write_bytes(whole[:30] + b"\x00" * 40 + whole[70:])
    assert "gzip data is damaged" in _message(broken)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.fasta"])
def test_not_utf8_names_the_line(tmp_path: Path, name: str) -> None:
    lines = {
        "a.txt": b"MKT\nM\xffT\n",
        "a.csv": b"sequence\nM\xffT\n",
        "a.jsonl": b'{"sequence": "MKT"}\n{"sequence": "M\xffT"}\n',
        "a.fasta": b">a\nMK\xff\n",
    }
    assert f"{name}, line 2: the text is not UTF-8 (byte 0xff)" in _message(write(tmp_path / name, lines[name]))


def test_not_utf8_in_parquet_names_the_row(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", sequence=[b"MKT", b"M\xffT"])
    assert "a.parquet, row 2: the text is not UTF-8 (byte 0xff)" in _message(path)


def test_j_is_read_as_unknown_with_a_warning(tmp_path: Path) -> None:
    summary = summary_of(write(tmp_path / "a.txt", "MKJJT\n"))
    assert [finding.severity for finding in summary.findings] == ["warning"]
    assert "2 letters J" in summary.findings[0].message


def test_lfs_pointer_and_web_page(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    assert "Git LFS pointer" in _message(write(tmp_path / "a.parquet", pointer))
    assert "web page" in _message(write(tmp_path / "b.csv", "<!DOCTYPE html><html></html>"))


def test_folder_without_data_and_with_two_formats(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert "it is empty" in _message(tmp_path / "none")
    write(tmp_path / "none" / "x.bin", "1")
    assert ".bin" in _message(tmp_path / "none")
    (tmp_path / "two").mkdir()
    write(tmp_path / "two" / "a.csv", "sequence\nMKT\n")
    write(tmp_path / "two" / "a.jsonl", '{"sequence": "MKT"}\n')
    assert "several formats" in _message(tmp_path / "two")
    assert summary_of(tmp_path / "two", format="csv").rows == 1


def test_text_before_the_first_header_is_no_fasta(tmp_path: Path) -> None:
    assert "line 1: text stands before the first '>'" in _message(write(tmp_path / "a.fasta", "MKT\n"))


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "proteins.csv", "sequence\nMKT\n")
    assert "'proteins.csv'" in _message(tmp_path / "protein.csv")
    assert "'sample-proteins'" in _message("sample-protein")


def test_all_broken_sources_are_named_at_once(tmp_path: Path) -> None:
    empty = write(tmp_path / "a.csv", "")
    missing = tmp_path / "gone.parquet"
    letters = write(tmp_path / "b.txt", "MK1\n")
    messages = _messages(empty, missing, letters)
    assert len(messages) == 3
    assert all(path.name in message for path, message in zip((empty, missing, letters), messages, strict=True))


def test_unreadable_file_is_a_sentence(tmp_path: Path) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    assert "loop.csv" in _message(loop)


def test_of_many_broken_files_some_are_named_and_the_others_counted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(rows.NAMED_FILES + 7):
        write(tmp_path / "data" / f"{number:03}.fasta", "")
    messages = _messages(tmp_path / "data")
    assert len(messages) == rows.NAMED_FILES + 1
    assert sum("is empty (0 bytes)" in message for message in messages) == rows.NAMED_FILES
    assert any(message.startswith("7 more files of ") for message in messages)


def test_a_folder_of_everything_is_not_searched_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_ENTRIES", 3)
    (tmp_path / "data").mkdir()
    for number in range(4):
        write(tmp_path / "data" / f"{number}.fasta", fasta_text(PROTEINS))
    assert "more than 3 files and folders" in _message(tmp_path / "data")


def test_rows_so_long_that_no_sample_meets_the_beginning_of_one_are_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "long.txt", "M" * (12 << 20))
    assert summary_of(path).texts == 1
    write(path, ("M" * (12 << 20) + "\n") * 6)
    assert 4 <= summary_of(path).texts <= 9


def test_a_link_to_itself_is_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "loop.fasta"
    path.symlink_to(path)
    assert "no data at" in _message(path)
    assert "no data at" in _message(Path("~nobody-of-that-name/rows.csv"))


@each(
    ("name", "text", "place"),
    [
        ("a.fasta", ">a\nMKT\n>b\n\nMKTA\nMK;T\n", "line 3"),
        ("b.fasta", ">a\nMKT\nM\u00e9T\n", "line 1"),
        ("a.txt", "MKT\n\nMK;T\n", "line 3"),
        ("a.csv", "id,sequence\n1,MKT\n\n2,MK;T\n", "line 4"),
        ("a.jsonl", '{"sequence": "MKT"}\n\n{"sequence": "MK;T"}\n', "line 3"),
    ],
)
def test_a_letter_outside_the_alphabet_is_named_with_the_line_of_its_row(
    tmp_path: Path, name: str, text: str, place: str
) -> None:
    assert f"{name}, {place}: letters outside" in _message(write(tmp_path / name, text.encode()))


def test_parquet_under_another_name(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", sequence=PROTEINS).rename(tmp_path / "a.csv")
    assert "is a parquet file, not csv" in _message(path)
