"""`trainwiz profiles ...` as a user meets it: words, JSON keys, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from trainwiz.core.errors import UsageError
from trainwiz.core.hardware import read
from trainwiz.core.hardware.machine import Libraries, Machine
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan import gather
from trainwiz.core.plan.gather import ProfileRow, plan_run
from trainwiz.core.plan.words import plan_command
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.store import user_folder
from trainwiz.tui.choices import request_from
from trainwiz.tui.cli import main
from trainwiz.tui.commands import profiles
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_views import profile_offers

pytestmark = pytest.mark.usefixtures("here")
GIB = 2**30


HERE = Machine(cpu_cores=4, ram_total_bytes=16 * GIB, ram_available_bytes=12 * GIB, disk_free_bytes=100 * GIB)
"""A machine without a GPU."""
ROWS: dict[tuple[str, str], ProfileRow] = {}


@pytest.fixture(autouse=True)
def _each_profile_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_row = gather._row

    def row_of(profile: Profile, machine: Machine) -> ProfileRow:
        key = profile.name, repr(machine)
        row = ROWS.get(key) or plan_row(profile, machine)
        if row.origin == "builtin":
            ROWS[key] = row
        return row

    monkeypatch.setattr(gather, "_row", row_of)
    monkeypatch.setattr(read, "probe_machine", lambda *folder: HERE)


def listed(capsys: pytest.CaptureFixture[str], *words: str, guides: bool = False) -> list[str]:
    """The names in the list, from the top."""
    profiles.run_list(as_json=False, words=words, guides=guides)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.removeprefix("▸ ").split() for line in lines if line.endswith(("trainwiz", " you"))]
    return [row[0] for row in rows]


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    profiles.run_list(as_json=True)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    keys = {"name", "gpu", "model", "task", "effective_samples", "effective_tokens", "fits_here", "origin"}
    assert all(keys <= set(row) for row in rows.values())
    assert (rows["2080super"]["effective_samples"], rows["2080super"]["effective_tokens"]) == (3906, 1_999_872)
    assert rows["2080super"]["gpu"] == "RTX 2080 Super" and rows["cpu-demo"]["gpu"] is None
    assert rows["cpu-demo"]["origin"] == "builtin" and {"2080super-guide", "full-4090"} <= set(rows)
    for words, names in (
        (["4090"], ["full-4090", "lora-r64-4090"]),
        (["lora", "L40S"], ["lora-r64-l40s"]),
        (["8", "a100", "esm2"], ["esm2-8xa100"]),
    ):
        profiles.run_list(as_json=True, words=words)
        assert [row["name"] for row in json.loads(capsys.readouterr().out)] == names
    profiles.run_list(as_json=False, words=["no-such-card"])
    assert capsys.readouterr().out == "No matching profile. trainwiz profiles list shows all.\n"


def planned(gpu: str) -> Machine:
    """A machine with this card, as if it were probed: with all that the profiles' engines import."""
    here = Libraries({"torch": "2.13", "deepspeed": "0.19", "bitsandbytes": None, "flash_attn": None})
    known = {"hypothetical": False, "unavailable": {}, "torch_cuda": "12.8", "disk_free_bytes": 500 * GIB}
    return replace(catalogue_machine(gpu=gpu, num_gpus=1, ram_bytes=64 * GIB), libraries=here, **known)  # type: ignore[arg-type]


def test_the_list_as_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / "odd.yaml").write_text("values: [\n")
    profiles.run_use("2080super")
    capsys.readouterr()
    profiles.run_list(as_json=False)
    out = capsys.readouterr().out
    assert "▸  2080super " in out and "✓ yes" in out and "✗ no" in out
    assert "! 1 profile file has errors" in out
    assert "-guide " not in out.replace("exact-guide ", "") and "17 exact-guide profiles are hidden" in out
    assert max(map(len, out.splitlines())) <= 108
    shown, everything = listed(capsys), listed(capsys, guides=True)
    assert "2080super-guide" in everything and len(everything) == len(shown) + 17
    profiles.run_use("2080super-guide")
    capsys.readouterr()
    assert "2080super-guide" in listed(capsys)
    # What fits comes first.
    monkeypatch.setattr(read, "probe_machine", lambda *folder: planned("RTX 3080 12GB"))
    profiles.run_list(as_json=False)
    verdicts = ["✓" in line for line in capsys.readouterr().out.splitlines() if "✓" in line or "✗" in line]
    assert verdicts == sorted(verdicts, reverse=True) and True in verdicts and False in verdicts


def test_a_profile_in_use_and_a_printed_command_that_means_the_same_there(capsys: pytest.CaptureFixture[str]) -> None:
    profiles.run_current(as_json=False)
    assert "the default is cpu-demo" in capsys.readouterr().out
    profiles.run_use("2080super")
    assert Path(".trainwiz.yaml").read_text() == "profile: 2080super\n"
    capsys.readouterr()
    profiles.run_current(as_json=True)
    assert json.loads(capsys.readouterr().out) == {"profile": "2080super"}
    bare = request_from({"profile": "none", "model": "gpt2-tiny"}, {"model.name": "gpt2-tiny"})
    assert command_line(bare) == "trainwiz --profile none --model gpt2-tiny --yes"
    plan = plan_run(bare)
    assert plan_command(plan.config, plan.machine, {}) == "trainwiz plan --profile none --model gpt2-tiny"


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    profiles.run_show("2080super-guide", as_json=False)
    out = capsys.readouterr().out
    assert "RTX 2080 Super, 12 cores, 64.0 GiB RAM" in out
    assert "engine.precision" in out and "bf16" in out
    assert "800 to 900 tokens/s" in out and "micro-batch 4, accumulation 8" in out
    profiles.run_show("2080super-guide", as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["values"]["batch.gradient_accumulation_steps"] == 651
    assert document["claims"]["tokens_per_s"] == [800, 900]


def test_validate_names_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert profiles.run_validate([], as_json=False) == 0
    assert "profiles are valid" in capsys.readouterr().out
    wrong = tmp_path / "mine.yaml"
    wrong.write_text("values:\n  engine:\n    precison: fp16\n")
    assert profiles.run_validate([str(wrong)], as_json=False) == 2
    assert f"{wrong}:3: 'engine.precison' is not a setting. Did you mean engine" in capsys.readouterr().out
    with pytest.raises(UsageError, match="Did you mean 3080"):
        profiles.run_show("3080-11g", as_json=False)


def test_diff_says_why_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    profiles.run_diff("2080super", "3080-10g", as_json=True)
    changes = {change["key"]: change for change in json.loads(capsys.readouterr().out)["changes"]}
    assert all(change["reason"] for change in changes.values())
    assert (changes["batch.micro_batch_size"]["first"], changes["batch.micro_batch_size"]["second"]) == (6, 20)
    assert changes["engine.precision"]["reason"].startswith("the GPU (sm 8.6) supports bf16")
    profiles.run_diff("2080super", "3080-10g", as_json=False)
    out = capsys.readouterr().out
    assert "64.0 GiB" in out and "auto" in out
    profiles.run_diff("2080super", "2080super", as_json=False)
    assert "have the same values" in capsys.readouterr().out
    # Of the same source what differs is said.
    profiles.run_diff("lora-r64-3090-guide", "lora-r64-3090", as_json=False)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("data.sources"))
    assert "(max_rows 2,500)" in line and "(max_rows 2,600)" in line


def test_the_wizard_offers_profiles_of_this_card_before_others_and_guides_last() -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / "mine.yaml").write_text("extends: cpu-demo\n")
    names = [offer.value for offer in profile_offers(planned("RTX 4090"))]
    assert names[:5] == ["", "cpu-demo", "mine", "full-4090", "lora-r64-4090"]
    first_guide = next(index for index, name in enumerate(names) if name.endswith("-guide"))
    assert all(name.endswith("-guide") for name in names[first_guide:]) and len(names) > 60


def test_choices_become_a_profile_that_every_command_knows(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--extends", "lora-r64-3090", "--lora-rank", "32", "--set", "training.label_smoothing=0.05"]
    assert main(["profiles", "save", "my-card", *asked]) == 0
    out = capsys.readouterr().out
    assert f"Saved my-card: {user_folder() / 'my-card.yaml'}" in out
    assert main(["profiles", "save", "by-batch", "--extends", "2080super", "--micro-batch", "4", "--ram", "32G"]) == 0
    out = capsys.readouterr().out
    assert "batch.gradient_accumulation_steps  auto" in out
    document = yaml.safe_load((user_folder() / "my-card.yaml").read_text())
    assert document["extends"] == "lora-r64-3090"
    assert document["values"] == {"peft": {"rank": 32}, "training": {"label_smoothing": 0.05}}
    assert main(["profiles", "diff", "lora-r64-3090", "my-card", "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert {change["key"] for change in changes} == {"peft.rank", "training.label_smoothing"}
    # The same to every command; core/profile/test_save.py tells what is refused.
    assert main(["profiles", "validate"]) == 0
