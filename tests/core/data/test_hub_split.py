"""Which files of a hub set are a split: by its card in every form that cards have, else by names."""

from __future__ import annotations

import pytest
from trainwiz.core.data.hub import SplitError, card_of, split_files

from tests.each import each

PARTS = [f"zh-en/train-{n:05d}-of-00003.parquet" for n in range(3)]
WMT = ["README.md", *PARTS, "zh-en/validation-00000-of-00001.parquet", "de-en/train-00000-of-00001.parquet"]
WMT_CARD = card_of(
    "---\nlanguage: [zh, en]\nconfigs:\n"
    "- config_name: de-en\n  data_files:\n  - split: train\n    path: de-en/train-*\n"
    "- config_name: zh-en\n  data_files:\n  - split: train\n    path: zh-en/train-*\n"
    "  - split: validation\n    path: zh-en/validation-*\n---\n# WMT\n"
)


def _problem(names: list[str], card: dict[str, object], split: str = "train", subset: str | None = None) -> str:
    with pytest.raises(SplitError) as caught:
        split_files("some/set", names, card, split, subset)
    return str(caught.value)


@pytest.mark.parametrize("card", [WMT_CARD, {}])
def test_the_card_and_the_names_give_the_same(card: dict[str, object]) -> None:
    assert list(split_files("wmt/wmt19", WMT, card, "train", "zh-en")) == PARTS
    assert split_files("wmt/wmt19", WMT, card, "validation", "zh-en") == (WMT[4],)
    assert "several subsets; choose one: de-en, zh-en" in _problem(WMT, card)
    assert "no split 'test'" in _problem(WMT, card, "test", "zh-en")


def test_a_subset_that_is_not_there_names_the_nearest() -> None:
    assert "did you mean 'zh-en'? (its subsets: de-en, zh-en)" in _problem(WMT, WMT_CARD, subset="zh_en")
    assert "no split 'train' of 'zh_en'" in _problem(WMT, {}, subset="zh_en")


@each(
    "data_files",
    [
        "data/a.jsonl",
        ["data/a.jsonl"],
        {"train": "data/a.jsonl"},
        {"train": ["data/*.jsonl"], "test": "x"},
        [{"split": "train", "path": ["./data/a.jsonl"]}],
    ],
)
def test_every_form_of_a_card(data_files: object) -> None:
    card = {"configs": [{"config_name": "default", "data_files": data_files}]}
    assert split_files("a/b", ["data/a.jsonl", "other.jsonl"], card, "train", None) == ("data/a.jsonl",)


@pytest.mark.parametrize("card", [{"configs": 7}, {"configs": ["x", {"config_name": "y"}]}, {"configs": None}])
def test_a_card_without_files_is_as_none(card: dict[str, object]) -> None:
    assert split_files("a/b", ["data.jsonl", "notes.txt"], card, "train", None) == ("data.jsonl",)


def test_a_card_never_makes_python_objects() -> None:
    assert card_of("---\na: !!python/object/apply:os.getcwd []\n---\n") == {}


def test_the_default_subset_and_its_folder() -> None:
    entries = [
        {"config_name": "small", "data_files": "a.csv", "data_dir": "s"},
        {"config_name": "large", "data_files": "a.csv", "data_dir": "l", "default": True},
    ]
    assert split_files("a/b", ["l/a.csv", "s/a.csv"], {"configs": entries}, "train", None) == ("l/a.csv",)
    assert split_files("a/b", ["l/a.csv", "s/a.csv"], {"configs": entries}, "train", "small") == ("s/a.csv",)


def test_words_inside_words_are_no_splits() -> None:
    names = ["training_notes.jsonl", "data/train-00000-of-00001.jsonl", "constraint/test.jsonl"]
    assert split_files("a/b", names, {}, "train", None) == (names[1],)
