"""From a file to its reader, and the samples that ship with trainwiz."""

from __future__ import annotations

import stat
from importlib.resources import files
from pathlib import Path

from trainwiz.core.config import DataSource
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.reader import ParquetReader, Reader, cannot_read, unreadable
from trainwiz.core.data.tables import ConllReader, DelimitedReader, FastaReader, JsonArrayReader
from trainwiz.core.data.text_file import GZIP_MAGIC, JsonLinesReader, TextFileReader, TextReader
from trainwiz.core.errors import UsageError
from trainwiz.core.files import open_file
from trainwiz.core.language import mark, tr

# The small data sets that ship with trainwiz.

SAMPLES: dict[str, str] = {
    "sample-proteins": "sample-proteins.fasta.gz",
    "sample-text": "sample-text.txt.gz",
    "sample-pairs": "sample-pairs.tsv.gz",
    "sample-chat": "sample-chat.jsonl.gz",
    "sample-reviews": "sample-reviews.csv.gz",
    "sample-names": "sample-names.jsonl.gz",
}
"""Name -> file in profiles/samples. Made by scripts/make_samples.py, without a licence of others."""

SAMPLES_OF: dict[RowKind, tuple[str, ...]] = {
    "proteins": ("sample-proteins",),
    "masked-lm": ("sample-text",),
    "causal-lm": ("sample-text", "sample-chat"),
    "seq2seq": ("sample-pairs", "sample-chat"),
    "sequence-classification": ("sample-reviews",),
    "token-classification": ("sample-names",),
}


def sample_words(kind: RowKind | None) -> str:
    """The samples that a run with such rows can learn from, for a sentence; all of them where that is not known."""
    return ", ".join(SAMPLES if kind is None else SAMPLES_OF[kind])


def sample_path(name: str) -> Path | None:
    """The file of a sample, or None when there is no sample of that name."""
    if name not in SAMPLES:
        return None
    return Path(str(files("trainwiz.profiles"))) / "samples" / SAMPLES[name]


# From a file to its reader: format by name or content, and what the file is not.

FORMATS: dict[str, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "fasta": (".fasta", ".fa", ".faa", ".fas"),
    "txt": (".txt", ".text"),
    "conll": (".conll", ".bio", ".iob", ".iob2"),
}
"""Format -> endings of its files; each may carry a further ".gz" except parquet."""


def file_endings() -> tuple[str, ...]:
    """The ends of the names of all files that can be read, in lower case."""
    return tuple(
        f"{ending}{packed}"
        for kind, endings in FORMATS.items()
        for ending in endings
        for packed in ("", ".gz")
        if not (packed and kind == "parquet")
    )


def format_of(path: Path) -> str | None:
    """The format that the file's name says, or None."""
    name = path.name.lower().removesuffix(".gz")
    return next((kind for kind, endings in FORMATS.items() if name.endswith(endings)), None)


PLAIN: dict[str | None, type[TextFileReader]] = {"fasta": FastaReader, "txt": TextReader, "conll": ConllReader}
NOT_TEXT: dict[bytes, str] = {
    b"PK\x03\x04": mark("a zip archive or an Excel file"),
    b"(\xb5/\xfd": mark("zstd data"),
    b"BZh": mark("bzip2 data"),
    b"\xfd7zXZ": mark("xz data"),
    b"ARROW1": mark("an Arrow (Feather) file"),
}
"""First bytes -> what the file is instead of text."""


def open_reader(path: Path, source: DataSource) -> Reader:
    """The reader for one file of a source, whose format overrides what the name says.

    Raises UsageError with one sentence for a file that is
    empty, missing, a Git LFS pointer, a web page, or of an unknown or damaged format.
    """
    where = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise unreadable(where, tr("is not a regular file (a pipe or a device?); save the data to a file first."))
        with open_file(path) as handle:
            start = handle.read(512)
    except OSError as error:
        raise cannot_read(path, error) from None
    if not start:
        raise unreadable(where, tr("is empty (0 bytes)."))
    if start.startswith(b"version https://git-lfs"):
        raise unreadable(
            where, tr("is a Git LFS pointer, not the data; run `git lfs pull` in the repository it came from.")
        )
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise unreadable(where, tr("is a web page, not data; download the file itself."))
    kind = source.format or format_of(path) or _format_by_content(start)
    if kind == "parquet":
        return ParquetReader(path)
    if start.startswith(b"PAR1"):
        raise unreadable(where, tr("is a parquet file, not {kind}; rename it or set its format to parquet.", kind=kind))
    archive = next((name for magic, name in NOT_TEXT.items() if start.startswith(magic)), None)
    if archive is not None:
        problem = tr("is {archive}, not a supported format; extract or convert it first.", archive=tr(archive))
        raise unreadable(where, problem)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise unreadable(where, tr("the text is UTF-16, not UTF-8; convert it, for example with `iconv -t UTF-8`."))
    if kind in ("csv", "tsv"):
        # Where all columns that are named are positions a file may have no header.
        named = [str(column) for column in (source.text_column, source.target_column) if column is not None]
        by_position = bool(named) and all(map(str.isdecimal, named))
        return DelimitedReader(path, "," if kind == "csv" else "\t", by_position)
    if kind == "jsonl":
        return JsonArrayReader(path) if _first_letter(path) == "[" else JsonLinesReader(path)
    if kind in PLAIN:
        return PLAIN[kind](path)
    known = ", ".join(endings[0] for endings in FORMATS.values())
    raise unreadable(
        where,
        tr(
            "the format cannot be detected from the name; set it, or use one of these extensions: {known}.", known=known
        ),
    )


def _first_letter(path: Path) -> str:
    """The first character that is no blank; empty where the start cannot be read, which the reader then explains."""
    try:
        with TextReader(path).text() as text:
            return text.read(4096).lstrip()[:1]
    except UsageError:
        return ""


def _format_by_content(start: bytes) -> str | None:
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b">") and not start.startswith(GZIP_MAGIC):
        return "fasta"
    return None
