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

REPOSITORY = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "datasets", "textual", "accelerate", "peft")
RUN_AS_CHILDREN = ("trainwiz.core.training", "trainwiz.core.estimate.trace")


def name_of(file: Path) -> str:
    return "trainwiz." + ".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


CORE = {name_of(file): file for file in sorted((REPOSITORY / "core").rglob("*.py")) if file.name != "__main__.py"}


def loaded_after_importing(modules: Iterable[str]) -> set[str]:
    """The heavy top-level packages in sys.modules of a fresh interpreter that imported `modules`."""
    program = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()} & set(HEAVY)


def test_core_and_the_command_line_import_nothing_heavy_and_screens_no_torch() -> None:
    modules = [name for name in CORE if not name.startswith(RUN_AS_CHILDREN)]
    assert len(modules) > 20 and loaded_after_importing([*modules, "trainwiz.tui.cli"]) == set()
    screens = [f"trainwiz.tui.{name}" for name in ("app", "screens.plan", "screens.monitor")]
    assert loaded_after_importing(screens) <= {"textual"}


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


def test_imports_run_one_way() -> None:
    wrong = {
        f"{file.relative_to(REPOSITORY)}: {name}"
        for top, parts in MAY_IMPORT.items()
        for file in (REPOSITORY / top).rglob("*.py")
        for name in imported_modules(file)
        if name.startswith("trainwiz.") and not name.startswith(tuple(f"trainwiz.{part}" for part in parts))
    }
    assert wrong == set()


BELOW = {
    "run": ("telemetry", "launch", "plan"), "estimate": ("plan",), "config": ("plan", "telemetry"), "profile": ("plan",),
    "catalog": ("telemetry",), "hardware": ("telemetry",), "data": ("telemetry", "run", "plan"), "history": ("plan",),
    "export": ("plan",), "training": ("telemetry", "plan"), "diagnosis": ("telemetry",),
}  # fmt: skip
"""Room of core -> rooms above it, which it never imports."""


@cache
def loaded_with(module: str) -> set[str]:
    """Modules of core that a module imports at its top."""
    tree = ast.parse(CORE[module].read_text(encoding="utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    names = {f"{node.module}.{alias.name}" for node in top for alias in node.names} | {str(node.module) for node in top}
    return names & CORE.keys()


def test_rooms_import_no_room_above_them_nor_load_one_by_way_of_a_third() -> None:
    wrong = set()
    for room, above in BELOW.items():
        own = [name for name in CORE if name.startswith(f"trainwiz.core.{room}.")]
        found = [*own, *(name for module in own for name in imported_modules(CORE[module]))]
        # What training loads only accelerate's processes do.
        for module in found if room != "training" else ():
            found += [name for name in loaded_with(module) if name not in found] if module in CORE else []
        others = tuple(f"trainwiz.core.{other}" for other in above)
        wrong |= {f"{room}: {name}" for name in found if name.startswith(others)}
    assert wrong == set()


def test_no_function_of_core_imports_something_heavy_later() -> None:
    """A fresh interpreter shows the imports at the top of modules; this one those inside functions."""
    wrong = set()
    for file in (REPOSITORY / "core").rglob("*.py"):
        module = name_of(file)
        heavy = ("textual",) if module.startswith(RUN_AS_CHILDREN) else (*HEAVY, "trainwiz.core.training")
        wrong |= {
            f"{module}: {name}"
            for name in imported_modules(file)
            if any(name == other or name.startswith(f"{other}.") for other in heavy)
        }
    assert wrong == set()


def test_the_python_interface_loads_nothing_until_it_is_used() -> None:
    program = "import sys, trainwiz; trainwiz.plan; print(*(one for one in sys.modules if one.startswith('trainwiz.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


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
    assert not [file for file in (REPOSITORY / "profiles").rglob("*.py") if file.name != "__init__.py"], "only data"


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
    children = {file for file in files if name_of(file).startswith(RUN_AS_CHILDREN)}
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
