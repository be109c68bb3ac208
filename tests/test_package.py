"""The package as it is built: folders, import rules, metadata."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "datasets", "textual", "accelerate", "peft")
RUN_AS_CHILDREN = ("trainwiz.core.training", "trainwiz.core.estimate.trace")


def core_modules() -> list[str]:
    """Every module of trainwiz.core outside the parts that run only as child processes."""
    names = []
    for file in sorted((REPOSITORY / "core").rglob("*.py")):
        if file.name == "__main__.py":
            continue
        parts = ("trainwiz", *file.relative_to(REPOSITORY).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        if not name.startswith(RUN_AS_CHILDREN):
            names.append(name)
    return names


def loaded_after_importing(modules: list[str]) -> set[str]:
    """The heavy top-level packages in sys.modules of a fresh interpreter that imported `modules`."""
    program = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()} & set(HEAVY)


def test_core_imports_nothing_heavy() -> None:
    modules = core_modules()
    assert len(modules) > 20
    assert loaded_after_importing(modules) == set()


MAY_IMPORT = {"profiles": (), "core": ("core", "profiles"), "tui": ("core", "profiles", "tui")}
"""Top folder -> which parts of trainwiz it may import. Imports run one way."""


@cache
def imported_modules(file: Path) -> set[str]:
    """Every module that a file imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports here name the whole module"
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("top", MAY_IMPORT)
def test_imports_run_one_way(top: str) -> None:
    allowed = tuple(f"trainwiz.{part}" for part in MAY_IMPORT[top])
    wrong = {
        f"{file.relative_to(REPOSITORY)}: {name}"
        for file in (REPOSITORY / top).rglob("*.py")
        for name in imported_modules(file)
        if name.startswith("trainwiz.") and not name.startswith(allowed)
    }
    assert wrong == set()


BELOW = {
    "run": ("telemetry", "launch", "plan"), "estimate": ("plan",), "config": ("plan", "telemetry"), "profile": ("plan",),
    "catalog": ("telemetry",), "hardware": ("telemetry",), "data": ("telemetry", "run", "plan"), "history": ("plan",),
    "export": ("plan",), "training": ("telemetry", "plan"), "diagnosis": ("telemetry",),
}  # fmt: skip
"""Room of core -> rooms above it, which it never imports."""


def test_rooms_import_no_room_above_them() -> None:
    wrong = {
        f"{file.relative_to(REPOSITORY)}: {name}"
        for room, above in BELOW.items()
        for file in (REPOSITORY / "core" / room).rglob("*.py")
        for name in imported_modules(file)
        if name.startswith(tuple(f"trainwiz.core.{other}" for other in above))
    }
    assert wrong == set()


def test_rooms_load_no_room_above_them() -> None:
    """Neither by way of a third room. What training loads only accelerate's processes do."""
    program = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(*(name for name in sys.modules if name.startswith('trainwiz.core.')), sep='\\n')"
    )
    wrong = set()
    for room, above in BELOW.items():
        modules = [name for name in core_modules() if name.startswith(f"trainwiz.core.{room}.")]
        if modules:
            done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=True)
            loaded = {name.split(".")[2] for name in done.stdout.split()}
            wrong |= {f"{room} loads {other}" for other in loaded.intersection(above)}
    assert wrong == set()


def test_no_function_of_core_imports_something_heavy_later() -> None:
    """A fresh interpreter shows the imports at the top of modules; this one those inside functions."""
    wrong = set()
    for file in (REPOSITORY / "core").rglob("*.py"):
        module = "trainwiz." + ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
        heavy = ("textual",) if module.startswith(RUN_AS_CHILDREN) else (*HEAVY, "trainwiz.core.training")
        wrong |= {
            f"{module}: {name}"
            for name in imported_modules(file)
            if any(name == other or name.startswith(f"{other}.") for other in heavy)
        }
    assert wrong == set()


def test_the_command_line_imports_nothing_heavy() -> None:
    assert loaded_after_importing(["trainwiz.tui.cli"]) == set()


def test_the_python_interface_loads_nothing_until_it_is_used() -> None:
    program = (
        "import sys, trainwiz; trainwiz.plan; print(*(name for name in sys.modules if name.startswith('trainwiz.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("module", ["trainwiz.tui.app", "trainwiz.tui.screens.plan", "trainwiz.tui.screens.monitor"])
def test_screens_hold_no_torch(module: str) -> None:
    assert loaded_after_importing([module]) <= {"textual"}


def test_every_folder_with_code_is_packaged() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        ".".join(("trainwiz", *file.parent.relative_to(REPOSITORY).parts))
        for top in ("core", "tui", "profiles")
        for file in (REPOSITORY / top).rglob("*.py")
    }
    assert found | {"trainwiz"} == listed
    assert project["tool"]["setuptools"]["package-dir"]["trainwiz"] == "api"


def test_profiles_hold_only_data() -> None:
    code = [file for file in (REPOSITORY / "profiles").rglob("*.py") if file.name != "__init__.py"]
    assert code == []


INSTALLED_AS = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py"}
"""Import name -> distribution, where they differ."""
ON_DEMAND = {"tokenizers", "huggingface_hub"}
"""Of the extra `train`, imported by functions of the core that do without them or say what is missing."""
NEVER_IMPORTED = {"datasets", "jinja2", "sentencepiece", "tensorboard", "trl", "ninja", "py-cpuinfo"}
"""Used by transformers, the Trainer or DeepSpeed, or looked up by name."""


def third_party(files: Iterable[Path]) -> set[str]:
    names = {name.split(".")[0] for file in files for name in imported_modules(file)}
    return {INSTALLED_AS.get(name, name) for name in names - set(sys.stdlib_module_names) - {"trainwiz"}}


def test_every_package_that_is_imported_is_declared_in_its_group() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    declared = {
        group: {re.split(r"[<>=!~\[; ]", line, maxsplit=1)[0].lower() for line in lines} - {"trainwiz"}
        for group, lines in groups.items()
    }
    files = {file for top in MAY_IMPORT for file in (REPOSITORY / top).rglob("*.py")}
    children = {
        file for file in files
        if ".".join(("trainwiz", *file.relative_to(REPOSITORY).parts)).startswith(RUN_AS_CHILDREN)
    }  # fmt: skip
    assert third_party(files - children) - declared["core"] - declared["mcp"] == ON_DEMAND <= declared["train"]
    extras = declared["train"] | declared["qlora"] | declared["deepspeed"]
    assert third_party(children) - declared["core"] | NEVER_IMPORTED | ON_DEMAND == extras
    assert not declared["core"] & extras and not declared["all"]
    pinned = {line.partition("==")[0] for line in (REPOSITORY / "constraints.txt").read_text().splitlines() if line}
    assert {"torch", "transformers", "accelerate", "peft", "sacrebleu", "sentencepiece", "textual"} <= pinned


def test_the_map_of_the_code_names_every_file_as_it_is() -> None:
    page = REPOSITORY / "docs" / "code.md"
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "code_map.py", "--check"], check=False)
    assert done.returncode == 0, "docs/code.md is old: run scripts/code_map.py"
    for path in re.findall(r"`((?:core|tui|profiles|scripts)/[^`*]*)`", page.read_text(encoding="utf-8")):
        assert (REPOSITORY / path.split(" ")[0]).exists(), path
