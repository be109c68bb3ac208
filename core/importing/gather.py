"""The texts of an import, from files, pipes and pastes, and which reader each is for; the profile that it becomes."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwiz.core.config.build import build_config, check_values
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.run import RunConfig
from trainwiz.core.errors import Finding, Severity, UsageError, os_reason, sort_findings
from trainwiz.core.files import at_home, read_small
from trainwiz.core.importing import command_line, engines, trainer
from trainwiz.core.importing.engines import WEAK_STRATEGIES, settle
from trainwiz.core.importing.names import TRAINERS_OWN
from trainwiz.core.importing.report import (
    ROLES,
    Document,
    Dropped,
    Imported,
    Kind,
    NotImportable,
    Unknown,
    finding,
    looks_like_json,
    read_document,
    refusal,
)
from trainwiz.core.importing.values import shown
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.save import SavedProfile, save_profile
from trainwiz.core.profile.store import profile_files
from trainwiz.core.text import plain_text

# Which reader a text is for.

LAUNCHERS = re.compile(
    r"(?:^|[\s;&|(/'\"`])(?:accelerate(?:-launch|\s+launch)|torchrun|deepspeed|llamafactory-cli|lmf|trl|axolotl"
    r"|torch\.distributed\.(?:launch|run)|python[\d.]*)(?=\s|$)"
)
"""A line that starts a training, or a program that may."""
OTHERS = (
    ("log_history", "global_step"),
    ("architectures", "model_type"),
    ("schema_version", "origins"),
    ("name", "values"),
)
"""Keys of a log, a model, the record of a run, a profile."""
TELLING = TRAINERS_OWN | {"learning_rate", "output_dir", "max_steps", "weight_decay", "report_to", "model_name_or_path"}
MEANT_AS_PYTHON = re.compile(r"^\s*(?:from\s+[\w.]+\s+import\s|import\s+\w)|\w(?:Arguments|Config)\s*\(", re.MULTILINE)
OF_TOOLS = re.compile(r".*(?:\.(?:toml|cfg|ini|csv|ipynb|html|md|rst)|makefile)", re.IGNORECASE | re.DOTALL)
"""Names of files that hold none of the kinds, though they name programs that train."""
FENCE = re.compile(r"^[ \t>]*(?:`{3}|~{3})|(?<![<$(])<<-?[ \t]*['\"\\]?[A-Za-z_]", re.MULTILINE)
"""What stands between two of them, or in a here-document, is of another kind."""


def read(text: str, file: str) -> Imported:
    """The import of a text, whatever kind it is. Raises NotImportable with one sentence."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise refusal("not_importable.empty", file)
    if OF_TOOLS.fullmatch(file):
        raise refusal("not_importable.kinds", file)
    if file.endswith(".py") and not looks_like_json(text):
        return trainer.read_python(text, file)
    try:
        document = read_document(text, file)
    except NotImportable:
        if file.endswith((".yaml", ".yml", ".json", ".jsonc")) or looks_like_json(text):
            raise
    else:
        imported = _reader(document, file)(document, file)
        for line, first, last in document.twice:
            imported.say(line, "contradiction.two_values", first=first, second=last, counts=last)
        return imported
    if FENCE.search(text):
        raise refusal("not_importable.among_other_text", file)
    if MEANT_AS_PYTHON.search(text):
        return trainer.read_python(text, file)
    if LAUNCHERS.search(text):
        return command_line.read(text, file)
    raise refusal("not_importable.kinds", file)


def _reader(document: Document, file: str) -> Callable[[Document, str], Imported]:
    names = set(document.values)
    # `fp16: {enabled: ...}` is DeepSpeed's; the Trainer's fp16 is yes or no.
    halves = any(isinstance(document.values.get(name), dict) for name in ("fp16", "bf16", "bfloat16"))
    if "distributed_type" in names:
        return engines.read_accelerate
    if "zero_optimization" in names or halves:
        return engines.read_deepspeed
    inner = (str(name) for section in document.values.values() if isinstance(section, dict) for name in section)
    names_inside = {*names, *inner}
    known = len([name for name in names_inside if trainer.is_known(name)]) if TELLING & names_inside else 0
    of_deepspeed, of_accelerate = len(engines.DEEPSPEED.keys() & names), len(engines.ACCELERATE.keys() & names)
    most = max(known, of_deepspeed, of_accelerate)
    if any(names.issuperset(of_another) for of_another in OTHERS) or most < (1 if known else 2):
        raise refusal("not_importable.kinds", file)
    if most == known:
        return trainer.read
    return engines.read_deepspeed if most == of_deepspeed else engines.read_accelerate


# What was given to an import, with the files that it names, as far as they are here.

MOST_TEXT_BYTES = 2**20
MOST_FILES = 20
COMMAND, PASTED = "command", mark("pasted text")
"""What a text is called that comes from no file."""
LONGEST_SHOWN = 120
ENCODINGS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


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
    imports += [imported, *imported.inner]
    for reference in imported.references:
        path = next((path for path in (Path(reference.value), text.folder / reference.value) if _is_file(path)), None)
        if path in seen or len(seen) > MOST_FILES or (reference.name == "script" and path is None):
            continue
        where = f"{text.name}:{reference.line}" if reference.line else text.name
        words = {"what": tr(ROLES[reference.name]), "path": plain_text(reference.value, LONGEST_SHOWN)}
        if path is None:
            findings.append(finding("missing_file", where, file=text.name, **words))
            continue
        seen.add(path)
        within = text.folder != Path() and path.is_relative_to(text.folder)
        try:
            _read(read_text(str(path), str(path.relative_to(text.folder) if within else path)), imports, findings, seen)
        except NotImportable as error:
            severity: Severity = "note" if reference.name == "script" else "warning"
            findings += (replace(one, severity=severity, where=where) for one in error.findings)


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
    if b"\0" in data and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise refusal("not_importable.kinds", label)
    encoding = next((name for start, name in ENCODINGS if data.startswith(start)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise refusal("not_importable.no_utf8", label, start=error.start) from None


def text_of(argument: str) -> Text:
    """What an argument of the command means: a file, or a command line in quotes. Raises NotImportable for neither."""
    try:
        if argument.strip() and at_home(Path(argument)).exists():
            return read_text(argument)
    except (OSError, ValueError):
        pass
    if LAUNCHERS.search(argument):
        return Text(COMMAND, argument, Path())
    raise refusal("no_such_path", plain_text(argument, LONGEST_SHOWN) or "FILE")


# What somebody typed or pasted into a box: paths of files, each on a line of its own, and then perhaps a text.

LONGEST_PATH = 4096
SETTINGS = re.compile(r"[:={([<>#]")
"""What every text of settings has; a single line without is meant as a path."""


def pasted_text(pasted: str) -> str:
    """A paste as it can be shown and read: no character moves the cursor or hides. Raises NotImportable as `decoded`."""
    # Terminals send a carriage return for each end of a line.
    lines = re.split(r"\r\n|\r|\n", decoded(pasted.encode("utf-8", "replace"), tr(PASTED)))
    return "\n".join("\t".join(plain_text(part) for part in line.split("\t")) for line in lines)


def texts_of_pasted(text: str) -> list[Text]:
    """The files named by the first lines, then the rest as a text with its line numbers; [] for nothing.

    Raises NotImportable for a file that cannot be read, and for a single line that is neither a file nor settings.
    """
    lines = text.splitlines()
    texts: list[Text] = []
    for number, line in enumerate(lines):
        # A file manager puts quotes around the name.
        name = line.strip().strip("'\"")
        if 0 < len(name) <= LONGEST_PATH and _is_file(name):
            texts.append(read_text(name))
        elif name:
            rest = textwrap.dedent("\n".join([*[""] * number, *lines[number:]])).rstrip()
            is_text = "\n" in rest.strip() or SETTINGS.search(rest) is not None
            return [*texts, Text(tr(PASTED), rest, Path()) if is_text else text_of(rest.strip())]
    return texts


# An import kept as a profile of the user's own.

FALLBACK = "imported"
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
    stem, taken = name_after(imported), {name.lower() for name in profile_files()}
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name.lower() not in taken)


def name_after(imported: Imported) -> str:
    """The name of the first file without its ending, as a profile's name may be; of what stands in none, that of its
    script."""
    scripts = [named.value for part in imported.parts for named in part.references if named.name == "script"]
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


# Several imports as one. The order is that of accelerate and transformers: the command over the accelerate file that it
# names (launch.py, _validate_launch_command), the Trainer's precision over the launcher's
# (TrainingArguments.__post_init__), and what DeepSpeed does from its own file, because the Trainer refuses other values
# beside it (trainer_config_process).

ORDER: Sequence[Kind] = ("accelerate", "deepspeed", "training_arguments", "launch_command")
"""The later one wins, but for what DeepSpeed does from its own file: it wins over all."""
OF_DEEPSPEED = ("engine.strategy", "engine.offload")
SAME_HALF = frozenset({"bf16", "bf16-true"})
BATCH = ("batch.target_samples", "batch.micro_batch_size", "batch.gradient_accumulation_steps")


def merge(parts: Sequence[Imported], findings: Iterable[Finding] = ()) -> Imported:
    """One import of all `parts`, which are in the order in which they were given; there must be one."""
    merged = Imported(parts[0].kind, parts[0].file, parts=list(parts))
    for part in parts:
        merged.values |= part.defaults
        merged.renamed += part.renamed
        merged.unknown += part.unknown
        merged.dropped += part.dropped
        merged.findings += part.findings
    merged.findings += findings
    winners: dict[str, Imported] = {}
    for key, claims in _claims(parts).items():
        winner, value = claims[-1]
        winners[key], merged.values[key] = winner, value
        # To override a file is what the options of a command are for.
        severity: Severity = "note" if winner.kind == "launch_command" else "warning"
        place = winner.place_of(key)
        for part, other in claims:
            # torchrun and its like start processes; that the script then shards contradicts nothing.
            weak = key == "engine.strategy" and part.kind == "launch_command" and other in WEAK_STRATEGIES
            if not weak and not _same(other, value):
                words = {"key": key, "value": shown(value), "other": shown(other), "other_place": part.place_of(key)}
                merged.findings.append(finding("contradiction.two_places", place, severity, place=place, **words))
    settle(merged.values)
    _keep_what_counts(merged, winners)
    return merged


def _claims(parts: Sequence[Imported]) -> dict[str, list[tuple[Imported, Any]]]:
    """Key -> who says something of it, and what; the last counts."""
    ordered = sorted(parts, key=lambda part: ORDER.index(part.kind))
    launchers = [(part, part.values if part.kind == "accelerate" else part.setup) for part in ordered]
    claims: dict[str, list[tuple[Imported, Any]]] = {}
    for part, values in [*launchers, *((part, part.values) for part in ordered if part.kind != "accelerate")]:
        for key, value in values.items():
            claims.setdefault(key, []).append((part, value))
    for key in OF_DEEPSPEED:
        claims.get(key, []).sort(key=lambda claim: claim[0].kind == "deepspeed")
    return claims


def _same(one: Any, other: Any) -> bool:
    """Equal, or both bf16: whether the weights are too, a launcher does not say."""
    return bool(one == other) or (isinstance(one, str) and {one, other} <= SAME_HALF)


def _keep_what_counts(merged: Imported, winners: Mapping[str, Imported]) -> None:
    """The settings that gave a value that counts; those that another one overruled are dropped."""
    for part in merged.parts:
        for entry in part.mapped:
            value, winner = merged.values.get(entry.key), winners.get(entry.key, part)
            if _same(entry.set_to, value):
                merged.mapped.append(entry)
            elif winner is part and entry.set_to in (part.values.get(entry.key), part.setup.get(entry.key)):
                # Processes of all nodes became those of one.
                merged.mapped.append(replace(entry, set_to=value))
            else:
                place = winner.place_of(entry.key)
                why = tr("{place} sets {value}, which takes precedence.", place=place, value=shown(value))
                merged.dropped.append(Dropped(*entry.given(), why))


# All texts of one import, checked together.


def checked(merged: Imported) -> Imported:
    """The same without values that no run can have, and with a finding for each thing that is wrong or missing."""
    _leave_out_refused(merged)
    _whole_batch(merged)
    if not merged.values:
        merged.say(None, "nothing_mapped")
    if "model.name" not in merged.values:
        merged.say(None, "missing_model", default=shown(RunConfig().value("model.name")))
    if not any(key.startswith("data.sources") for key in merged.values):
        merged.say(None, "missing_data")
    merged.findings = list(sort_findings(merged.findings))
    return merged


def _leave_out_refused(merged: Imported) -> None:
    """Values that no run can have are kept in the report as unknown."""
    good, findings = check_values(RunConfig(), merged.values, merged.place_of)
    good = good if findings else dict(merged.values)
    try:
        build_config(None, good)
    except UsageError as error:
        for one in error.findings:
            findings.append(replace(one, where=merged.place_of(one.where)))
            good.pop(one.where, None)
    for entry in [entry for entry in merged.mapped if entry.key in merged.values and entry.key not in good]:
        merged.mapped.remove(entry)
        merged.unknown.append(Unknown(*entry.given()))
    for one in findings:
        message = finding("bad_value.is_left_out", one.where, message=one.message).message
        merged.findings.append(replace(one, severity="warning", message=message))
    merged.values = good


def _whole_batch(merged: Imported) -> None:
    """Sequences of a step = micro-batch x accumulation x processes: what two of them say decides the third, and a plan
    for other GPUs keeps what a step sees."""
    values = merged.values
    total, micro, accumulation = (values.get(key) for key in BATCH)
    processes, place = values.get("engine.processes"), merged.place_of(BATCH[0])
    if micro is None or {"batch.target_tokens", "batch.target_real_tokens"} & set(values):
        return
    window, what = micro * (accumulation or 1), ""
    world = int(processes or 1) * int(values.get("engine.nodes") or 1)
    product = window * world
    if processes is None:
        # The only number of processes with which the figures are true; DeepSpeed refuses every other one.
        if total is not None and accumulation is not None and total % window == 0 and "engine.device" not in values:
            what, values["engine.processes"] = "follows.so_many", total // window
            world = total // window
        elif total is None and accumulation is not None:
            what, place = "follows.any_number", merged.place_of(BATCH[1])
    elif total is None and accumulation is not None:
        what, place, values[BATCH[0]] = "follows", merged.place_of(BATCH[1]), product
    elif total is not None and (total % product if accumulation is None else total != product):
        what, values[BATCH[0]] = "contradiction.contradicts", product
        why = mark("It contradicts micro-batch, gradient accumulation and the number of processes.")
        merged.dropped += [Dropped(*entry.given(), why) for entry in merged.mapped if entry.key == BATCH[0]]
        merged.mapped = [entry for entry in merged.mapped if entry.key != BATCH[0]]
    if what:
        figures = {"micro": micro, "accumulation": accumulation or 1, "window": window, "world": world}
        total = product if total is None else total
        merged.findings.append(finding(what, place, place=place, product=product, total=total, **figures))
