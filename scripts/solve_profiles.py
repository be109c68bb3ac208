"""Makes the profiles of today's cards: python scripts/solve_profiles.py [--check]

Writes profiles/hardware/*.yaml for the rows of profiles_to_solve.yaml, removes those that it made before and that no
row gives any more, and brings the catalogue of texts up to date. `--check` writes nothing and names the files that
would change (exit code 1). Run it when an estimator, a catalogue or a row has changed, and look at the difference.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainwiz.core.language import language, use_language  # noqa: E402

from scripts import catalogue  # noqa: E402 -- the folder of scripts is no package that is installed
from scripts.profile_solver import Solved, solve_all  # noqa: E402
from scripts.profile_words import gib  # noqa: E402

FOLDER = ROOT / "profiles" / "hardware"
MADE = "# Made by scripts/solve_profiles.py from scripts/profiles_to_solve.yaml: change those, and run it again."
WIDTH = 118


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, name what would change")
    check = parser.parse_args(arguments).check
    wanted = texts()
    changed = [name for name in sorted({*wanted, *made_before()}) if wanted.get(name) != read(FOLDER / name)]
    print("\n".join(changed) if changed else f"{len(wanted)} profiles are as they are solved.")
    if check:
        return 1 if changed else 0
    for name in changed:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return translate(translations())


def texts() -> dict[str, str]:
    """File name -> its text."""
    with spoken("en"):
        return {f"{solved.name}.yaml": text_of(solved) for solved in solve_all()}


def made_before() -> list[str]:
    """The files of the folder that this command wrote."""
    return [path.name for path in FOLDER.glob("*.yaml") if read(path).startswith(MADE)]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def text_of(solved: Solved) -> str:
    """The profile as a file: what it is, for which machine, its values and why they are these."""
    machine = solved.machine
    hardware = {"gpu": machine.gpu, "num_gpus": machine.num_gpus, "ram": machine.ram, "cpu_cores": machine.cpu_cores}
    reasons = {key: solved.reasons[key] for key in solved.values if solved.reasons.get(key)}
    parts = (
        {"name": solved.name, "description": solved.description},
        {"hardware": hardware},
        {"values": nested(solved.values)},
        {"reasons": reasons},
    )
    memory = solved.plan.memory
    most, free = gib(memory.needed_high_bytes), gib(memory.capacity_bytes or 0)
    notes = (
        MADE,
        f"# The RAM and the cores are an assumption: those of {machine.like}.",
        f"# By formulas it takes {gib(memory.judged_bytes)} GiB of the card, at most {most} of {free} GiB.",
    )
    return "\n".join((*notes, *map(dumped, parts)))


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Key paths -> sections; a key that is None is left out."""
    document: dict[str, Any] = {}
    for key, value in values.items():
        *sections, last = key.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        if value is not None:
            place[last] = value
    return document


def dumped(part: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(part), sort_keys=False, allow_unicode=True, width=WIDTH)


def translations() -> dict[str, str]:
    """English text of a profile -> the same in Chinese, where the solver has it."""
    with spoken("en"):
        english = {solved.name: solved for solved in solve_all()}
    with spoken("zh"):
        chinese = {solved.name: solved for solved in solve_all()}
    pairs: dict[str, str] = {}
    for name, solved in english.items():
        pairs[solved.description] = chinese[name].description
        pairs |= {text: chinese[name].reasons[key] for key, text in solved.reasons.items()}
    return {text: translation for text, translation in pairs.items() if text and translation}


def translate(pairs: Mapping[str, str]) -> int:
    """Puts the texts of the profiles into the catalogue, and compiles it."""
    with tempfile.TemporaryDirectory() as folder:
        fragment = Path(folder) / "profiles.json"
        fragment.write_text(json.dumps(pairs, ensure_ascii=False), encoding="utf-8")
        code = catalogue.merge([fragment])
    catalogue.compile_all()
    return code


@contextmanager
def spoken(name: str) -> Iterator[None]:
    """The plan gives its reasons in this language for as long."""
    before = language()
    use_language(name)
    try:
        yield
    finally:
        use_language(before)


if __name__ == "__main__":
    raise SystemExit(main())
