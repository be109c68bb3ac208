"""Write the map of docs/code.md: every room and every file with the first sentence of its docstring.

`python scripts/code_map.py` writes it; `--check` exits 1 where the page is not what it would write.
"""

from __future__ import annotations

import ast
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "code.md"
BEGIN = "<!-- From here on written by scripts/code_map.py. -->\n"


def noun_of(path: Path) -> str:
    """The first paragraph of a module's docstring in one line, safe in a table."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n", 1)[0].split()).replace("|", "\\|")


def written_map() -> str:
    """The rooms from the ground up, each with its files. A package's own line stands beside its name."""
    parts = []
    for top in ("api", "core", "tui"):
        files = sorted((ROOT / top).rglob("*.py"), key=lambda path: (path.parent.as_posix(), path.name))
        for folder, inside in groupby(files, key=lambda path: path.parent):
            nouns = {path.name: noun_of(path) for path in inside}
            about = nouns.pop("__init__.py", "")
            parts.append(f"### {folder.relative_to(ROOT).as_posix()}\n")
            if about:
                parts.append(f"{about}\n")
            if nouns:
                rows = "\n".join(f"| `{name}` | {noun} |" for name, noun in nouns.items())
                parts.append(f"| file | what it is |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    head = PAGE.read_text(encoding="utf-8").split(BEGIN)[0]
    page = f"{head}{BEGIN}\n{written_map()}"
    if "--check" in arguments:
        return int(PAGE.read_text(encoding="utf-8") != page)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
