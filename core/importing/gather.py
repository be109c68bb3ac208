"""The texts of an import, from files, pipes and pastes."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, Severity, os_reason
from trainwiz.core.files import at_home, read_small
from trainwiz.core.importing.merge import Merged, checked, merge
from trainwiz.core.importing.recognise import is_command, read
from trainwiz.core.importing.report import Imported, NotImportable, Reference, refusal
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.save import SavedProfile, save_profile
from trainwiz.core.profile.store import profile_files
from trainwiz.core.text import plain_text

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
    "arguments": mark("the file of arguments"),
}


@dataclass(frozen=True, slots=True)
class Text:
    """One thing to read: `name` as it was given, `folder` from which the files that it names are looked for."""

    name: str
    text: str
    folder: Path


@dataclass(slots=True)
class Gathered:
    """What was read, in the order of what was given, each followed by what it names."""

    imports: list[Imported] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def gather(texts: Sequence[Text]) -> Gathered:
    """Reads all texts and what they name. Raises NotImportable with a sentence for each that is not importable."""
    gathered = Gathered()
    refused: list[Finding] = []
    seen = {text.folder / text.name for text in texts}
    for text in texts:
        try:
            _read(text, gathered, seen)
        except NotImportable as error:
            refused += error.findings
    if refused:
        raise NotImportable(refused)
    return gathered


def _read(text: Text, gathered: Gathered, seen: set[Path]) -> None:
    imported = read(text.text, text.name)
    gathered.imports.append(imported)
    for reference in imported.references:
        _follow(reference, text, gathered, seen)


def _follow(reference: Reference, text: Text, gathered: Gathered, seen: set[Path]) -> None:
    path = _place(reference.path, text.folder)
    if path in seen or len(seen) > MOST_FILES or (reference.role == "script" and path is None):
        return
    where = f"{text.name}:{reference.line}" if reference.line else text.name
    named = {"what": tr(ROLES[reference.role]), "path": plain_text(reference.path, LONGEST_SHOWN), "file": text.name}
    if path is None:
        message = tr(
            "{file} names {what} {path}, which is not here; what it says is missing, so import it too.", **named
        )
        gathered.findings.append(Finding("missing_file", "warning", where, message))
        return
    seen.add(path)
    try:
        _read(read_text(str(path), shown=_short(path, text.folder)), gathered, seen)
    except NotImportable as error:
        severity: Severity = "note" if reference.role == "script" else "warning"
        for finding in error.findings:
            message = tr("{file} names {what} {path}, which was left out.", **named)
            gathered.findings.append(Finding(finding.code, severity, where, f"{message} {finding.message}"))


def _place(name: str, folder: Path) -> Path | None:
    """The file that is meant: from here, as a shell would take it, else from the folder of what names it."""
    if "\0" in name or not name:
        return None
    for path in (at_home(Path(name)), folder / name):
        try:
            if path.is_file():
                return path
        except OSError:
            continue
    return None


def _short(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if folder != Path() and path.is_relative_to(folder) else str(path)


def read_text(name: str, shown: str | None = None) -> Text:
    """The text of a file. Raises NotImportable for what cannot be read or is no text."""
    path, label = at_home(Path(name)), plain_text(shown or name, LONGEST_SHOWN)
    try:
        data = read_small(path)
    except OSError as error:
        message = tr("{file} cannot be read: {reason}.", file=label, reason=os_reason(error))
        raise refusal(label, message, "unreadable_file") from None
    return Text(label, decoded(data, label), path.parent)


def decoded(data: bytes, label: str) -> str:
    """The text of some bytes. Raises NotImportable for what is none."""
    if len(data) > MOST_TEXT_BYTES:
        message = tr(
            "{file} has more than {size} MiB; settings and scripts are smaller.", file=label, size=MOST_TEXT_BYTES >> 20
        )
        raise refusal(label, message)
    encoding = next((name for mark_, name in ENCODINGS if data.startswith(mark_)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        message = tr("{file} is no text (byte {start} is not UTF-8).", file=label, start=error.start)
        raise refusal(label, message) from None
    if "\0" in text:
        raise refusal(label, tr("{file} is no text: it holds zero bytes.", file=label))
    return text


def texts_of(arguments: Sequence[str]) -> list[Text]:
    """What the arguments of the command mean: files, and command lines in quotes. Raises NotImportable for neither."""
    if not arguments:
        return []
    texts: list[Text] = []
    refused: list[Finding] = []
    for argument in arguments:
        path = at_home(Path(argument)) if "\0" not in argument else Path()
        try:
            if not argument.strip():
                raise refusal("FILE", tr("An argument is empty; name a file, or a launch command in quotes."))
            if _is_there(path):
                texts.append(read_text(argument))
            elif is_command(argument):
                texts.append(Text(COMMAND, argument, Path()))
            else:
                label = plain_text(argument, LONGEST_SHOWN)
                message = tr("There is no file {file}, and it is no launch command either.", file=label)
                raise refusal(label, message, "no_such_path")
        except NotImportable as error:
            refused += error.findings
    if refused:
        raise NotImportable(refused)
    return texts


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


# All texts of one import, and what they name, as one checked import.


def import_together(texts: Sequence[Text]) -> Merged:
    """There must be a text. Raises NotImportable with a sentence for each that cannot be imported."""
    gathered = gather(texts)
    return checked(merge(gathered.imports, gathered.findings))


# What somebody typed or pasted into a box: paths of files, each on a line of its own, and then perhaps a text.

LONGEST_PATH = 4096
SETTINGS = re.compile(r"[:={([<>#]")
"""What every text of settings has; a single line without is meant as a path."""


def pasted_text(pasted: str) -> str:
    """A paste as it can be shown and read: lines end as here, and no character moves the cursor or hides.

    Raises NotImportable for what is no text, or more of it than any settings have.
    """
    if len(pasted.encode("utf-8", "replace")) > MOST_TEXT_BYTES:
        message = tr(
            "What was pasted has more than {size} MiB; settings and scripts are smaller.", size=MOST_TEXT_BYTES >> 20
        )
        raise refusal(tr(PASTED), message)
    if "\0" in pasted:
        raise refusal(tr(PASTED), tr("What was pasted is no text: it holds zero bytes."))
    # Terminals send a carriage return for each end of a line.
    lines = re.split(r"\r\n|\r|\n", pasted)
    return "\n".join("\t".join(plain_text(part) for part in line.split("\t")) for line in lines)


def texts_of_pasted(text: str) -> list[Text]:
    """The files named by the first lines, then the rest as a text; [] for nothing.

    The text keeps its line numbers, and may be indented as a whole. Raises NotImportable for a file that cannot be
    read, and for a single line that is neither a file nor settings.
    """
    lines = text.splitlines()
    texts: list[Text] = []
    first_of_rest = len(lines)
    for number, line in enumerate(lines):
        path = _named_file(line)
        if path is not None:
            texts.append(read_text(path))
        elif line.strip():
            first_of_rest = number
            break
    if first_of_rest == len(lines):
        return texts
    rest = textwrap.dedent("\n".join([*[""] * first_of_rest, *lines[first_of_rest:]])).rstrip()
    if "\n" in rest.strip() or SETTINGS.search(rest):
        return [*texts, Text(tr(PASTED), rest, Path())]
    return [*texts, *(texts_of([rest.strip()]) if not is_command(rest) else [Text(COMMAND, rest, Path())])]


def _named_file(line: str) -> str | None:
    """The file that a line names, as it is, in quotes, or as the address that a file manager gives."""
    word = line.strip()
    if not word or len(word) > LONGEST_PATH or "\0" in word:
        return None
    return next((name for name in (word, *_unquoted(word)) if _is_file(name)), None)


def _unquoted(word: str) -> list[str]:
    if word.startswith("file://"):
        return [unquote(urlsplit(word).path)]
    try:
        words = shlex.split(word)
    except ValueError:
        return []
    return words if len(words) == 1 else []


def _is_file(name: str) -> bool:
    try:
        return at_home(Path(name)).is_file()
    except (OSError, ValueError):
        return False


# An import kept as a profile of the user's own.

FALLBACK = "imported"
MOST_TRIES = 1000
LONGEST_NAME = 60


def keep(merged: Merged, name: str | None = None, replace: bool = False) -> SavedProfile:
    """Write the values of an import as profile `name`, else under a free name after the first file.

    Raises UsageError: the name is taken (unless `replace`) or cannot be one.
    """
    return save_profile(
        name if name is not None else free_name(merged),
        request_of(merged),
        description=tr("imported from {files}", files=", ".join(dict.fromkeys(part.file for part in merged.parts))),
        replace=replace,
    )


def request_of(merged: Merged) -> PlanRequest:
    """What a plan of the imported values is asked with."""
    return PlanRequest(overrides=dict(merged.values))


def free_name(merged: Merged) -> str:
    """After the first file, with a number where that name is taken."""
    stem = name_after(merged)
    taken = {name.lower() for name in profile_files()}
    names = [stem, *(f"{stem}-{number}" for number in range(2, MOST_TRIES))]
    return next((name for name in names if name.lower() not in taken), stem)


def name_after(merged: Merged) -> str:
    """The name of the first file without its ending, as a profile's name may be; of what stands in none, that of its script."""
    files: Sequence[str] = [part.file for part in merged.parts]
    scripts = [reference.path for part in merged.parts for reference in part.references if reference.role == "script"]
    first = files[0] if files[0] not in (COMMAND, tr(PASTED)) else (scripts or [FALLBACK])[0]
    stem = re.sub(r"[^\w.-]+", "-", Path(first).stem, flags=re.ASCII).strip("-._")
    return stem[:LONGEST_NAME].rstrip("-._") or FALLBACK


def import_json(merged: Merged, saved: SavedProfile | None) -> dict[str, Any]:
    """The stable keys of `import --json`; `kind` is that of the first, each has its own under `files`."""
    return {
        "kind": merged.kind,
        "files": [{"file": part.file, "kind": part.kind} for part in merged.parts],
        **merged.report.to_json(),
        "values": dict(merged.values),
        "profile": None if saved is None else {"name": saved.name, "file": saved.file},
    }
