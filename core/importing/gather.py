"""The texts of an import, from files, pipes and pastes, and which reader each is for; the profile that it becomes."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from trainwiz.core.config.build import build_config
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.yaml_text import YamlDocument, parse_yaml
from trainwiz.core.errors import Finding, Severity, UsageError, os_reason, sort_findings
from trainwiz.core.files import at_home, is_file, read_small
from trainwiz.core.importing import command_line, engines, python_source, trainer
from trainwiz.core.importing.engines import NODES, PROCESSES, STRATEGY
from trainwiz.core.importing.names import TRAINERS_OWN
from trainwiz.core.importing.report import (
    NO_SETTINGS,
    Entry,
    Imported,
    Kind,
    NotImportable,
    at,
    finding,
    left_out,
    refusal,
    shown,
)
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
    {"log_history", "global_step"}, {"architectures", "model_type"}, {"schema_version", "origins"}, {"name", "values"},
)  # fmt: skip
"""Keys of a log, a model, the record of a run, a profile."""
TELLING = TRAINERS_OWN | {"learning_rate", "output_dir", "max_steps", "weight_decay", "report_to", "model_name_or_path"}
MEANT_AS_PYTHON = re.compile(r"^\s*(?:from\s+[\w.]+\s+import\s|import\s+\w)|\w(?:Arguments|Config)\s*\(", re.MULTILINE)
OF_TOOLS = re.compile(r".*(?:\.(?:toml|cfg|ini|csv|ipynb|html|md|rst)|makefile)", re.IGNORECASE | re.DOTALL)
"""Names of files that hold none of the kinds, though they name programs that train."""
FENCE = re.compile(r"^[ \t>]*(?:`{3}|~{3})|(?<![<$(])<<-?[ \t]*['\"\\]?[A-Za-z_]", re.MULTILINE)
"""What stands between two of them, or in a here-document, is of another kind."""
COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)
"""DeepSpeed reads its JSON with json.load, but files of the wild carry `//` and `/* */`."""
MOST_CHARACTERS = 2**17
"""Far above every file of settings, and parsed in seconds."""


def read(text: str, file: str) -> Imported:
    """The import of a text, whatever kind it is. Raises NotImportable with one sentence."""
    text = text.removeprefix("\ufeff")
    if not re.sub(r"(?m)^\s*#.*$", "", text).strip():
        raise refusal("not_importable.empty", file)
    if OF_TOOLS.fullmatch(file) or len(text) > MOST_CHARACTERS:
        raise refusal("not_importable.kinds", file)
    # YAML reads JSON too, with idle commas and comments of its own.
    is_json = COMMENT.sub(_blank, text).lstrip()[:1] in ("{", "[")
    if file.endswith(".py") and not is_json:
        return python_source.read_python(text, file)
    if is_json:
        text = COMMENT.sub(_blank, text).replace("\t", " ")
    try:
        document = parse_yaml(text, Path(file))
    except UsageError as error:
        if is_json or file.endswith((".yaml", ".yml", ".json", ".jsonc")):
            raise NotImportable(error.findings) from None
    else:
        return _read_mapping(document, file)
    if FENCE.search(text):
        raise refusal("not_importable.among_other_text", file)
    if MEANT_AS_PYTHON.search(text):
        return python_source.read_python(text, file)
    if LAUNCHERS.search(text):
        return command_line.read(text, file)
    raise refusal("not_importable.kinds", file)


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])


SURE = 1000


def _read_mapping(document: YamlDocument, file: str) -> Imported:
    """By the reader that knows most of its names, or a key that only one kind of file has (SURE)."""
    names = {str(name) for name in document.values}
    inner = (str(name) for section in document.values.values() if isinstance(section, dict) for name in section)
    names_inside = {*names, *inner}
    known = sum(map(trainer.is_known, names_inside)) if TELLING & names_inside else 0
    # `fp16: {enabled: ...}` is DeepSpeed's; the Trainer's fp16 is yes or no.
    halves = any(isinstance(document.values.get(name), dict) for name in ("fp16", "bf16", "bfloat16"))
    of_deepspeed = len(engines.DEEPSPEED.keys() & names) + SURE * ("zero_optimization" in names or halves)
    of_accelerate = len(engines.ACCELERATE.keys() & names) + 2 * SURE * ("distributed_type" in names)
    readers = (
        (known, trainer.read),
        (of_deepspeed, engines.read_deepspeed),
        (of_accelerate, engines.read_accelerate),
    )
    most, reader = max(readers, key=itemgetter(0))
    if most < (1 if known else 2) or (most < SURE and any(names.issuperset(keys) for keys in OTHERS)):
        raise refusal("not_importable.kinds", file)
    return reader(document, file)


# What was given to an import, with the files that it names, as far as they are here.

MOST_TEXT_BYTES = 2**20
MOST_FILES = 20
COMMAND, PASTED = "command", mark("pasted text")
"""What a text is called that comes from no file."""
LONGEST_SHOWN = 120


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
    for reference in [named for part in (imported, *imported.inner) for named in part.references]:
        path = next(
            (path for path in (Path(reference.value), text.folder / reference.value) if is_file(at_home(path))), None
        )
        if path in seen or len(seen) > MOST_FILES or (reference.name == "script" and path is None):
            continue
        where = at(text.name, reference.line)
        if path is None:
            path_words = plain_text(reference.value, LONGEST_SHOWN)
            findings.append(finding("missing_file", where, file=text.name, path=path_words))
            continue
        seen.add(path)
        try:
            _read(read_text(str(path), reference.value), imports, findings, seen)
        except NotImportable as error:
            severity: Severity = "note" if reference.name == "script" else "warning"
            findings += (replace(one, severity=severity, where=where) for one in error.findings)


def _is_file(name: str) -> bool:
    return is_file(at_home(Path(name)))


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
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\0" in data and not is_utf16:
        raise refusal("not_importable.kinds", label)
    try:
        return data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal("not_importable.no_utf8", label, start=error.start) from None


def text_of(argument: str) -> Text:
    """What an argument of the command means: a file, or a command line in quotes. Raises NotImportable for neither."""
    if _is_file(argument):
        return read_text(argument)
    if LAUNCHERS.search(argument):
        return Text(COMMAND, argument, Path())
    raise refusal("no_such_path", plain_text(argument, LONGEST_SHOWN) or "FILE")


# What somebody typed or pasted into a box: paths of files, each on a line of its own, and then perhaps a text.

SETTINGS = re.compile(r"[:={([<>#]")
"""What every text of settings has; a single line without is meant as a path."""


def pasted_text(pasted: str) -> str:
    """A paste as it can be shown and read: no character moves the cursor or hides. Raises NotImportable as `decoded`."""
    # Terminals send a carriage return for each end of a line.
    lines = re.split(r"\r\n|\r|\n", decoded(pasted.encode("utf-8", "replace"), tr(PASTED)))
    return "\n".join("\t".join(plain_text(part) for part in line.split("\t")) for line in lines)


def texts_of_pasted(text: str) -> list[Text]:
    """The files named by the first lines, then the rest as a text with its line numbers; [] for nothing. Raises
    NotImportable for a file that cannot be read, and for a single line that is neither a file nor settings."""
    lines = text.splitlines()
    # A file manager puts quotes around the name.
    names = [line.strip().strip("'\"") for line in lines]
    count = next((number for number, name in enumerate(names) if name and not _is_file(name)), len(names))
    texts = [read_text(name) for name in names[:count] if name]
    rest = textwrap.dedent("\n".join([*[""] * count, *lines[count:]])).rstrip()
    if not rest.strip():
        return texts
    is_text = "\n" in rest.strip() or SETTINGS.search(rest) is not None
    return [*texts, Text(tr(PASTED), rest, Path()) if is_text else text_of(rest.strip())]


# An import kept as a profile of the user's own.

FALLBACK = "imported"
LONGEST_NAME = 60


def save_import(imported: Imported, name: str | None = None, replace: bool = False) -> SavedProfile:
    """Write the values as profile `name`, else under a free name. Raises UsageError for a name that is taken (unless
    `replace`) or cannot be one."""
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
    file = imported.parts[0].file
    if file in (COMMAND, tr(PASTED)):
        references = (named for part in imported.parts for named in part.references)
        file = next((named.value for named in references if named.name == "script"), FALLBACK)
    stem = re.sub(r"[^\w.-]+", "-", Path(file).stem, flags=re.ASCII).strip("-._")
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
OF_DEEPSPEED = (STRATEGY, "engine.offload")
SAME_HALF = frozenset({"bf16", "bf16-true"})
"""Whether the weights are bf16 too, a launcher does not say."""
BATCH = ("batch.target_samples", "batch.micro_batch_size", "batch.gradient_accumulation_steps")


def _strength(part: Imported) -> tuple[bool, int]:
    """A launcher's options count after an accelerate file and before all that the script is given."""
    return part.kind != "accelerate" and not part.is_launcher, ORDER.index(part.kind)


def merge(parts: Sequence[Imported], findings: Iterable[Finding] = ()) -> Imported:
    """One import of all `parts`, which are in the order in which they were given; there must be one."""
    texts = [part for part in parts if not part.is_launcher]
    merged = Imported(parts[0].kind, parts[0].file, parts=texts, findings=[*findings])
    claims: dict[str, tuple[Imported, Entry]] = {}
    for part in sorted(parts, key=_strength):
        merged.values |= part.defaults
        for entry in part.mapped:
            before = claims.get(entry.key, (part,))[0]
            if before.kind != "deepspeed" or part.kind == "deepspeed" or entry.key not in OF_DEEPSPEED:
                claims[entry.key] = (part, entry)
    merged.values |= {key: entry.set_to for key, (_, entry) in claims.items()}
    for part in parts:
        merged.unknown += part.unknown
        merged.dropped += part.dropped
        merged.renamed += part.renamed
        merged.findings += part.findings
        for entry in sorted(part.mapped, key=lambda entry: entry.line or 0):
            counts = claims[entry.key][1]
            if entry.set_to == counts.set_to or {str(entry.set_to), str(counts.set_to)} <= SAME_HALF:
                merged.mapped.append(entry)
            else:
                merged.overrule(entry, entry.key, entry.set_to, counts.place(), counts.set_to)
    if PROCESSES in claims and claims[PROCESSES][0].counts_all_nodes:
        _share_out(merged, merged.values.get(NODES, 1))
    _strategy_of_processes(merged, parts)
    return merged


def _share_out(merged: Imported, nodes: int) -> None:
    """The processes of all machines together, as those of each."""
    total = merged.values[PROCESSES]
    entries = merged.take_out(PROCESSES)
    if total % nodes:
        why = mark("The processes of all machines are not a multiple of the number of machines.")
        merged.dropped += [replace(entry, why=why) for entry in entries]
    else:
        merged.values[PROCESSES] = total // nodes
        merged.mapped += [replace(entry, set_to=total // nodes) for entry in entries]


def _strategy_of_processes(merged: Imported, parts: Sequence[Imported]) -> None:
    """One process shards nothing; several have a whole model each (accelerate's _validate_launch_command), unless a
    file says otherwise, whether it is here or not."""
    values = merged.values
    in_a_file = any(reference.name in ("accelerate", "deepspeed") for part in parts for reference in part.references)
    if PROCESSES in values and values.get(STRATEGY, None if in_a_file else "ddp") in ("ddp", "single"):
        values[STRATEGY] = "single" if values[PROCESSES] * values.get(NODES, 1) == 1 else "ddp"


def checked(merged: Imported) -> Imported:
    """The same without values that no run can have, and with a finding for each thing that is wrong or missing."""
    try:
        build_config(None, merged.values)
    except UsageError as error:
        for refused in error.findings:
            merged.findings.append(left_out(refused, merged.place_of(refused.where)))
            merged.unknown += merged.take_out(refused.where)
    _whole_batch(merged)
    if not merged.values:
        merged.say(None, "nothing_mapped")
    if "model.name" not in merged.values:
        merged.say(None, "missing_model", default=shown(NO_SETTINGS.value("model.name")))
    if not any(key.startswith("data.sources") for key in merged.values):
        merged.say(None, "missing_data")
    merged.findings = list(sort_findings(merged.findings))
    return merged


def _whole_batch(merged: Imported) -> None:
    """Sequences of a step = micro-batch x accumulation x processes: what two of them say decides the third, and a plan
    for other GPUs keeps what a step sees."""
    values, nodes = merged.values, merged.values.get(NODES, 1)
    total, micro, accumulation = (values.get(key) for key in BATCH)
    if micro is None or accumulation is None:
        return
    window = micro * accumulation
    if total is not None and PROCESSES not in values and total % (window * nodes) == 0:
        # The only number of processes with which the figures are true; DeepSpeed refuses every other one.
        values[PROCESSES] = total // (window * nodes)
    world = values.get(PROCESSES, 1) * nodes
    product = window * world
    place = merged.place_of(BATCH[2] if total is None else BATCH[0])
    figures = {"place": place, "total": total or product, "window": window, "world": world}
    what = "follows" if PROCESSES in values else "follows.any_number"
    if total not in (None, product):
        what = "contradiction.contradicts"
        why = mark("It contradicts micro-batch, gradient accumulation and the number of processes.")
        merged.dropped += [replace(entry, why=why) for entry in merged.take_out(BATCH[0])]
    merged.findings.append(finding(what, place, **figures))
    if PROCESSES in values:
        values[BATCH[0]] = product
