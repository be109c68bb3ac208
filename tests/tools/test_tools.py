"""The tools are run by hand, some of them on machines that this one is not: what the product renames must reach them."""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import REPOSITORY


@cache
def has(module: str, name: str) -> bool:
    """Whether a module of ours speaks of this name, or is a package with such a module."""
    spec = find_spec(module)
    text = Path(str(spec.origin)).read_text(encoding="utf-8") if spec is not None and spec.has_location else ""
    return bool(re.search(rf"\b{name}\b", text)) or (spec is not None and find_spec(f"{module}.{name}") is not None)


def test_what_a_tool_imports_is_there() -> None:
    files = [file for folder in ("tools", "scripts") for file in (REPOSITORY / folder).rglob("*.py")]
    nodes = [(file.name, node) for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    imports = [(file, node) for file, node in nodes if isinstance(node, ast.ImportFrom)]
    ours = [(file, str(one.module), alias.name) for file, one in imports for alias in one.names]
    ours = [row for row in ours if row[1].split(".")[0] in ("trainwiz", "tools", "scripts", "tests")]
    assert len(ours) > 200 and not [row for row in ours if not has(*row[1:])]
