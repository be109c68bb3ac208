"""Output folders that command lines name."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from trainwiz.core.telemetry.job import output_paths

from tests.each import each


@each(
    ("command", "named"),
    [
        ("python t.py --output_dir out", ["out"]),
        ("python t.py --output-dir=out --logging_dir logs", ["out", "logs"]),
        ("python t.py trainer.default_root_dir=out", ["out"]),
        ("python t.py +train.output_dir=/abs/out", ["/abs/out"]),
        ("python t.py --logdir a --logdir a", ["a"]),
        ("python t.py --output_dir", []),
        ("python t.py --output_dir --lr 3", []),
        ("python t.py --output_dir=", []),
        ("python t.py --lr 3 output_dir", []),
        ("python t.py --save_dir ./x", ["x"]),
        # The process has just ended.
        ("", []),
    ],
)
def test_by_options(tmp_path: Path, command: str, named: list[str]) -> None:
    assert output_paths(shlex.split(command), tmp_path) == [tmp_path / name for name in named]


def test_by_config_files(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text(json.dumps({"train": {"output_dir": "a"}, "lr": 3}))
    (tmp_path / "config.yaml").write_text("training:\n  logging_dir: b\n")
    assert output_paths(["python", "t.py", "args.json"], tmp_path) == [tmp_path / "a"]
    assert output_paths(["python", "t.py", "--config=config.yaml"], tmp_path) == [tmp_path / "b"]


@each("text", ["{", "[" * 1_500, "a: *b", "- !!python/object/apply:os.system [true]", "\x00\xff", "output_dir: 3", ""])
def test_broken_config_files_name_nothing(tmp_path: Path, text: str) -> None:
    for name in ("c.json", "c.yaml"):
        (tmp_path / name).write_text(text, encoding="latin-1")
        assert output_paths(["python", "t.py", name, "missing.json", "."], tmp_path) == []


def test_a_home_that_nobody_has_is_a_name_like_others(tmp_path: Path) -> None:
    assert output_paths(["python", "x.py", "--output_dir", "~nobody-has-this-name"], tmp_path) == [
        tmp_path / "~nobody-has-this-name"
    ]
