"""`trainwiz profiles ...`: list, show, use, current, diff, validate, save."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwiz.core.defaults import GUIDE_SUFFIX
from trainwiz.core.errors import EXIT_FINISHED, EXIT_USAGE
from trainwiz.core.language import mark, tr, tr_as, trn
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.read import validate_profiles
from trainwiz.core.profile.store import (
    current_profile,
    diff_profiles,
    load_profile,
    use_profile,
)
from trainwiz.core.text import finite, plain_text
from trainwiz.tui.output import paint, say, say_findings, say_json, say_rows
from trainwiz.tui.text import aligned, cells, count, number, size, span

if TYPE_CHECKING:
    from trainwiz.core.plan.gather import ProfileRow
    from trainwiz.core.profile.save import SavedProfile

LABEL_WIDTH = 12

# Profiles as text: their values, what differs, what a guide claims.


def card_words(gpu: str | None, count: int) -> str:
    if gpu is None:
        return tr("any")
    return plain_text(gpu) if count == 1 else f"{count} × {plain_text(gpu)}"


def value_rows(profile: Profile | SavedProfile) -> list[list[str]]:
    """key, value, why."""
    reasons = profile.reasons
    return [[f"  {key}", value_words(value), tr(reasons.get(key, ""))] for key, value in profile.values.items()]


CLAIMS = {
    "tokens_per_s": mark("{value} tokens/s"),
    "peak_memory": mark("peak memory {value}"),
    "total_time": mark("total time {value}"),
}


def say_claims(claims: Mapping[str, Any]) -> None:
    say()
    say(tr("  Claims of the guide (checked by the plan):"))
    for key, words in CLAIMS.items():
        if key in claims:
            value = claims[key]
            shown = span(*map(number, value)) if isinstance(value, list | tuple) else plain_text(value)
            say(f"    {tr(words, value=shown)}")
    for remedy in claims.get("remedies", ()):
        say(f"    {plain_text(tr(remedy['text']))}")


def value_words(value: Any) -> str:
    """A setting as text: numbers short and exact, data sources by name, None as what it means."""
    if value is None:
        return tr("auto")
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list):
        return ", ".join(_source(one) if isinstance(one, dict) and "name" in one else value_words(one) for one in value)
    return plain_text(json.dumps(finite(value)) if isinstance(value, dict) else value)


def _source(source: dict[str, Any]) -> str:
    keys = ("max_rows", "min_characters", "max_characters")
    limits = [f"{key} {count(source[key])}" for key in keys if source.get(key) is not None]
    return plain_text(str(source["name"])) + (f" ({', '.join(limits)})" if limits else "")


def say_table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset(), *, head: bool = True) -> None:
    """Columns of text, plain whoever wrote it. The last column wraps under itself on a terminal; `head` makes the first
    row quiet."""
    rows = [list(map(plain_text, row)) for row in rows]
    starts = ["  ".join([*start, ""]) for start in aligned([row[:-1] for row in rows], right)]
    lines = [(start, row[-1]) for start, row in zip(starts, rows, strict=True)]
    if head:
        start, last = lines[0]
        lines[0] = paint(start, "quiet"), paint(last, "quiet")
    say_rows(lines, max(map(cells, starts)))


def run_list(*, as_json: bool, words: Sequence[str] = (), guides: bool = False) -> None:
    """The profiles with these words, with what fits this machine; as text what fits comes first."""
    from trainwiz.core.hardware.read import probe_machine
    from trainwiz.core.plan.gather import profile_rows
    from trainwiz.core.profile.store import builtin_folder, profile_files

    current, hidden = current_profile(Path.cwd()), list[str]()
    if not (as_json or guides or words):
        ours = (name for name, file in profile_files().items() if file.parent == builtin_folder())
        hidden = [name for name in ours if name.endswith(GUIDE_SUFFIX) and name != current]
    rows = profile_rows(probe_machine(), words, hidden)
    if as_json:
        say(json.dumps([row.to_json() for row in rows], ensure_ascii=False, indent=1))
        return
    if rows:
        batch = tr_as("of a step, heading", "sequences"), tr("tokens/step")
        table = [["", tr("profile"), "GPU", tr("model"), *batch, tr("fits here"), tr("from")]]
        table += [_list_cells(row, current) for row in sorted(rows, key=lambda row: not row.fits_here)]
        say_table(table, right=frozenset({4, 5}))
    else:
        say(tr("No matching profile. trainwiz profiles list shows all."))
    if hidden:
        say(paint(tr("  {n} exact-guide profiles are hidden: trainwiz profiles list --guides", n=len(hidden)), "quiet"))
    broken = {finding.where.partition(":")[0] for finding in validate_profiles() if finding.severity == "error"}
    if broken:
        one = mark("! {n} profile file has errors: trainwiz profiles validate")
        many = mark("! {n} profile files have errors: trainwiz profiles validate")
        say(trn(one, many, len(broken)))


def _list_cells(row: ProfileRow, current: str | None) -> list[str]:
    return [
        "▸" if row.name == current else "",
        row.name,
        card_words(row.gpu, row.num_gpus),
        row.model,
        count(row.effective_samples),
        count(row.effective_tokens),
        tr("✓ yes") if row.fits_here else tr("✗ no"),
        "trainwiz" if row.origin == "builtin" else tr("you"),
    ]


def run_show(name: str, *, as_json: bool) -> None:
    profile = load_profile(name)
    if as_json:
        say_json(asdict(profile))
        return
    say(f"{paint(plain_text(profile.name), 'strong')}  {plain_text(tr(profile.description))}")
    hardware = profile.hardware
    machine = [card_words(hardware.gpu, hardware.num_gpus)]
    if hardware.cpu_cores:
        machine.append(trn("{n} core", "{n} cores", hardware.cpu_cores))
    if hardware.ram_bytes:
        machine.append(tr("{size} RAM", size=size(hardware.ram_bytes)))
    rows = {tr("file"): profile.file, tr("extends"): profile.extends, tr("machine"): tr(", ").join(machine)}
    say_rows([(f"  {label}", plain_text(text)) for label, text in rows.items() if text], LABEL_WIDTH)
    say()
    say_table(value_rows(profile), head=False)
    if profile.claims:
        say_claims(profile.claims)


def run_use(name: str) -> None:
    path = use_profile(name, Path.cwd())
    say(tr("{name} is now the profile of this folder ({file}).", name=plain_text(name), file=path.name))


def run_current(*, as_json: bool) -> None:
    name = current_profile(Path.cwd())
    if as_json:
        say_json({"profile": name})
    elif name is None:
        say(tr("No profile is set in this folder; the default is cpu-demo. Choose one: trainwiz profiles use NAME"))
    else:
        say(f"{plain_text(name)}  {plain_text(tr(load_profile(name).description))}")


def run_diff(a: str, b: str, *, as_json: bool) -> None:
    first, second = load_profile(a), load_profile(b)
    changes = diff_profiles(first, second)
    if as_json:
        say_json({"first": first.name, "second": second.name, "changes": [asdict(change) for change in changes]})
        return
    if not changes:
        say(
            tr(
                "{first} and {second} have the same values.",
                first=plain_text(first.name),
                second=plain_text(second.name),
            )
        )
        return
    table = [[tr("key"), first.name, second.name, tr("why")]]
    for change in changes:
        values = [
            size(value) if change.key == "hardware.ram_bytes" and value is not None else value_words(value)
            for value in (change.first, change.second)
        ]
        table.append([change.key, *values, tr(change.reason)])
    say_table(table)


def run_validate(files: Sequence[str], *, as_json: bool) -> int:
    findings = validate_profiles(files)
    errors = any(finding.severity == "error" for finding in findings)
    if as_json:
        say_json({"valid": not errors, "findings": [finding.to_json() for finding in findings]})
    elif findings:
        say_findings(findings)
    else:
        from trainwiz.core.profile.store import profile_files

        checked = len(files) or len(profile_files())
        say(trn("✓ {n} profile is valid.", "✓ {n} profiles are valid.", checked))
    return EXIT_USAGE if errors else EXIT_FINISHED


def run_save(choices: Mapping[str, Any], name: str, extends: str | None) -> None:
    from trainwiz.core.profile.save import save_profile
    from trainwiz.tui.choices import parse_choices

    asked = parse_choices({**choices, "profile": extends})
    saved = save_profile(name, asked.request)
    if asked.json:
        say_json(asdict(saved))
        return
    say(tr("✓ Saved {name}: {file}", name=plain_text(saved.name), file=plain_text(saved.file)))
    if saved.values:
        say_table(value_rows(saved), head=False)
    say(tr("  Use it in this folder: trainwiz profiles use {name}", name=plain_text(saved.name)))
