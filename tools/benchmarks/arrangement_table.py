"""The rows that gpu_arrangement.py wrote, as a table for each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tools.benchmarks.arrangement_arms import OURS, PLAIN
from tools.benchmarks.measured_rows import Row

COLUMNS = [
    "case", "arm", "repeat", "device", "torch", "precision", "step_rows", "steps", "seconds", "real_tokens",
    "computed_tokens", "real_operations", "computed_operations", "peak_flops", "peak_bytes", "problem",
]  # fmt: skip
DYNAMIC = PLAIN[1]
HEADER = (
    "| | seconds of each repeat | pace against dynamic padding | real tokens/s | operations / without padding "
    "| of the peak | of the peak, padding not counted | memory of tensors |",
    "|---|---|---|---|---|---|---|---|",
)


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown; a training that failed is named with its reason."""
    return [line for case in dict.fromkeys(row["case"] for row in rows) for line in _of_case(case, rows)]


def _of_case(case: str, rows: Sequence[Row]) -> Iterator[str]:
    mine = [row for row in rows if row["case"] == case]
    good = {name: [row for row in mine if row["arm"] == name and not row["problem"]] for name in (*PLAIN, OURS)}
    yield f"{case}, {mine[0]['precision']}, on {mine[0]['device'] or 'no GPU'}, torch {mine[0]['torch']}"
    yield ""
    yield from HEADER
    for name, done in good.items():
        if done:
            yield _line(name, done, good[DYNAMIC])
    for row in mine:
        if row["problem"]:
            yield f"| {row['arm']}, repeat {row['repeat']} | {row['problem'].replace('|', ' ')} | | | | | | |"
    yield ""
    if good[OURS] and good[DYNAMIC]:
        ours, plain = good[OURS][0], good[DYNAMIC][0]
        same = ours["real_tokens"] == plain["real_tokens"]
        fewer = float(plain["computed_operations"]) / float(ours["computed_operations"])
        yield f"{fewer:.2f} times fewer operations than dynamic padding{'' if same else ', but of OTHER ROWS'}"
        yield ""


def _line(name: str, done: Sequence[Row], dynamic: Sequence[Row]) -> str:
    def middle(column: str, rows: Sequence[Row] = done) -> float:
        return median(float(row[column]) for row in rows)

    seconds, peak = middle("seconds"), float(done[0]["peak_flops"] or 0)
    # A sampler of its own takes other rows, so the pace is that of real tokens.
    pace = middle("real_tokens") / seconds
    against = pace / (middle("real_tokens", dynamic) / middle("seconds", dynamic)) if dynamic else None
    shares = [
        f"{middle(column) / seconds / peak:.1%}" if peak else ""
        for column in ("computed_operations", "real_operations")
    ]
    memory = middle("peak_bytes")
    words = [
        name,
        " ".join(f"{float(row['seconds']):.2f}" for row in done),
        f"{against:.2f}" if against is not None else "",
        f"{pace:,.0f}",
        f"{middle('computed_operations') / middle('real_operations'):.2f}",
        *shares,
        f"{memory / 2**30:.1f} GiB" if memory else "",
    ]
    return f"| {' | '.join(words)} |"
