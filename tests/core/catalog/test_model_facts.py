"""ModelFacts: bytes on disk, where the weights are, and the licence, from folders as they are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.catalog import models as model_facts
from trainwiz.core.catalog.hub import HubModel, license_of
from trainwiz.core.catalog.models import load_models, read_model_facts

from tests.each import each


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"0" * 300)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"0" * 200)
    (tmp_path / "pytorch_model.bin").write_bytes(b"0" * 5000)
    (tmp_path / "optimizer.pt").write_bytes(b"0" * 9000)
    return tmp_path


def test_weights_are_counted_once(folder: Path) -> None:
    spec = replace(load_models()["esm2-tiny"], source="folder", path=folder)
    facts = read_model_facts(spec)
    assert (facts.weights_bytes, facts.weights_folder, facts.download_bytes) == (500, folder, None)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert read_model_facts(spec).weights_bytes == 5000


@each(
    ("readme", "licence"),
    [
        ("---\nlicense: apache-2.0\ntags:\n- x\n---\n# Title\n", "apache-2.0"),
        ('---\nlanguage: zh\nlicense: "mit"\n---\n', "mit"),
        ("---\nlicense: other\nlicense_name: qwen-research\n---\n", "qwen-research"),
        ("---\nlicense: other\n---\n", "other"),
        ("# No block\nlicense: mit\n", None),
        ("---\nnever: closed\nlicense: mit\n", None),
        ("\x00\xff" * 70_000, None),
        ("", None),
    ],
)
def test_the_licence_of_a_model_card(folder: Path, readme: str, licence: str | None) -> None:
    (folder / "README.md").write_text(readme, encoding="latin-1")
    assert read_model_facts(replace(load_models()["esm2-tiny"], path=folder)).license == licence


def test_the_catalogue_knows_licences_and_the_card_beside_the_weights_counts_more(folder: Path) -> None:
    known = load_models()
    assert read_model_facts(known["nllb-600m"]).license == "cc-by-nc-4.0"
    assert read_model_facts(known["esm2-tiny"]).license is None
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    assert read_model_facts(replace(known["nllb-600m"], path=folder)).license == "mit"


def test_a_model_that_only_the_hub_has(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = HubModel("there", {"model.safetensors": 700, "README.md": 3}, False, "mit")
    asked: list[str] = []
    monkeypatch.setattr(model_facts, "ask_hub", lambda hub_id: asked.append(hub_id) or answer)
    spec = replace(load_models()["gpt2-tiny"], source="hub", hub_id="someone/nothing-here")
    facts = read_model_facts(spec)
    assert (facts.weights_bytes, facts.download_bytes, facts.license) == (None, 700, "mit")
    read_model_facts(replace(spec, source="catalogue"))
    assert asked == ["someone/nothing-here"], "a model of the catalogue needs no question"


def test_a_folder_that_vanishes_is_no_failure(tmp_path: Path) -> None:
    facts = read_model_facts(replace(load_models()["esm2-tiny"], path=tmp_path / "gone"))
    assert (facts.weights_bytes, facts.weights_folder, facts.license) == (None, None, None)


def test_the_tags_of_the_hub() -> None:
    assert license_of({"tags": ["pytorch", "license:mit", "license:other"]}) == "mit"
    assert license_of({"tags": [1, None]}) is None and license_of({"tags": "license:mit"}) is None
