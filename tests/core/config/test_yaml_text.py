"""YAML from users: small texts that stand for huge or endless values are refused at once."""

import math
from pathlib import Path

import pytest
import yaml
from trainwiz.core.config import yaml_text
from trainwiz.core.config.yaml_text import load_yaml, parse_yaml
from trainwiz.core.errors import UsageError
from trainwiz.core.launch.start import read_run_config
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import compare_runs

from tests.each import each

BOMB = "a0: &a0 {k: x}\n" + "".join(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}\n" for i in range(1, 40))
LOOP = "a: &a\n  b: *a\n"
DEEP = "a: " + "[" * 600 + "]" * 600 + "\n"
REFUSED = {"bomb": (BOMB, "its aliases expand to more than"), "loop": (LOOP, "to a value that contains it")}
REFUSED["deep"] = (DEEP, "nested too deeply")
REFUSED["date"] = ("a: 2021-99-99\n", "month must be in")
REFUSED["object"] = ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor")


@each("name", REFUSED)
def test_a_hostile_text_is_refused(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(yaml.YAMLError, match=words):
        load_yaml(text)
    place = r"mine\.yaml, line 1, column 4: .*" if name == "loop" else ""
    with pytest.raises(UsageError, match=place + words):
        parse_yaml(text, Path("mine.yaml"))


def test_honest_aliases_and_merges_work() -> None:
    text = "base: &base {epochs: 2, seed: 1}\nmine: {<<: *base, seed: 3}\nagain: [*base, *base]\n"
    base = {"epochs": 2, "seed": 1}
    assert load_yaml(text) == {"base": base, "mine": {"epochs": 2, "seed": 3}, "again": [base, base]}
    assert parse_yaml(text, Path("mine.yaml")).values["again"] == [base, base]
    assert load_yaml(f"[7, {'9' * 5000}]") == [7, math.inf]


def test_the_limit_counts_what_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain file of any length is no alias; what aliases add is bounded."""
    monkeypatch.setattr(yaml_text, "MOST_NODES", 10)
    assert (len(load_yaml(str([*range(60)]))), len(load_yaml("[&a [b, c], *a, *a, *a]"))) == (60, 4)
    with pytest.raises(yaml.YAMLError, match="more than 10 values"):
        load_yaml("[&a [b, c], *a, *a, *a, *a]")


@each("name", ["bomb", "date"])
def test_run_yaml_is_read_with_the_same_care(tmp_path: Path, name: str) -> None:
    folder = RunFolder(tmp_path)
    folder.run_yaml.write_text(REFUSED[name][0], encoding="utf-8")
    with pytest.raises(UsageError, match=r"run\.yaml.* not valid"):
        read_run_config(folder)
    with pytest.raises(UsageError, match=r"run\.yaml.* not valid"):
        compare_runs([folder, folder])
