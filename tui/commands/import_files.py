"""`trainwiz import FILE...`: settings of other programs as a profile, with a report of what became of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trainwiz.core.errors import EXIT_FINISHED, usage_error
from trainwiz.core.importing.gather import (
    MOST_TEXT_BYTES,
    Text,
    decoded,
    import_json,
    import_together,
    save_import,
    text_of,
)
from trainwiz.core.importing.report import Imported
from trainwiz.core.language import tr
from trainwiz.core.profile.save import SavedProfile
from trainwiz.core.text import plain_text
from trainwiz.tui.commands.profiles import say_table
from trainwiz.tui.output import is_terminal, say, say_findings, say_json, say_rows, wrapped
from trainwiz.tui.plan_words import part_words, report_sections

STDIN = "-"


def run_import(given: Sequence[str], *, name: str | None, replace: bool, dry_run: bool, as_json: bool) -> int:
    merged = imported(given)
    saved = None if dry_run else save_import(merged, name, replace)
    if as_json:
        say_json(import_json(merged, saved))
        return EXIT_FINISHED
    say_report(merged)
    say_profile(merged, saved)
    return EXIT_FINISHED


def imported(given: Sequence[str]) -> Imported:
    if not given:
        message = tr(
            "Specify a file, or a launch command in quotes: trainwiz import FILE... See trainwiz import --help."
        )
        raise usage_error("no_input", "FILE", message)
    return import_together([_stdin() if argument == STDIN else text_of(argument) for argument in given])


def _stdin() -> Text:
    if is_terminal(sys.stdin):
        message = tr("`trainwiz import -` reads from stdin, for example: cat FILE | trainwiz import -")
        raise usage_error("no_input", STDIN, message)
    return Text("stdin", decoded(sys.stdin.buffer.read(MOST_TEXT_BYTES + 1), "stdin"), Path())


def say_report(merged: Imported) -> None:
    say_rows((tr("From") if number == 0 else "", part_words(part)) for number, part in enumerate(merged.parts))
    for title, given, rows in report_sections(merged):
        say()
        say(title)
        if given:
            say_table([[f"  {first}", *rest] for first, *rest in rows], head=False)
            continue
        for why, settings in rows:
            for text, indent in ((why, "  "), (settings, "    ")):
                for line in wrapped(text, indent, sys.stdout):
                    say(indent + line)
    if merged.findings:
        say()
        say_findings(merged.findings)


def say_profile(merged: Imported, saved: SavedProfile | None) -> None:
    say()
    if saved is None:
        say(tr("Nothing was written. Run without --dry-run to save the profile."))
        return
    say(tr("✓ Saved as profile {name}: {file}", name=plain_text(saved.name), file=plain_text(saved.file)))
    say(tr("  View its plan: trainwiz plan --profile {name}", name=plain_text(saved.name)))
