"""WebDataset shards: samples of texts and JSON in tar files."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.streamed import CopiedPart, PlacedPart, StreamedTexts
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

from tests.each import each


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
    found = load_text_rows(
        RunConfig.model_validate(
            {
                "task": task,
                "data": {"sources": [{"name": str(path), **source}], "streaming": streaming, "validation_rows": 0},
            }
        ),
        folder,
    )
    return list(found.texts), None if found.targets is None else list(found.targets)


SAMPLES: dict[str, str | bytes] = {
    name: content
    for n in range(250)
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
    expected = [f"text {n} 你好" for n in range(250)], [f"title {n}" for n in range(250)]
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
        config = RunConfig.model_validate({"task": "seq2seq", "data": {"sources": [source], "streaming": True}})
        found = load_text_rows(config, tmp_path).texts
        assert isinstance(found, StreamedTexts) and [type(one) for one in found.rows.parts] == [part]


def test_names_that_climb_are_keys_and_no_paths(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {"../../evil.txt": "one", "/etc/passwd.txt": "two", "no_dot": "x", ".hidden": "y"})
    before = sorted(tmp_path.rglob("*"))
    assert rows(path, tmp_path, streaming=False)[0] == ["one", "two"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sample_without_the_field_is_an_empty_row(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {"1.txt": "one", "2.json": "{}", "3.txt": "three"})
    for streaming in (False, True):
        assert rows(path, tmp_path, streaming=streaming)[0] == ["one", "three"]


def _damaged(at: int, found: bytes) -> bytes:
    return found[:at] + bytes([found[at] ^ 1]) + found[at + 1 :]


@each("packed", [False, True])
@each(
    "damage",
    [
        lambda tar: b"no tar at all" * 100,
        lambda tar: tar[: 512 * 201 + 7],
        # At the end of a member: the library takes what is there for all.
        lambda tar: tar[: 512 * 200],
        # A letter of a name in the middle, where the library silently ends.
        lambda tar: _damaged(512 * 200 + 2, tar),
    ],
)
def test_what_is_no_tar_or_half_of_one_is_one_sentence(
    tmp_path: Path, damage: Callable[[bytes], bytes], packed: bool
) -> None:
    path = shard(tmp_path / "a.tar", SAMPLES, kind=tarfile.USTAR_FORMAT)
    damaged = damage(path.read_bytes())
    path.write_bytes(gzip.compress(damaged) if packed else damaged)
    for streaming in (False, True):
        with pytest.raises(UsageError, match=r"a\.tar is not a whole tar file"):
            rows(path, tmp_path, streaming=streaming, text_column="txt")


def test_gzip_that_is_cut_off_or_changed_by_the_way_is_one_sentence(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", SAMPLES)
    packed = gzip.compress(path.read_bytes(), 0)
    # The second: one letter of a text, which only the checksum of gzip knows.
    for damaged in (packed[: len(packed) // 2], _damaged(packed.index(b"text 100"), packed)):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match=r"a\.tar is not a whole tar file"):
            rows(path, tmp_path, streaming=False, text_column="txt")


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
    path = shard(tmp_path / "a.tar", {"1.json": '{"text": "a"}', "2.json": "{half"})
    with pytest.raises(UsageError, match=r"a\.tar, file 2\.json in it is not JSON"):
        rows(path, tmp_path, streaming=True)
    path = shard(tmp_path / "b.tar", {"1.txt": "fine", "2.txt": b"\xff\xfe"})
    with pytest.raises(UsageError, match=r"b\.tar, row 2: the text is not UTF-8"):
        rows(path, tmp_path, streaming=True)
