"""Labels as files hold them: names of classes in parquet, lists of tags in all their forms, CoNLL."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.data.detect import detect_columns
from trainwiz.core.data.summary import summarize_data
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError

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
    labels = summarize_data(config, tmp_path).labels
    assert labels is not None and dict(labels.train) == {"B-LOC": 4, "I-LOC": 4, "O": 4} and labels.exact


@each(
    ("name", "text", "said"),
    [
        ("a.csv", "tokens,tags\na b,O\n", "line 2: the row has 2 words and 1 tags"),
        ("a.csv", 'tokens,tags\n"[1, {}]",O\n', "is not a list of words or tags"),
        ("a.conll", "one O\n\nalone\n", "line 3: the line has one word and no tag"),
    ],
)
def test_rows_whose_tags_do_not_fit(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        load_text_rows(config_of(tmp_path / name, "token-classification"), tmp_path)


def test_numbers_of_classes_have_the_names_that_datasets_keeps(tmp_path: Path) -> None:
    named = {"_type": "ClassLabel", "names": ["bad", "good"]}
    about = {"info": {"features": {"label": named, "tags": {"_type": "List", "feature": named}}}}
    columns = {
        "text": ["a", "b", "c"],
        "label": [1, 0, -1],
        "words": [["x"], ["y", "z"], ["w"]],
        "tags": [[1], [0, 1], [0]],
    }
    table = pa.table(columns).replace_schema_metadata({b"huggingface": json.dumps(about).encode()})
    pq.write_table(table, tmp_path / "rows.parquet")
    labels = summarize_data(config_of(tmp_path / "rows.parquet", "sequence-classification"), tmp_path).labels
    # A row of -1 has no class.
    assert labels is not None and dict(labels.train) == {"bad": 1, "good": 1}
    tags = summarize_data(config_of(tmp_path / "rows.parquet", "token-classification"), tmp_path).labels
    assert tags is not None and dict(tags.train) == {"bad": 2, "good": 2}


@each("label", [3, True, "three"])
def test_labels_that_are_numbers_in_json(label: object, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"note": "x", "label": label}) + "\n")
    rows = load_text_rows(config_of(tmp_path / "rows.jsonl", "sequence-classification"), tmp_path)
    assert rows.targets is not None and rows.targets[0] == (label if isinstance(label, str) else json.dumps(label))
