"""Labels in every form that files hold them in, folders of parts, and parquet files in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.detect import detect_columns
from trainwiz.core.data.reader import ParquetReader
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

from tests.core.data.builders import PROTEINS, fasta_text, parquet, summary_of, write
from tests.each import each

BERT = {"model_type": "bert"}
LISTS = {
    "rows.jsonl": '{"tokens": ["New", "York", "is"], "ner_tags": ["B-LOC", "I-LOC", "O"]}\n' * 4,
    "quoted.csv": "tokens,ner_tags\n" + "\"['New', 'York', 'is']\",\"['B-LOC', 'I-LOC', 'O']\"\n" * 4,
    "blanks.csv": "tokens,tags\n" + "New York is,B-LOC I-LOC O\n" * 4,
    "rows.conll": "-DOCSTART- -X- O\n\n" + "New NNP B-LOC\nYork NNP I-LOC\nis VBZ O\n\n" * 4,
    "tabs.bio": "New\tB-LOC\nYork\tI-LOC\nis\tO\n\n" * 3 + "New\tB-LOC\nYork\tI-LOC\nis\tO",
}


def config_of(path: Path, task: str) -> RunConfig:
    values = {"task": task, "model.architecture": BERT, "data.sources.0.name": str(path), "data.validation_rows": 0}
    return detect_columns(RunConfig().with_values(values, "you"))


@each("name", list(LISTS))
def test_words_and_tags_in_every_form(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(LISTS[name])
    config = config_of(tmp_path / name, "token-classification")
    rows = load_text_rows(config, tmp_path)
    assert rows.targets is not None and len(rows.texts) == 4
    assert json.loads(rows.texts[3]) == ["New", "York", "is"]
    assert json.loads(rows.targets[3]) == ["B-LOC", "I-LOC", "O"]
    labels = summarize_data(config).labels
    assert labels is not None and dict(labels.train) == {"B-LOC": 4, "I-LOC": 4, "O": 4} and labels.exact


@each(("name", "text", "said"), [
    ("a.csv", "tokens,tags\na b,O\n", "line 2: the row has 2 words and 1 tags"),
    ("a.csv", 'tokens,tags\n"[1, {}]",O\n', "is not a list of words or tags"),
    ("a.conll", "one O\n\nalone\n", "line 3: the line has one word and no tag"),
])  # fmt: skip
def test_rows_whose_tags_do_not_fit(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        load_text_rows(config_of(tmp_path / name, "token-classification"), tmp_path)


def test_numbers_of_classes_have_the_names_that_datasets_keeps(tmp_path: Path) -> None:
    named = {"_type": "ClassLabel", "names": ["bad", "good"]}
    about = {"info": {"features": {"label": named, "tags": {"_type": "List", "feature": named}}}}
    columns = {"words": [["x"], ["y", "z"], ["w"]], "tags": [[1], [0, 1], [0]]}
    table = pa.table({"text": ["a", "b", "c"], "label": [1, 0, -1], **columns})
    named_table = table.replace_schema_metadata({b"huggingface": json.dumps(about).encode()})
    pq.write_table(named_table, tmp_path / "rows.parquet")
    # A row of -1 has no class.
    for task, count in (("sequence-classification", 1), ("token-classification", 2)):
        labels = summarize_data(config_of(tmp_path / "rows.parquet", task)).labels
        assert labels is not None and dict(labels.train) == {"bad": count, "good": count}


@each("label", [3, True, "three"])
def test_labels_that_are_numbers_in_json(label: object, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"note": "x", "label": label}) + "\n")
    rows = load_text_rows(config_of(tmp_path / "rows.jsonl", "sequence-classification"), tmp_path)
    assert rows.targets is not None and rows.targets[0] == (label if isinstance(label, str) else json.dumps(label))


LENGTHS = tuple(len(protein) + 2 for protein in PROTEINS)


def test_a_folder_of_parts_is_one_source_and_its_readme_is_left_aside(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    (folder / "sub").mkdir(parents=True)
    parquet(folder / "1.parquet", sequence=PROTEINS[:1])
    parquet(folder / "sub" / "2.parquet", sequence=PROTEINS[1:])
    write(folder / "README.txt", "not a protein 123\n")
    assert summary_of(folder).lengths == LENGTHS


def test_content_decides_where_the_name_says_nothing(tmp_path: Path) -> None:
    assert summary_of(write(tmp_path / "proteins", fasta_text([*PROTEINS, "MJj"]))).rows == len(PROTEINS) + 1
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
