"""The estimator against published figures, beside accelerate's and DeepSpeed's own, and against made-up models.

No figure of the product is fitted to these rows, only two of the spreads of what nvidia-smi shows. Three medians are given: of
what a plan says by itself, judged on rows that ran code like today's; of the same plan with what a user can state of those runs
(the context of the card, an activation of the trainer's own); and of the rows traced again with what older code did
differently, which was found after the errors were seen and is no proof of the product. Writes the tables of docs/estimator.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from trainwiz.core.estimate.peak import BEYOND_VARIED, CACHED, VARIED
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.measure import Result
from tools.benchmarks.published.compare import PAGE_ROWS, Comparison, Figure, compare
from tools.benchmarks.published.coverage import Mixed, coverage_words, covered, mixed
from tools.benchmarks.published.crosscheck import CrossCheck, cross_checks
from tools.benchmarks.published.report import write_tables
from tools.benchmarks.published.rows import SHARED, read_rows

MEDIAN_LIMIT = 0.03
FAR = 0.08
UNSEEN_LIMIT = 0.03
OUTSIDE_LIMIT = 0.1
COMPARABLE = ("table", "yes")


def run() -> list[Result]:
    rows = read_rows()
    if not SHARED.is_dir():
        print("  the shared data folder (../shared/data) is not beside this checkout: published rows are not compared")
        return _unseen(_checks())
    with TraceWorker() as worker:
        compared = []
        for one in compare(rows, worker):
            compared.append(one)
            print(_line(one), flush=True)
        mixtures = list(mixed(rows, worker))
    left_out = [row for row in rows if row.left_out]
    for row in left_out:
        print(f"  left out  {row.id:<5}{row.words}: {row.left_out}")
    checks = _checks()
    write_tables(compared, left_out, checks, mixtures)
    return [*_published(compared), *_mixtures(mixtures), *_unseen(checks)]


def _published(compared: Sequence[Comparison]) -> list[Result]:
    chosen = [one for one in compared if one.row.comparable in COMPARABLE and one.tier == "traced"]
    table = [one for one in chosen if one.row.comparable == "table"]
    far = [one.row.id for one in chosen if abs(one.explained.error(one.row)) > FAR]
    shown = covered(compared)
    missing = sum(one.row.comparable in COMPARABLE for one in compared) - len(chosen)
    alike = [one for one in chosen if not one.changes and one.row.id not in PAGE_ROWS]
    others = f"{len(alike)} rows: {', '.join(one.row.id for one in alike)}; of all {_median(chosen, _today):.1%}"
    results = [Result("rows that ran code like today's: median error", _median(alike, _today), MEDIAN_LIMIT, others)]
    for words, figure in (("settings as stated", _stated), ("code as measured", _explained)):
        held = sum(figure(one).holds(one.row) for one in chosen)
        median = _median(table, figure)
        results += [
            Result(f"published table, {words}: median error", median, MEDIAN_LIMIT, f"{len(table)} rows"),
            Result(
                f"comparable rows, {words}: median error",
                _median(chosen, figure),
                MEDIAN_LIMIT,
                f"{held} of {len(chosen)} inside their interval",
            ),
        ]
    read = [one for one in shown if one.read]
    return [
        *results,
        Result("comparable rows above 8 % even with the code as measured", len(far), 0, ", ".join(far)),
        Result("comparable rows without a trace", missing, 0, ""),
        Result(
            "nvidia-smi or reserved outside its range, code as measured, share",
            sum(not one.holds_as_measured for one in read) / len(read),
            OUTSIDE_LIMIT,
            f"{len(read)} rows whose code was read; of all {len(shown)} by the code of today "
            f"{sum(not one.holds for one in shown)} are outside; {coverage_words(shown)}",
        ),
    ]


def _mixtures(found: Sequence[Mixed]) -> list[Result]:
    """What the tiers without a replay state for varied lengths, and what must fit, against replays."""
    likely, most = VARIED.likely, VARIED.likely * (1 + BEYOND_VARIED)
    return [
        Result(
            "varied lengths, replayed: most reserved outside the range without a replay, share",
            sum(one.high > most for one in found) / max(1, len(found)),
            OUTSIDE_LIMIT,
            f"{len(found)} replays; the middle is {statistics.median(one.likely / likely for one in found):.2f} times the likely value",
        ),
        Result(
            "varied lengths, replayed: in use beyond what must fit",
            max(one.held for one in found) / CACHED.high - 1,
            0.0,
            "segments in use over allocated memory",
        ),
    ]


def _today(one: Comparison) -> Figure:
    return one.today


def _stated(one: Comparison) -> Figure:
    return one.as_stated


def _explained(one: Comparison) -> Figure:
    return one.explained


def _median(chosen: Sequence[Comparison], figure: Callable[[Comparison], Figure]) -> float:
    return statistics.median(abs(figure(one).error(one.row)) for one in chosen) if chosen else 1.0


def _checks() -> list[CrossCheck]:
    checks = []
    for check in cross_checks():
        checks.append(check)
        print(f"  made up   {check.words}", flush=True)
    return checks


def _unseen(checks: Sequence[CrossCheck]) -> list[Result]:
    analytic = max(abs(check.analytic / check.full - 1) for check in checks)
    counted = [abs(check.traced_small / check.counted - 1) for check in checks if check.counted]
    return [
        Result("made-up models: analytic against full", analytic, 0.15, f"{len(checks)} models"),
        Result(
            "made-up models: the trace against MemTracker",
            max(counted, default=1.0),
            UNSEEN_LIMIT,
            f"{len(counted)} plain steps",
        ),
    ]


def _line(one: Comparison) -> str:
    row, gb = one.row, 1e9
    explained = ""
    if one.stated is not None:
        explained = f"; as stated {one.stated.point / gb:6.2f} {one.stated.error(row):+.1%}"
        explained += " holds" if one.stated.holds(row) else " OUTSIDE"
    if one.as_measured is not None:
        explained += f"; as measured {one.as_measured.point / gb:6.2f} {one.as_measured.error(row):+.1%}"
        explained += " holds" if one.as_measured.holds(row) else " OUTSIDE"
    rivals = [
        None if size is None else size / row.measured - 1 for size in (one.rivals.accelerate, one.rivals.deepspeed)
    ]
    shown = " ".join("none" if error is None else f"{error:+.0%}" for error in rivals)
    return (
        f"  {'holds' if one.today.holds(row) else 'OUTSIDE':<8}{row.id:<6}{row.words[:64]:<65}{row.comparable:<7}"
        f"{row.figure:<12}{row.measured / gb:7.2f} GB, {one.tier} {one.today.point / gb:7.2f} {one.today.error(row):+6.1%}{explained}"
        f"; accelerate, DeepSpeed {shown}"
    )
