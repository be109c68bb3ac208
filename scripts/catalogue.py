"""The catalogue of texts: scripts/catalogue.py extract|merge|missing|unmarked|compile.

extract [POT]             every text of core, tui and profiles as a template, on the screen or into a file
merge [FRAGMENT...]       brings the .po of each language up to date and puts the translations of fragments in
missing FILE... [--with FRAGMENT...]   texts of these files that have no translation, as a fragment to fill in
unmarked FILE...          what in these files looks like a text for people and is in no tr, trn or mark
compile                   the .mo files that the program reads

A fragment is JSON: {"text": "translation"}; a plural's key is "one\\u0000many".
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import yaml
from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.unmarked import unmarked_texts  # noqa: E402 -- the folder of scripts is no package that is installed

LOCALE = ROOT / "core" / "locale"
LANGUAGES = ("zh",)
SOURCES = ("core", "tui", "profiles")
FUNCTIONS = {"tr": 1, "mark": 1, "trn": 2}
"""How many literals each takes; tr_as takes a meaning and a text, which is "text [meaning]" in the catalogue."""
KEY_FUNCTIONS = ("key", "hidden")
"""Rows of the key table: the words of the key bar and the sentence of the help are their fourth and fifth arguments."""
ROWS = {"Option": 1, "Subcommand": 2}
"""Rows of the table of commands: which argument people read."""
TEXT_TABLES = ("SENTENCES", "REASONS")
"""Ends of the names of tables whose values are texts, also those of the tables in them."""
SETTING_TEXTS = ("label", "group", "unit", "empty", "says")
"""Arguments of `setting(...)` that are translated where they are drawn."""
TRANSLATED_KEYS = ("description", "text")
"""Keys of the YAML of profiles whose values people read; `reasons` is a table of them."""
NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
"""In the header of what is compiled, so that the same texts make the same file."""
PLACEHOLDER = re.compile(r"\{(\w*)[^{}]*\}")

Text = str | tuple[str, str]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("extract").add_argument("pot", nargs="?", type=Path)
    commands.add_parser("merge").add_argument("fragments", nargs="*", type=Path)
    missing = commands.add_parser("missing")
    missing.add_argument("files", nargs="+", type=Path)
    missing.add_argument("--with", dest="fragments", nargs="+", type=Path, default=[])
    commands.add_parser("unmarked").add_argument("files", nargs="+", type=Path)
    commands.add_parser("compile")
    given = parser.parse_args(arguments)
    if given.command == "extract":
        write_template(given.pot)
    elif given.command == "merge":
        return merge(given.fragments)
    elif given.command == "missing":
        return print_missing(given.files, given.fragments)
    elif given.command == "unmarked":
        return print_unmarked(given.files)
    else:
        compile_all()
    return 0


# what there is to translate


def source_files() -> list[Path]:
    """Every file that texts are taken from."""
    found = (path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml"))
    return sorted(path for path in found if "__pycache__" not in path.parts)


def texts_of(path: Path) -> list[tuple[int, Text]]:
    """(line, text) of each text that this file asks to be translated; a pair is a plural."""
    if path.suffix == ".yaml":
        return list(yaml_texts(yaml.compose(path.read_text(encoding="utf-8"))))
    return list(python_texts(ast.parse(path.read_text(encoding="utf-8"), str(path))))


def python_texts(tree: ast.Module) -> Iterator[tuple[int, Text]]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.AnnAssign)
            and getattr(node.target, "id", "").endswith(TEXT_TABLES)
            and node.value is not None
        ):
            tables = (part for part in ast.walk(node.value) if isinstance(part, ast.Dict))
            texts = (value for table in tables for value in table.values if isinstance(value, ast.Constant))
            yield from ((text.lineno, str(text.value)) for text in texts)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id == "tr_as" and all(isinstance(arg, ast.Constant) for arg in node.args):
            meaning, text = (str(ast.literal_eval(arg)) for arg in node.args)
            yield node.lineno, f"{text} [{meaning}]"
        if node.func.id == "setting":
            yield from setting_texts(node)
        if node.func.id in KEY_FUNCTIONS:
            read = (arg.value for arg in node.args[3:5] if isinstance(arg, ast.Constant))
            yield from ((node.lineno, text) for text in read if isinstance(text, str))
        if node.func.id in ROWS:
            texts_read = node.args[ROWS[node.func.id] :][:1]
            yield from (
                (node.lineno, str(text.value)) for text in texts_read if isinstance(text, ast.Constant) and text.value
            )
        if node.func.id not in FUNCTIONS:
            continue
        wanted = FUNCTIONS[node.func.id]
        literals = [arg.value for arg in node.args[:wanted] if isinstance(arg, ast.Constant)]
        texts = [text for text in literals if isinstance(text, str) and text]
        if len(texts) == wanted:
            yield node.lineno, (texts[0] if wanted == 1 else (texts[0], texts[1]))


def setting_texts(node: ast.Call) -> Iterator[tuple[int, Text]]:
    """The texts of an entry of the settings: what follows its default, and of its row and option what people read."""
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    # Without a row its description stands in the schema alone, which is English.
    read = [*(node.args[1:] if "label" in named else ()), *(named[name] for name in SETTING_TEXTS if name in named)]
    words = named.get("words")
    read += words.values if isinstance(words, ast.Dict) else []
    for text in read:
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and len(text.value) > 1:
            yield text.lineno, text.value


def yaml_texts(node: yaml.Node | None, read: bool = False) -> Iterator[tuple[int, Text]]:
    """Values of the translated keys, wherever in the document; `read`: everything below is read by people."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from yaml_texts(value, read or key.value in TRANSLATED_KEYS or key.value == "reasons")
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from yaml_texts(value, read)
    elif isinstance(node, yaml.ScalarNode) and read and node.tag == "tag:yaml.org,2002:str" and node.value.strip():
        yield node.start_mark.line + 1, node.value.strip()


def template(files: Iterable[Path] | None = None) -> Catalog:
    """All texts with the files that they are from; no line numbers, which would change with every edit."""
    catalog = Catalog(project="trainwiz", charset="utf-8", fuzzy=False)
    for path in source_files() if files is None else files:
        place = path.resolve().relative_to(ROOT).as_posix() if path.resolve().is_relative_to(ROOT) else path.name
        for _, text in texts_of(path):
            catalog.add(text, locations=[(place, 0)])
    for message in catalog:
        message.locations = sorted(set(message.locations))
    return catalog


# what is translated


def po_path(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES" / "trainwiz.po"


def read_language(language: str) -> Catalog:
    """The .po of a language; an empty one where there is none yet."""
    path = po_path(language)
    if not path.exists():
        return Catalog(locale=language, project="trainwiz", charset="utf-8", fuzzy=False)
    with path.open("rb") as file:
        return read_po(file, locale=language)


def po_bytes(catalog: Catalog) -> bytes:
    for message in catalog:
        # Babel takes "40 % done" for a format of Python's.
        message.flags.discard("python-format")
        message.flags.discard("python-brace-format")
    catalog.header_comment = "# Texts of trainwiz. Made by scripts/catalogue.py merge; edit the translations only."
    stream = io.BytesIO()
    write_po(
        stream, catalog, width=110, sort_output=True, ignore_obsolete=True, include_lineno=False, omit_header=False
    )
    # The dates in the header would differ with every run, the version with every Babel.
    lines = stream.getvalue().decode("utf-8").splitlines(keepends=True)
    dropped = (
        '"POT-Creation-Date',
        '"PO-Revision-Date',
        '"Last-Translator',
        '"Language-Team',
        '"Report-Msgid',
        '"Generated-By: ',
    )
    return "".join(line for line in lines if not line.startswith(dropped)).encode("utf-8")


def mo_bytes(catalog: Catalog) -> bytes:
    catalog.creation_date = catalog.revision_date = NO_DATE
    stream = io.BytesIO()
    write_mo(stream, catalog)
    return stream.getvalue()


def key_of(text: Text | list[str]) -> str:
    """How a text is written in a fragment."""
    return text if isinstance(text, str) else "\0".join(text)


def translation_of(message: Message | None) -> str:
    """ "" where there is none."""
    if message is None or message.fuzzy:
        return ""
    return message.string if isinstance(message.string, str) else str(message.string[0] if message.string else "")


def same_placeholders(key: str, translation: str) -> bool:
    """A plural's number may be left out by the form for one, so the form for many counts."""
    *_, many = key.split("\0")
    return placeholders(many) == placeholders(translation)


def placeholders(text: str) -> set[str]:
    return set(PLACEHOLDER.findall(text.replace("{{", "").replace("}}", "")))


# the commands


def write_template(path: Path | None) -> None:
    text = po_bytes(template())
    if path is None:
        sys.stdout.write(text.decode("utf-8"))
    else:
        path.write_bytes(text)


def merge(fragments: list[Path]) -> int:
    """Texts that are gone go, new ones come, translations stay; exit code 1 where a fragment was wrong somewhere."""
    texts = template()
    problems: list[str] = []
    for language in LANGUAGES:
        catalog = read_language(language)
        catalog.update(texts, no_fuzzy_matching=True)
        by_key = {key_of(message.id): message for message in catalog if message.id}
        for path in fragments:
            problems += put_in(by_key, read_fragment(path), path.name)
        po_path(language).parent.mkdir(parents=True, exist_ok=True)
        po_path(language).write_bytes(po_bytes(catalog))
        untranslated = sum(not translation_of(message) for message in by_key.values())
        print(f"{language}: {len(by_key)} texts, {untranslated} without a translation")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def put_in(by_key: dict[str, Message], fragment: dict[str, str], name: str) -> list[str]:
    """Translations of a fragment into the catalogue; returns those that were not taken, with the reason."""
    problems = []
    for key, translation in fragment.items():
        message = by_key.get(key)
        if not translation:
            continue
        if message is None:
            problems.append(f"{name}: no text in the code reads {key!r}")
        elif not same_placeholders(key, translation):
            problems.append(f"{name}: other placeholders in the translation of {key!r}: {translation!r}")
        else:
            message.string = translation if isinstance(message.id, str) else (translation,)
    return problems


def read_fragment(path: Path) -> dict[str, str]:
    fragment = json.loads(path.read_text(encoding="utf-8"))
    return {str(key): str(value) for key, value in fragment.items()}


def print_missing(files: list[Path], fragments: list[Path]) -> int:
    """A fragment with empty translations; exit code 1 where there is any."""
    known = {key_of(message.id): translation_of(message) for message in read_language(LANGUAGES[0]) if message.id}
    for path in fragments:
        known.update(read_fragment(path))
    keys = [key_of(text) for path in all_files(files) for _, text in texts_of(path)]
    lacking = {key: "" for key in keys if not known.get(key) or not same_placeholders(key, known[key])}
    print(json.dumps(lacking, ensure_ascii=False, indent=1))
    return 1 if lacking else 0


def print_unmarked(files: list[Path]) -> int:
    found = [
        f"{path}:{line}: {text!r}"
        for path in all_files(files)
        if path.suffix == ".py"
        for line, text in unmarked_texts(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(found))
    return 1 if found else 0


def all_files(paths: list[Path]) -> Iterator[Path]:
    """Folders become the files in them."""
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.rglob("*") if one.suffix in (".py", ".yaml"))
        else:
            yield path


def compile_all() -> None:
    for language in LANGUAGES:
        po_path(language).with_suffix(".mo").write_bytes(mo_bytes(read_language(language)))


if __name__ == "__main__":
    raise SystemExit(main())
