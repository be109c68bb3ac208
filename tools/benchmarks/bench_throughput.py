"""Published paces: whether the range of the plan, which is fitted to none of them, holds what was measured.

A pace above 65 % of the card's peak is what the plan calls implausible, and lies outside by design: it is listed and not
counted. So are rows whose lengths, card or model are not known.

The fast end of the range was 50 % of the peak when these rows were first compared (18 of 34 inside) and is 65 % since: that
it holds them now is no evidence from rows that nobody had seen.
"""

from __future__ import annotations

from trainwiz.core.estimate.flops import useful_flops
from trainwiz.core.estimate.time import IMPLAUSIBLE_SHARE, step_time

from tools.benchmarks.measure import Result
from tools.benchmarks.throughput_rows import Row, read_rows


def run() -> list[Result]:
    rows = read_rows()
    if not rows:
        print("  ../shared/data/measurements/throughput.csv is not beside this checkout: nothing to compare with")
        return []
    outside, counted, left_out, implausible = 0, 0, 0, 0
    for row in rows:
        if row.work is None or row.rate is None:
            left_out += 1
            print(f"  left out  {row.id} {row.words}: {row.left_out}")
            continue
        step = step_time(row.work, row.rate).step
        share = share_of(row)
        holds = step.low <= row.step_s <= step.high
        verdict = "holds" if holds else "implausible" if share > IMPLAUSIBLE_SHARE else "OUTSIDE"
        print(
            f"  {verdict:<12}{row.id} {row.words:<75} measured {row.step_s:8.3f} s in {step.low:8.3f} to {step.high:8.3f}"
            f"  {row.step_s / step.likely:5.2f} of likely, {share:4.0%} of the peak ({row.comparable})"
        )
        if verdict == "implausible":
            implausible += 1
        else:
            counted += 1
            outside += not holds
    detail = f"{counted - outside} of {counted} inside; {implausible} implausible; {left_out} cannot be compared"
    return [Result("published paces outside the uncalibrated range, share", outside / max(1, counted), 0.1, detail)]


def share_of(row: Row) -> float:
    """Of the card's peak, recomputation not counted."""
    assert row.work is not None and row.rate is not None
    return useful_flops(row.work) * row.work.accumulation / (row.step_s * row.rate.flops)
