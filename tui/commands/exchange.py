"""`trainwiz import FILE...` and `trainwiz export RUN`: settings of others as a profile; what starts a run elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import os_reason, usage_error
from trainwiz.core.importing.gather import (
    MOST_TEXT_BYTES,
    Text,
    decoded,
    import_json,
    import_together,
    save_import,
    text_of,
)
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder, read_json, write_atomic
from trainwiz.core.run.listing import find_run
from trainwiz.core.text import numbers_finite, object_in, plain_text, whole_in
from trainwiz.tui.commands.profiles import say_table
from trainwiz.tui.output import is_terminal, say, say_findings, say_json, say_rows, under
from trainwiz.tui.plan_words import part_words, report_sections

# `trainwiz import FILE...`: settings of other programs as a profile, with a report of what became of each.


STDIN = "-"


def run_import(given: Sequence[str], *, name: str | None, replace: bool, dry_run: bool, as_json: bool) -> None:
    if not given:
        message = tr(
            "Specify a file, or a launch command in quotes: trainwiz import FILE... See trainwiz import --help."
        )
        raise usage_error("no_input", "FILE", message)
    merged = import_together([_stdin() if argument == STDIN else text_of(argument) for argument in given])
    saved = None if dry_run else save_import(merged, name, replace)
    if as_json:
        say_json(import_json(merged, saved))
        return
    say_rows(under(tr("From"), *map(part_words, merged.parts)))
    for title, rows in report_sections(merged):
        say()
        say(title)
        say_table([[f"  {first}", *rest] if rest else ["", first] for first, *rest in rows], head=False)
    if merged.findings:
        say()
        say_findings(merged.findings)
    say()
    if saved is None:
        say(tr("Nothing was written. Run without --dry-run to save the profile."))
        return
    say(tr("✓ Saved as profile {name}: {file}", name=plain_text(saved.name), file=plain_text(saved.file)))
    say(tr("  View its plan: trainwiz plan --profile {name}", name=plain_text(saved.name)))


def _stdin() -> Text:
    if is_terminal(sys.stdin):
        message = tr("`trainwiz import -` reads from stdin, for example: cat FILE | trainwiz import -")
        raise usage_error("no_input", STDIN, message)
    return Text("stdin", decoded(sys.stdin.buffer.read(MOST_TEXT_BYTES + 1), "stdin"), Path())


def run_export(
    run: str,
    *,
    script: bool,
    slurm: bool,
    main: str | None = None,
    output: str | None = None,
    **order: str | None,
) -> None:
    """`order` is what the sbatch file asks the cluster for: account, partition, qos, time."""
    if script == slurm:
        message = tr(
            "Choose what to export: --script for the launch command of each node, or --slurm for an sbatch file."
        )
        raise usage_error("bad_choice", "--script", message)
    idle, other = (order, "--slurm") if script else ({"main": main}, "--script")
    for name, value in idle.items():
        if value is not None:
            message = tr("{option} only works with {other}.", option=f"--{name}", other=other)
            raise usage_error("bad_choice", f"--{name}", message)
    from trainwiz.core.launch.start import changed_config

    folder = find_run(run)
    config = changed_config(folder)
    text = _script(config, folder, main) if script else _slurm(config, folder, order)
    if output is None:
        sys.stdout.write(text)
    else:
        write_new(Path(output), text)


def _script(config: RunConfig, folder: RunFolder, main: str | None) -> str:
    from trainwiz.core.export.launch_script import PLACEHOLDER, node_commands
    from trainwiz.core.nodes.address import Address, parse_address

    nodes = config.engine.nodes
    address = parse_address(main) if main is not None else Address(PLACEHOLDER)
    said = [tr("Run each command on its own node, in any order. All nodes must see this folder at the same path.")]
    if main is None and nodes > 1:
        said.append(tr("Replace NODE0 with the address of the first node, or set it: --main HOST:PORT."))
    lines = [f"# {sentence}" for sentence in said]
    for node, command in enumerate(node_commands(config, folder.path.resolve(), address)):
        lines += [f"# {tr('node {node} of {nodes}', node=node, nodes=nodes)}", command]
    return "\n".join(lines) + "\n"


def _slurm(config: RunConfig, folder: RunFolder, order: dict[str, str | None]) -> str:
    from trainwiz.core.export.launch_script import Planned, slurm_script
    from trainwiz.core.run.state import read_state

    plan = read_json(folder.plan_json) or {}
    memory, times = object_in(plan.get("memory")), object_in(plan.get("time"))
    planned = Planned(
        total_high_s=numbers_finite(times.get("total_high_s")) or numbers_finite(times.get("total_s")),
        host_ram_bytes=whole_in(memory.get("host_ram_bytes")),
        stop_s=read_state(folder).grace_s,
        host_ram_high_bytes=whole_in(memory.get("host_ram_high_bytes")),
    )
    return slurm_script(config, folder.path.resolve(), planned, order)


def check_free(path: Path) -> None:
    if os.path.lexists(path):
        message = tr("{path} already exists and is not overwritten. Choose another name.", path=path)
        raise usage_error("output_not_empty", str(path), message)


def write_new(path: Path, text: str) -> None:
    check_free(path)
    try:
        write_atomic(path, text)
    except OSError as error:
        message = tr("{path} cannot be written: {reason}.", path=path, reason=os_reason(error))
        raise usage_error("output_not_writable", str(path), message) from None
    say(tr("Wrote {path}.", path=plain_text(path)))
