"""The generated tables of docs/estimator.md: both raw figures beside every ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainwiz.core.estimate.memory import estimate_memory

from tools.benchmarks.published.compare import OWN_ACTIVATION, PAGE_ROWS, Comparison, Figure, figure
from tools.benchmarks.published.coverage import Mixed, coverage_table, mixed_table
from tools.benchmarks.published.crosscheck import CrossCheck
from tools.benchmarks.published.measured_code import CHANGES
from tools.benchmarks.published.rows import PublishedRow

PAGE = Path(__file__).parents[3] / "docs" / "estimator.md"
BEGIN, END = "<!-- generated: {} -->", "<!-- end: {} -->"
GB = 10**9
NORMS = "axolotl turns norms back to bf16 for FlashAttention, and the stream with them"
PACKED_CAUSES = {
    "M109": NORMS,
    "M110": NORMS,
    "M111": NORMS,
    "M107": "norms in bf16 as above. With full logits as well the formulas give 11.88 GB (-2.1%), as if CutCrossEntropy had "
    "not been in effect; axolotl's sources of that day (372f664, ml-cross-entropy 242b245) do patch olmo3, so that this is a guess",
    "M005": "transformers 4.48 keeps the cache while it checkpoints, with adapters in fp32 as the norms hand it on (1.8 GB), until "
    "the loss is there; without that 7.30 GB. As in M001 to M004; we switch the cache off",
    "M079": "bitsandbytes before 0.43.2 keeps the input of each packed layer, which no gradient needs (0.74 GB; fixed in 9e75374, "
    '"fix QLoRA mem bug"); scales in fp32 without double quantization (0.19 GB). 0.81 GB are unexplained',
}
"""Of rows over a base in 4 bits: why they differ, as far as it is known."""


def write_tables(
    compared: Sequence[Comparison],
    left_out: Sequence[PublishedRow],
    checks: Sequence[CrossCheck],
    mixtures: Sequence[Mixed],
    page: Path = PAGE,
) -> None:
    """Replaces what stands between the markers; the rest of the page is left as it is. Does nothing without the page."""
    if not page.is_file():
        return
    text = before = page.read_text(encoding="utf-8")
    for name, table in (
        ("published", published_table(compared)),
        ("stated", stated_table(compared)),
        ("coverage", coverage_table(compared)),
        ("lengths", mixed_table(mixtures)),
        ("4 bits", packed_table(compared)),
        ("causes", causes_table(compared)),
        ("rivals", rivals_table(compared)),
        ("left out", left_out_table(left_out)),
        ("made up", made_up_table(checks)),
    ):
        text = replaced(text, name, table)
    if text != before:
        page.write_text(text, encoding="utf-8")


def replaced(text: str, name: str, table: str) -> str:
    """`text` with `table` between the markers of `name`. Raises ValueError where they are missing."""
    begin, end = BEGIN.format(name), END.format(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page must have {begin} and {end} once each")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def published_table(compared: Sequence[Comparison]) -> str:
    head = "| row | run | comparable | figure | measured | estimate | error | interval | in range | with the measured code | error | in range |"
    lines = [head, "|---" * 12 + "|"]
    for one in compared:
        row = one.row
        measured_code = (
            [_gb(one.as_measured.point), _share(one.as_measured.error(row)), _yes(one.as_measured.holds(row))]
            if one.as_measured
            else ["", "", ""]
        )
        cells = [
            row.id, _run_words(row), "the table" if row.comparable == "table" else row.comparable, row.figure, _gb(row.measured),
            f"{_gb(one.today.point)} {one.tier}", _share(one.today.error(row)), _interval(one.today), _yes(one.today.holds(row)), *measured_code,
        ]  # fmt: skip
        lines.append(_line(cells))
        if one.smi is not None:
            shown = [
                row.id,
                "the same run",
                row.comparable,
                "nvidia-smi, less what it showed before",
                _gb(row.smi),
                f"{_gb(one.smi.point)} {one.tier}",
            ]
            error = one.smi.point / row.smi - 1
            lines.append(
                _line(
                    [
                        *shown,
                        _share(error),
                        _interval(one.smi),
                        _yes(one.smi.low <= row.smi <= one.smi.high),
                        "",
                        "",
                        "",
                    ]
                )
            )
    return "\n".join(lines)


def stated_table(compared: Sequence[Comparison]) -> str:
    """The rows of the table with each of the three figures."""
    lines = [
        "| row | measured | by default | error | stated | with that | error | interval | in range | with the measured code | error |",
        "|---" * 11 + "|",
    ]
    for one in compared:
        row = one.row
        if row.comparable != "table":
            continue
        words = "`--context 1343M`" if row.id in PAGE_ROWS else ""
        if row.id in OWN_ACTIVATION:
            words = f"`hidden_act: {OWN_ACTIVATION[row.id]}`"
        figures = [one.today, one.as_stated, one.explained]
        first, second, third = ([_gb(figure.point), _share(figure.error(row))] for figure in figures)
        held = [_interval(one.as_stated), _yes(one.as_stated.holds(row))]
        lines.append(_line([row.id, _gb(row.measured), *first, words, *second, *held, *third]))
    return "\n".join(lines)


def packed_table(compared: Sequence[Comparison]) -> str:
    """Runs over a base in 4 bits, with the norms in 16 bits as axolotl turns them, or with the code that was measured."""
    lines = ["| row | run | measured | today | error | with the differences | error | cause |", "|---" * 8 + "|"]
    for one in compared:
        row, other = one.row, one.as_measured
        if row.work is None or not row.work.quantized:
            continue
        tier = "traced"
        if other is None and row.framework == "axolotl":
            half = replace(row.work, precision="bf16-true")
            other, tier = figure(estimate_memory(half), half, row.figure), "by formulas"
        found = ["", ""] if other is None else [f"{_gb(other.point)} {tier}", _share(other.error(row))]
        today = [f"{_gb(one.today.point)} {one.tier}", _share(one.today.error(row))]
        lines.append(_line([row.id, _run_words(row), _gb(row.measured), *today, *found, PACKED_CAUSES.get(row.id, "")]))
    return "\n".join(lines)


def causes_table(compared: Sequence[Comparison]) -> str:
    used = [name for name in CHANGES if any(name in one.changes for one in compared)]
    lines = ["| difference | rows | source |", "|---|---|---|"]
    for name in used:
        rows = ", ".join(one.row.id for one in compared if name in one.changes)
        lines.append(_line([name, rows, CHANGES[name].because]))
    return "\n".join(lines)


def rivals_table(compared: Sequence[Comparison]) -> str:
    lines = [
        "| row | measured | trainwiz, today's code | error | trainwiz, analytic | error | accelerate | error | DeepSpeed | error |",
        "|---" * 10 + "|",
    ]
    for one in compared:
        row = one.row
        others: list[str] = []
        for size, words in ((one.rivals.accelerate, ""), (one.rivals.deepspeed, f" ({one.rivals.deepspeed_words})")):
            others += ["no answer", ""] if size is None else [_gb(size) + words, _share(size / row.measured - 1)]
        ours = [
            _gb(one.today.point),
            _share(one.today.error(row)),
            _gb(one.analytic.point),
            _share(one.analytic.error(row)),
        ]
        lines.append(_line([row.id, _gb(row.measured), *ours, *others]))
    return "\n".join(lines)


def left_out_table(rows: Sequence[PublishedRow]) -> str:
    lines = ["| row | run | comparable | why it is not compared |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_line([row.id, row.words, row.comparable, row.left_out]) for row in rows)])


def made_up_table(checks: Sequence[CrossCheck]) -> str:
    lines = [
        "| kind | parameters | setting | full trace | analytic | error | small: traced, bytes | small: counted by MemTracker, bytes | error |",
        "|---" * 9 + "|",
    ]
    for check in checks:
        analytic = [_gb(check.analytic), _share(check.analytic / check.full - 1)] if check.full else ["", ""]
        small = (
            [f"{check.traced_small:,}", f"{check.counted:,}", f"{check.traced_small / check.counted - 1:+.3%}"]
            if check.counted
            else ["", check.problem, ""]
        )
        lines.append(
            _line([check.name, f"{check.parameters / 1e6:,.0f} M", check.setting, _gb(check.full), *analytic, *small])
        )
    return "\n".join(lines)


def _run_words(row: PublishedRow) -> str:
    assumed = f" (assumed: {', '.join(row.assumed)})" if row.assumed else ""
    return row.words + assumed


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _gb(size: int) -> str:
    return f"{size / GB:.2f} GB"


def _interval(figure: Figure) -> str:
    return f"{figure.low / GB:.2f} to {figure.high / GB:.2f}"


def _share(error: float) -> str:
    return f"{error:+.1%}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
