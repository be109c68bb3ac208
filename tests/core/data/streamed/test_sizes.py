"""What streamed rows take on disk, as the plan says it and as it is."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.files import ROWS

from tests.core.data.builders import parquet, write
from tests.core.data.test_tar_shards import shard
from tests.each import each

TEXTS = [f"row {number} " + "some words of a text " * (number % 9) for number in range(3000)]


def _files(folder: Path, name: str) -> Path:
    if name.endswith(".parquet"):
        return parquet(folder / name, text=list(TEXTS))
    if name.endswith(".tar"):
        return shard(folder / name, {f"{n}.txt": text for n, text in enumerate(TEXTS)})
    quoted = name.startswith("quoted")
    return write(folder / name, "text\n" + "\n".join(f'"{text}"' if quoted else text for text in TEXTS))


@each("name", ["a.parquet", "a.tar", "a.txt", "a.tsv", "a.txt.gz", "quoted.csv"])
def test_the_index_takes_no_more_than_is_said(tmp_path: Path, name: str) -> None:
    source = {"name": str(_files(tmp_path, name))}
    config = RunConfig.model_validate({"task": "causal-lm", "data": {"sources": [source], "validation_rows": 20}})
    said = summarize_data(config, tmp_path)
    config.data.streaming = True
    load_text_rows(config, tmp_path)
    real = sum(path.stat().st_size for path in (tmp_path / ROWS).rglob("*") if path.is_file())
    tokens = 4 * (said.rows + said.validation_rows) * config.batch.sequence_length
    text_bytes = sum(map(len, TEXTS))
    assert real <= said.bytes_streamed - tokens + 2000
    copied = name in ("a.txt.gz", "quoted.csv")
    assert (real > text_bytes) == copied, "only what cannot be read in the middle is copied"
