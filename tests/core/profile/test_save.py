"""profiles save: the choices of a run, kept as a profile that means the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.core.config.build import build_config
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import UsageError
from trainwiz.core.profile.read import validate_profiles
from trainwiz.core.profile.save import SavedProfile, save_profile
from trainwiz.core.profile.store import load_profile, user_folder

from tests.each import each


def save(name: str, base: str | None = None, **overrides: Any) -> SavedProfile:
    return save_profile(name, PlanRequest(base, {key.replace("__", "."): value for key, value in overrides.items()}))


def refused(name: str, request: PlanRequest | None = None) -> list[str]:
    with pytest.raises(UsageError) as caught:
        save_profile(name, request or PlanRequest())
    return [finding.message for finding in caught.value.findings]


def written(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((user_folder() / f"{name}.yaml").read_text())
    return document


CHOICES: list[tuple[str | None, dict[str, Any]]] = [
    ("2080super", {"training.learning_rate": "2e-4", "engine.strategy": "single"}),
    ("4080s", {"data.sources.0.name": "sample-pairs", "data.sources.0.text_column": "source"}),
    ("lora-r64-3090", {"peft.targets": "q_proj,v_proj", "peft.rank": 8, "data.workers": "null"}),
    (None, {"model.name": "gpt2-medium", "task": "causal-lm", "data.sources": "sample-text"}),
    ("cpu-demo", {"model.architecture_overrides.num_hidden_layers": "2", "engine.environment.NCCL_DEBUG": "INFO"}),
]


@each(("base", "overrides"), CHOICES)
def test_a_saved_profile_is_the_config_that_the_choices_made(base: str | None, overrides: dict[str, Any]) -> None:
    meant = build_config(load_profile(base) if base else None, overrides)
    name = f"mine-{len(list(user_folder().glob('*')))}"
    saved = save_profile(name, PlanRequest(base, overrides))
    again = build_config(load_profile(name), {})
    skipped = {"name", "profile", "origins"}
    assert again.model_dump(exclude=skipped) == meant.model_dump(exclude=skipped)
    assert saved.extends == base and Path(saved.file) == user_folder() / f"{name}.yaml"
    assert validate_profiles([saved.file]) == []


def test_the_file_holds_what_differs_and_why() -> None:
    save_profile("mine", PlanRequest("2080super", {"batch.micro_batch_size": 4}, ram_bytes=32 * 2**30))
    document = written("mine")
    assert document["extends"] == "2080super" and document["hardware"] == {"ram": "32G"}
    assert document["values"] == {"batch": {"micro_batch_size": 4, "gradient_accumulation_steps": None}}
    save("rate", "2080super", training__learning_rate=1e-4)
    assert written("rate")["reasons"] == {"training.final_learning_rate": "same fraction of your peak learning rate"}
    assert load_profile("mine").hardware.gpu == "RTX 2080 Super"


def test_an_editor_finds_the_schema_and_the_file_keeps_to_it() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the extra mcp")
    saved = save("mine", "2080super", batch__micro_batch_size=4)
    first = Path(saved.file).read_text().splitlines()[0]
    schema = json.loads((Path(saved.file).parent / first.rpartition("$schema=")[2]).read_text())
    jsonschema.validate(written("mine"), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"values": {"training": {"epoch": 2}}}, schema)


def test_own_profiles_and_files_can_be_extended(tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text("extends: cpu-demo\nvalues: {training.seed: 3}\n")
    save("first", str(tmp_path / "theirs.yaml"), data__workers=1)
    assert load_profile("first").values["training.seed"] == 3
    save("second", "first", training__seed=7)
    profile = load_profile("second")
    assert (profile.values["data.workers"], profile.values["training.seed"]) == (1, 7)
    assert (profile.set_by["data.workers"], profile.set_by["training.seed"]) == ("first", "second")


def test_files_are_kept_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text("x\n")
    (tmp_path / "esm2-tiny").mkdir()
    save("mine", **{"data.sources.0.name": "rows.txt", "model.name": "esm2-tiny"})
    values = written("mine")["values"]
    assert values["data"]["sources"] == [{"name": str(tmp_path / "rows.txt")}]
    assert values["model"]["name"] == "esm2-tiny", "a catalogue name is one, whatever folders are there"


@each(("name", "words"), [
    ("2080super", "choose another name, for example my-2080super"),
    ("CPU-demo", "There already is a profile"), ("../up", "is not a valid profile name"),
    ("a b", "is not a valid profile name"), ("", "is not a valid profile name"),
    ("x" * 200, "is not a valid profile name"), ("mine.yaml", "is not a valid profile name"),
])  # fmt: skip
def test_names_that_are_refused(name: str, words: str) -> None:
    assert words in refused(name)[0]
    assert not user_folder().exists()


def test_nothing_is_overwritten() -> None:
    save("mine", "cpu-demo", data__workers=1)
    before = (user_folder() / "mine.yaml").read_bytes()
    assert "There already is a profile 'mine' (" in refused("mine")[0]
    assert "There already is a profile 'Mine' (" in refused("Mine")[0]
    (user_folder() / "other.yml").write_text("extends: cpu-demo\n")
    assert "already" in refused("other")[0]
    assert (user_folder() / "mine.yaml").read_bytes() == before
    assert sorted(path.name for path in user_folder().iterdir()) == ["mine.yaml", "other.yml"]


def test_everything_that_is_wrong_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"training.learning_rte": 1, "mode.dev_steps": 3, "batch.micro_batch_size": "many"}
    said = refused("2080super", PlanRequest(overrides=overrides, mode="smoke", gpu="RTX 309", num_gpus=0))
    for words in ("already is a profile", "--smoke belongs to one run", "mode.dev_steps belongs to one run",
                  "training.learning_rate", "batch.micro_batch_size: invalid value 'many'", "Did you mean RTX 3090",
                  "set 1 or more"):  # fmt: skip
        assert any(words in one for one in said), words
    assert "Did you mean 2080super" in refused("mine", PlanRequest("2080supr"))[0]
    by_hand = PlanRequest(gpu_memory_bytes=2**34, tflops=50)
    assert "GPU specifications entered manually are not allowed" in refused("mine", by_hand)[0]
    assert not user_folder().exists()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert "cannot be written" in refused("mine")[0]
