"""Profiles by name and by file: what extends what, the user's own, and each mistake with its line."""

from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.profile.read import validate_profiles
from trainwiz.core.profile.store import (
    current_profile,
    diff_profiles,
    list_profiles,
    load_profile,
    use_profile,
    user_folder,
)

from tests.each import each


def own(name: str, text: str) -> Path:
    """Write a profile into the user's folder."""
    folder = user_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def messages(name: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load_profile(name)
    return [finding.message for finding in caught.value.findings]


def test_own_profile_extends_a_built_in_one() -> None:
    own("guide", "extends: 2080super-guide\n")
    assert load_profile("2080super-guide").claims and load_profile("guide").claims == {}
    own(
        "mine",
        "extends: 2080super\nvalues:\n  training:\n    max_steps: 10\n  engine:\n    environment: {NCCL_P2P_DISABLE: 1}\n"
        "hardware: {ram: 32G}\nreasons: {engine: {environment: {NCCL_P2P_DISABLE: no NVLink}}}\n",
    )
    profile, variable = load_profile("mine"), "engine.environment.NCCL_P2P_DISABLE"
    assert (profile.values[variable], profile.reasons[variable]) == ("1", "no NVLink")
    assert profile.origin == "user" and profile.extends == "2080super"
    assert profile.values["training.max_steps"] == 10 and profile.values["engine.checkpointing"] is True
    assert profile.hardware.gpu == "RTX 2080 Super" and profile.hardware.ram_bytes == 32 * 2**30
    assert "engine.checkpointing" in profile.reasons and "training.max_steps" not in profile.reasons
    assert "mine" in {each.name for each in list_profiles()}
    changes = [change.key for change in diff_profiles(load_profile("2080super"), profile)]
    assert sorted(changes) == [variable, "hardware.ram_bytes", "training.max_steps"]


MISTAKES = """descripton: x
hardware:
  gpus: RTX 3080
  ram: lots
  num_gpus: 0
values:
  engine:
    precison: fp16
    strategy: zero22
    environment: {NCCL_DEBUG: true}
  training:
    learning_rate: -1
  name: x
  data:
    sources:
      - {path: x}
reasons:
  engine.nothing: y
"""


def test_every_mistake_of_a_file_at_once_with_its_line() -> None:
    path = own("broken", MISTAKES)
    found = messages("broken")
    strategies = "must be one of single, ddp, fsdp, zero1, zero2, zero3. Did you mean zero2?"
    assert {message.removeprefix(f"{path}:") for message in found} == {
        "1: `descripton` is not a key of a profile. Did you mean description?",
        "3: `hardware.gpus` is not a key of a profile. Did you mean gpu?",
        "4: hardware.ram: invalid value 'lots'; must be a size. Example: 64G.",
        "5: hardware.num_gpus: invalid value 0; must be at least 1.",
        "8: 'engine.precison' is not a setting. Did you mean engine.precision or engine.base_precision?",
        f"9: engine.strategy: invalid value 'zero22'; {strategies}",
        "10: engine.environment.NCCL_DEBUG: must be text.",
        "12: training.learning_rate: invalid value -1; must be greater than 0.0.",
        "13: name belongs to one run; it is not allowed in a profile.",
        "15: data.sources.0.name is missing.",
        "15: 'data.sources.0.path' is not a setting.",
        "18: 'engine.nothing' is not a setting.",
    }
    assert [finding.message for finding in validate_profiles([path])] == found


@each(("text", "words"), [
    ("values:\n  a: [1, 2\n", "line 3, column 1: not valid YAML"),
    ("values:\n\ttraining: 1\n", "line 2, column 1: not valid YAML"),
    ("- a\n- b\n", "expected `key: value` lines"), ("", "expected `key: value` lines"),
    ("description: a\ndescription: b\n", "line 2, column 1: not valid YAML (duplicate key `description`, first on line 1; keep only one)"),
    ("values: !!python/object/apply:os.system ['touch pwned']\n", "line 1, column 9: not valid YAML"),
    ("extends: nothing-like-it\n", "Unknown profile 'nothing-like-it'."),
    ("extends: odd\n", "profiles extend each other in a cycle (odd -> odd)"), ("name: other\n", "the file name"),
    ("values: 3\n", "values: invalid value 3; must be a mapping."),
    ("extends: cpu-demo\nmodel: {name: x}\ntask: a\n", "odd.yaml:2: settings belong under `values:`. Move there: model, task."),
    ("name: cpu-demo\norigins: {}\n", "odd.yaml is of a run, not a profile."), ("profile: a\n", "`profile` is not a key of a profile"),
])  # fmt: skip
def test_broken_yaml_names_line_and_column(text: str, words: str) -> None:
    own("odd", text)
    found = messages("odd")
    assert len(found) == 1 and words in found[0]


def test_all_profiles_are_validated_at_once_each_mistake_with_its_line() -> None:
    second = own("second", "hardware:\n  gpu: RTX 309\nvalues:\n  model:\n    name: not a model\n")
    fourth = own("fourth", "extends: cpu-demo\nvalues:\n  model.architecture_overrides: {num_layer: 2}\n")
    third = own("third", "extends: cpu-demo\nvalues:\n  training.learning_rate: 1.0e-5\n")
    parent = own("parent", "values:\n  engine.precison: fp16\n")
    child = own("child", "extends: parent\n")
    odd, taken = own("odd", ""), own("2080super", "extends: cpu-demo\n")
    odd.write_bytes(b"description: \xff\xfe\n")
    assert "cpu-demo" in {profile.name for profile in list_profiles()}, "a broken file does not hide the others"
    assert load_profile("2080super").origin == "builtin"
    found = {finding.where: finding.message for finding in validate_profiles()}
    assert "Did you mean RTX 3090" in found[f"{second}:2"]
    assert "is not in the model catalog, not a Hub ID" in found[f"{second}:5"] and "num_layer" in found[f"{fourth}:3"]
    # The final rate comes from the parent; the line is that of the key above it that is in this file.
    ((place, message),) = [(where, text) for where, text in found.items() if "final_learning_rate" in text]
    assert place.startswith(f"{third}:") and message.startswith(place)
    assert f"{parent}:2" in found and f"`extends: parent`: {parent}:2:" in found[f"{child}:1"]
    assert "not UTF-8 text" in found[str(odd)] and found[str(taken)].endswith("rename this file.")
    assert len(found) == 8 and all(where in message for where, message in found.items())


def test_a_name_for_several_sizes_of_a_card_is_picked_by_memory_and_without_a_gpu_the_smallest() -> None:
    for gpu, name in (("RTX 3080 10GB", "3080-10g"), ("RTX 3080 20GB", "3080-12g"), ("RTX 3080 12GB", "3080-12g")):
        assert load_profile("3080", machine=catalogue_machine(gpu=gpu, num_gpus=1, ram_bytes=None)).name == name
    assert load_profile("3080", machine=Machine()).name == "3080-10g"


def test_use_keeps_the_rest_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".trainwiz.yaml"
    with pytest.raises(UsageError, match="Unknown profile"):
        use_profile("nothing", tmp_path)
    assert current_profile(tmp_path) is None and not file.exists()
    use_profile("3080-10g", tmp_path)
    assert current_profile(tmp_path) == "3080-10g"
    for before, after in (
        ("# notes\n'profile': 3080 # the demo\ntheme: dark\n", "# notes\ntheme: dark\nprofile: 2080super\n"),
        ("theme: dark\n", "theme: dark\nprofile: 2080super\n"),
    ):
        file.write_text(before)
        use_profile("2080super", tmp_path)
        assert file.read_text() == after
    file.write_text("profile: [\n")
    with pytest.raises(UsageError, match="line 2, column 1"):
        use_profile("cpu-demo", tmp_path)
    assert file.read_text() == "profile: [\n"
    # A file keeps its place.
    file.unlink()
    (tmp_path / "mine.yaml").write_text("extends: cpu-demo\n")
    monkeypatch.chdir(tmp_path)
    use_profile("./mine.yaml", tmp_path)
    monkeypatch.chdir("/")
    assert load_profile(current_profile(tmp_path) or "").extends == "cpu-demo"
