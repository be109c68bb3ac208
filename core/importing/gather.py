"""The texts of an import, from files, pipes and pastes, and which reader each is for; the profile that it becomes."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, Severity, os_reason
from trainwiz.core.files import at_home, read_small
from trainwiz.core.importing import command_line, engines, python_source, trainer
from trainwiz.core.importing.engine_names import ACCELERATE_TELLTALES, DEEPSPEED_TELLTALES
from trainwiz.core.importing.merge import checked, merge
from trainwiz.core.importing.names import EVERYBODYS, TRAINERS_OWN
from trainwiz.core.importing.report import (
    Document,
    Imported,
    NotImportable,
    finding,
    looks_like_json,
    read_document,
    refusal,
)
from trainwiz.core.importing.sentences import SENTENCES
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.save import SavedProfile, save_profile
from trainwiz.core.profile.store import profile_files
from trainwiz.core.text import plain_text

# Which reader a text is for.

LAUNCHERS = re.compile(
    r"(?:^|[\s;&|(/'\"`])(?:accelerate(?:-launch|\s+launch)|torchrun|deepspeed|llamafactory-cli|lmf|trl|swift|axolotl|fairseq(?:-hydra)?-train|torch\.distributed\.(?:launch|run)"
    r"|python[\d.]*)(?=\s|$)"
)
"""Programs that start a training, as a word of a command."""
OTHERS: Mapping[str, str] = {
    "log_history global_step": "not_importable.log",
    "architectures model_type": "not_importable.model",
    "schema_version origins": "not_importable.run",
    "name values": "not_importable.profile",
}
"""All of these keys -> what the file is instead."""
MEANT_AS_PYTHON = re.compile(r"^\s*(?:from\s+[\w.]+\s+import\s|import\s+\w)|\w(?:Arguments|Config)\s*\(", re.MULTILINE)
"""Lines that only Python has; a text with one that does not parse was cut off, or has a mistake."""
OF_TOOLS = (
    ".toml",
    ".cfg",
    ".ini",
    ".lock",
    ".csv",
    ".tsv",
    ".ipynb",
    ".html",
    ".tex",
    ".md",
    ".rst",
    ".mk",
    "makefile",
)
"""Ends of the names of files that hold none of the kinds, though they name programs that train."""
FENCE = re.compile(r"^[ \t>]*(?:`{3}|~{3})|(?<![<$(])<<-?[ \t]*['\"\\]?[A-Za-z_]", re.MULTILINE)
"""What stands between two of them, or in a here-document, is of another kind."""


def read(text: str, file: str) -> Imported:
    """The import of a text, whatever kind it is. Raises NotImportable with one sentence."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise refusal("not_importable.empty", file)
    if file.endswith(".py") and not looks_like_json(text):
        return python_source.read(text, file)
    try:
        document = read_document(text, file)
    except NotImportable as error:
        broken = error
    else:
        return _reader(document, file)(document, file)
    if _is_python(text):
        return python_source.read(text, file)
    if file.lower().endswith(OF_TOOLS):
        raise refusal("not_importable.kinds", file)
    if FENCE.search(text):
        raise refusal("not_importable.among_other_text", file)
    if file.endswith((".yaml", ".yml", ".json", ".jsonc")):
        raise broken
    if is_command(text):
        return command_line.read(text, file)
    if looks_like_json(text):
        raise broken
    if MEANT_AS_PYTHON.search(text):
        return python_source.read(text, file)
    raise refusal("not_importable.kinds", file)


def is_command(text: str) -> bool:
    """One line of it starts a training, or a program that may."""
    return LAUNCHERS.search(text) is not None


def _is_python(text: str) -> bool:
    """It parses as Python and calls or imports something: a line of YAML can be an annotation."""
    try:
        nodes = ast.walk(python_source.parsed(text, ""))
    except NotImportable:
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom | ast.Call) for node in nodes)


def _reader(document: Document, file: str) -> Callable[[Document, str], Imported]:
    names = frozenset(document.values)
    for its_own, what in OTHERS.items():
        if names.issuperset(its_own.split()):
            raise refusal(what, file)
    if "distributed_type" in names or len(ACCELERATE_TELLTALES & names) >= 2:
        return engines.read_accelerate
    if "zero_optimization" in names or "train_micro_batch_size_per_gpu" in names:
        return engines.read_deepspeed
    telling = TRAINERS_OWN | EVERYBODYS
    # `fp16: {enabled: ...}` is DeepSpeed's; the Trainer's fp16 is yes or no.
    halves = any(isinstance(document.values.get(name), dict) for name in ("fp16", "bf16", "bfloat16"))
    if halves or len(DEEPSPEED_TELLTALES & names) > len(telling & names):
        return engines.read_deepspeed
    sections = [section for section in document.values.values() if isinstance(section, dict)]
    if telling & names or any(len(telling & set(map(str, section))) >= 2 for section in sections):
        return trainer.read
    raise refusal("not_importable.kinds", file)


# What was given to an import, with the files that it names, as far as they are here.

MOST_TEXT_BYTES = 2**20
"""No settings and no training script has as many."""
MOST_FILES = 20
COMMAND = "command"
"""The name of a command line that stands in no file."""
PASTED = mark("pasted text")
"""The name of a text that stands in no file."""
LONGEST_SHOWN = 120
ENCODINGS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
ROLES = {
    "accelerate": mark("the accelerate file"),
    "deepspeed": mark("the DeepSpeed file"),
    "script": mark("the script"),
    "arguments": mark("the arguments file"),
}


@dataclass(frozen=True, slots=True)
class Text:
    """One thing to read: `name` as it was given, `folder` from which the files that it names are looked for."""

    name: str
    text: str
    folder: Path


def import_together(texts: Sequence[Text]) -> Imported:
    """All texts, each followed by what it names, as one checked import; there must be a text. Raises NotImportable
    with a sentence for each that cannot be imported."""
    imports: list[Imported] = []
    findings: list[Finding] = []
    seen = {text.folder / text.name for text in texts}
    refused: list[Finding] = []
    for text in texts:
        try:
            _read(text, imports, findings, seen)
        except NotImportable as error:
            refused += error.findings
    if refused:
        raise NotImportable(refused)
    return checked(merge(imports, findings))


def _read(text: Text, imports: list[Imported], findings: list[Finding], seen: set[Path]) -> None:
    imported = read(text.text, text.name)
    imports.append(imported)
    for reference in imported.references:
        path = next((path for path in (Path(reference.path), text.folder / reference.path) if _is_file(path)), None)
        if path in seen or len(seen) > MOST_FILES or (reference.role == "script" and path is None):
            continue
        where = f"{text.name}:{reference.line}" if reference.line else text.name
        words = {"what": tr(ROLES[reference.role]), "path": plain_text(reference.path, LONGEST_SHOWN)}
        if path is None:
            findings.append(finding("missing_file", where, file=text.name, **words))
            continue
        seen.add(path)
        within = text.folder != Path() and path.is_relative_to(text.folder)
        try:
            _read(read_text(str(path), str(path.relative_to(text.folder) if within else path)), imports, findings, seen)
        except NotImportable as error:
            severity: Severity = "note" if reference.role == "script" else "warning"
            said = tr(SENTENCES["missing_file.left_out"], file=text.name, **words)
            findings += (
                replace(one, severity=severity, where=where, message=f"{said} {one.message}") for one in error.findings
            )


def _is_file(path: Path | str) -> bool:
    try:
        return at_home(Path(path)).is_file()
    except (OSError, ValueError):
        return False


def read_text(name: str, shown: str | None = None) -> Text:
    """The text of a file. Raises NotImportable for what cannot be read or is no text."""
    path, label = at_home(Path(name)), plain_text(shown or name, LONGEST_SHOWN)
    try:
        data = read_small(path)
    except OSError as error:
        raise refusal("unreadable_file", label, reason=os_reason(error)) from None
    return Text(label, decoded(data, label), path.parent)


def decoded(data: bytes, label: str) -> str:
    """The text of some bytes. Raises NotImportable for what is none."""
    if len(data) > MOST_TEXT_BYTES:
        raise refusal("not_importable.too_large", label, size=MOST_TEXT_BYTES >> 20)
    encoding = next((name for mark_, name in ENCODINGS if data.startswith(mark_)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise refusal("not_importable.no_utf8", label, start=error.start) from None
    if "\0" in text:
        raise refusal("not_importable.null_bytes", label)
    return text


def text_of(argument: str) -> Text:
    """What an argument of the command means: a file, or a command line in quotes. Raises NotImportable for neither."""
    if not argument.strip():
        raise refusal("not_importable.empty_argument", "FILE")
    try:
        if at_home(Path(argument)).exists():
            return read_text(argument)
    except (OSError, ValueError):
        pass
    if is_command(argument):
        return Text(COMMAND, argument, Path())
    raise refusal("no_such_path", plain_text(argument, LONGEST_SHOWN))


# What somebody typed or pasted into a box: paths of files, each on a line of its own, and then perhaps a text.

LONGEST_PATH = 4096
SETTINGS = re.compile(r"[:={([<>#]")
"""What every text of settings has; a single line without is meant as a path."""


def pasted_text(pasted: str) -> str:
    """A paste as it can be shown and read: lines end as here, and no character moves the cursor or hides.

    Raises NotImportable for what is no text, or more of it than any settings have.
    """
    # Terminals send a carriage return for each end of a line.
    lines = re.split(r"\r\n|\r|\n", decoded(pasted.encode("utf-8", "replace"), tr(PASTED)))
    return "\n".join("\t".join(plain_text(part) for part in line.split("\t")) for line in lines)


def texts_of_pasted(text: str) -> list[Text]:
    """The files named by the first lines, then the rest as a text; [] for nothing.

    The text keeps its line numbers, and may be indented as a whole. Raises NotImportable for a file that cannot be
    read, and for a single line that is neither a file nor settings.
    """
    lines = text.splitlines()
    texts: list[Text] = []
    for number, line in enumerate(lines):
        path = _named_file(line)
        if path is not None:
            texts.append(read_text(path))
        elif line.strip():
            rest = textwrap.dedent("\n".join([*[""] * number, *lines[number:]])).rstrip()
            if "\n" in rest.strip() or SETTINGS.search(rest):
                return [*texts, Text(tr(PASTED), rest, Path())]
            return [*texts, Text(COMMAND, rest, Path()) if is_command(rest) else text_of(rest.strip())]
    return texts


def _named_file(line: str) -> str | None:
    """The file that a line names, as it is, in quotes, or as the address that a file manager gives."""
    word = line.strip()
    if not word or len(word) > LONGEST_PATH:
        return None
    names = [word, unquote(urlsplit(word).path)] if word.startswith("file://") else [word]
    try:
        words = shlex.split(word)
    except ValueError:
        words = []
    return next((name for name in (*names, *(words if len(words) == 1 else ())) if _is_file(name)), None)


# An import kept as a profile of the user's own.

FALLBACK = "imported"
MOST_TRIES = 1000
LONGEST_NAME = 60


def save_import(imported: Imported, name: str | None = None, replace: bool = False) -> SavedProfile:
    """Write the values of an import as profile `name`, else under a free name after the first file.

    Raises UsageError: the name is taken (unless `replace`) or cannot be one.
    """
    return save_profile(
        name if name is not None else free_name(imported),
        PlanRequest(overrides=dict(imported.values)),
        description=tr("imported from {files}", files=", ".join(dict.fromkeys(part.file for part in imported.parts))),
        replace=replace,
    )


def free_name(imported: Imported) -> str:
    """After the first file, with a number where that name is taken."""
    stem = name_after(imported)
    taken = {name.lower() for name in profile_files()}
    names = [stem, *(f"{stem}-{number}" for number in range(2, MOST_TRIES))]
    return next((name for name in names if name.lower() not in taken), stem)


def name_after(imported: Imported) -> str:
    """The name of the first file without its ending, as a profile's name may be; of what stands in none, that of its
    script."""
    scripts = [named.path for part in imported.parts for named in part.references if named.role == "script"]
    file = imported.parts[0].file
    first = file if file not in (COMMAND, tr(PASTED)) else (scripts or [FALLBACK])[0]
    stem = re.sub(r"[^\w.-]+", "-", Path(first).stem, flags=re.ASCII).strip("-._")
    return stem[:LONGEST_NAME].rstrip("-._") or FALLBACK


def import_json(imported: Imported, saved: SavedProfile | None) -> dict[str, Any]:
    """The stable keys of `import --json`; `kind` is that of the first, each has its own under `files`."""
    return {
        "kind": imported.kind,
        "files": [{"file": part.file, "kind": part.kind} for part in imported.parts],
        **imported.to_json(),
        "values": dict(imported.values),
        "profile": None if saved is None else {"name": saved.name, "file": saved.file},
    }
