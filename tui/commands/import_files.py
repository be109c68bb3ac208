"""`trainwiz import FILE...`: settings of other programs as a profile, with a report of what became of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trainwiz.core.errors import EXIT_FINISHED, usage_error
from trainwiz.core.importing.checks import checked
from trainwiz.core.importing.gather import Text, decoded, gather, texts_of
from trainwiz.core.importing.keep import import_json, keep
from trainwiz.core.importing.merge import Merged, merge
from trainwiz.core.importing.report import Dropped, Kind
from trainwiz.core.importing.values import shown
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.core.profile.save import SavedProfile
from trainwiz.tui.commands.profile_text import say_table, value_words
from trainwiz.tui.output import is_terminal, labelled, say, say_findings, say_json, say_labelled, wrapped

STDIN = "-"
KINDS: dict[Kind, str] = {
    "training_arguments": mark("arguments of the Trainer"),
    "accelerate": mark("accelerate file"),
    "deepspeed": mark("DeepSpeed JSON"),
    "launch_command": mark("launch command"),
}
LONGEST_VALUE = 40
LONGEST_NAME = 60


def run_import(given: Sequence[str], *, name: str | None, replace: bool, dry_run: bool, as_json: bool) -> int:
    """Read, report, keep as a profile. Raises UsageError for what cannot be imported or kept."""
    merged = imported(given)
    saved = None if dry_run else keep(merged, name, replace)
    if as_json:
        say_json(import_json(merged, saved))
        return EXIT_FINISHED
    say_report(merged)
    say_profile(merged, saved)
    return EXIT_FINISHED


def imported(given: Sequence[str]) -> Merged:
    """All that was given, and what it names, as one."""
    if not given:
        message = tr(
            "Name a file, or a launch command in quotes: trainwiz import FILE...; trainwiz import --help says more."
        )
        raise usage_error("no_input", "FILE", message)
    texts: list[Text] = []
    for argument in given:
        texts += [_stdin()] if argument == STDIN else texts_of([argument])
    gathered = gather(texts)
    return checked(merge(gathered.imports, gathered.findings))


def _stdin() -> Text:
    if is_terminal(sys.stdin):
        message = tr("`trainwiz import -` reads from a pipe, as in: cat FILE | trainwiz import -")
        raise usage_error("no_input", STDIN, message)
    return Text("stdin", decoded(sys.stdin.buffer.read(), "stdin"), Path())


def say_report(merged: Merged) -> None:
    """What was read and what became of each setting."""
    for number, part in enumerate(merged.parts):
        label = tr("From") if number == 0 else ""
        say_labelled(labelled(label, f"{plain_text(part.file)} ({tr(KINDS[part.kind])})"))
    report = merged.report
    several = len(merged.parts) > 1

    def place(file: str, line: int | None) -> str:
        where = f"{file}:{line}" if several and line else file if several else f":{line}" if line else ""
        return plain_text(where)

    _section(
        trn("Mapped: {n} setting", "Mapped: {n} settings", len(report.mapped)),
        [
            [_name(one.name), _value(one.value), f"→ {one.key}", value_words(one.set_to), place(one.file, one.line)]
            for one in report.mapped
        ],
    )
    _section(
        trn("Renamed: {n} old name", "Renamed: {n} old names", len(report.renamed)),
        [[_name(one.old), f"→ {_name(one.new)}", place(one.file, one.line)] for one in report.renamed],
    )
    _say_dropped(report.dropped)
    _section(
        trn("Unknown: {n} setting", "Unknown: {n} settings", len(report.unknown)),
        [[_name(one.name), _value(one.value), place(one.file, one.line)] for one in report.unknown],
    )
    if report.findings:
        say()
        say_findings(report.findings)


def _say_dropped(dropped: Sequence[Dropped]) -> None:
    """The settings under their reasons, of which there are few."""
    if not dropped:
        return
    say()
    say(trn("Dropped: {n} setting", "Dropped: {n} settings", len(dropped)))
    by_reason: dict[str, list[str]] = {}
    for one in dropped:
        by_reason.setdefault(tr(one.why), []).append(f"{_name(one.name)} {_value(one.value)}".rstrip())
    for why, names in by_reason.items():
        for text, indent in ((plain_text(why), "  "), (", ".join(names), "    ")):
            for line in wrapped(text, indent, sys.stdout):
                say(indent + line)


def _section(title: str, rows: list[list[str]]) -> None:
    if rows:
        say()
        say(title)
        say_table([[f"  {first}", *rest] for first, *rest in rows], head=False)


def _name(name: str) -> str:
    return plain_text(name, LONGEST_NAME)


def _value(value: object) -> str:
    """A value of a foreign file, as it stands there."""
    return plain_text(shown(value), LONGEST_VALUE)


def say_profile(merged: Merged, saved: SavedProfile | None) -> None:
    """Where the values are kept and what to do with them."""
    say()
    if saved is None:
        say(tr("Nothing was written. Without --dry-run this becomes a profile."))
        return
    say(tr("✓ Kept as the profile {name}: {file}", name=plain_text(saved.name), file=plain_text(saved.file)))
    say(tr("  See what it comes to: trainwiz plan --profile {name}", name=plain_text(saved.name)))
