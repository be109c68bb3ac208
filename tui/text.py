"""Numbers as people read them, and texts in lines and columns by their cells."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Sequence

from rich.cells import cell_len, chop_cells, set_cell_size
from trainwiz.core.language import language, mark, tr
from trainwiz.core.text import FARTHEST_S

# Widths on a screen: Chinese letters take two cells, so no width here is a len().


def cells(text: str) -> int:
    return cell_len(text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """A text filled up with spaces to `width` cells, after it or (`right`: aligned right) before it; never cut."""
    missing = " " * max(0, width - cell_len(text))
    return missing + text if right else text + missing


def cut(text: str, width: int, mark: str = "…") -> str:
    """At most `width` cells of a text; `mark` ends it where letters had to go."""
    if cell_len(text) <= width:
        return text
    room = width - cell_len(mark)
    if room < 0:
        return set_cell_size(mark, max(0, width)).rstrip()
    return set_cell_size(text, room).rstrip() + mark


# Rows of text in columns, aligned by cells.


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[list[str]]:
    """Each text filled up to the width of its column; the columns in `right` end at the same place."""
    widths = [max(cells(text) for text in column) for column in zip(*rows, strict=True)]
    return [
        [pad(text, width, right=number in right) for number, (text, width) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]


# Texts in lines of so many cells. Chinese has no spaces: a line may end after nearly every letter of it.
#
# Rich, and with it Textual, breaks at spaces alone: a Chinese sentence between two English words would go to
# a line of its own as a whole, and its full stop to the next.

_OPENING = "（《「『【〔"
_CLOSING = "，。、；：？！）》」』】〕％"
_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
)
_PIECE = re.compile(
    rf"\s*(?:[{_OPENING}]*(?:[^\s{_WIDE}]+|(?![{_CLOSING}])[{_WIDE}])[{_CLOSING}]*|\S)\s*",
)
"""What is not parted: a run of narrow letters or one wide letter, with the punctuation that stays with it."""


def wrap(text: str, width: int, fold: bool = True) -> list[str]:
    """Lines of at most `width` cells, as textwrap.wrap makes lines of so many letters.

    Without `fold` a path or a command that is longer than a line stays whole, so that it can be pasted.
    """
    if text.isascii() or cell_len(text := re.sub(r"\s", " ", text.strip())) == len(text):
        return textwrap.wrap(text, width, break_long_words=fold, break_on_hyphens=fold)
    lines, line = list[str](), ""
    for piece in _PIECE.findall(text):
        if cell_len(line + piece.rstrip()) <= width:
            line += piece
            continue
        parts = chop_cells(piece, max(2, width)) if fold else [piece]
        lines += [line, *parts[:-1]]
        line = parts[-1]
    return [line.strip() for line in (*lines, line) if line.strip()]


_COMMAND = re.compile(r"(?:(?P<sentence>.*[.:!?。：！？])\s*)?(?P<command>trainwiz\s.*[^\s.。!?！？])")


def command_apart(text: str) -> tuple[str, str]:
    """What to do, and the command at its end, which has to stay on a line of its own to be pasted; "" without one."""
    found = _COMMAND.fullmatch(text.strip())
    return (found["sentence"] or "", found["command"]) if found else (text, "")


def sentence_gap() -> str:
    """What stands between two sentences: Chinese ones have no space."""
    return "" if language() == "zh" else " "


# Numbers as people read them: sizes in GiB, times in the unit that fits, counts with commas.

GIB = 1024**3
MIB = 1024**2

_UNITS: tuple[tuple[float, float, str], ...] = (
    # Below this many seconds, seconds in one unit, how an amount of it is written.
    (120.0, 1.0, mark("{amount} s")),
    (120 * 60.0, 60.0, mark("{amount} min")),
    (48 * 3600.0, 3600.0, mark("{amount} h")),
    (730 * 86400.0, 86400.0, mark("{amount} days")),
    (math.inf, 365.25 * 86400.0, mark("{amount} years")),
)

_SUFFIXES = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000, "g": 1_000_000_000, "t": 1_000_000_000_000}


def count(value: float | None) -> str:
    """1999872 -> "1,999,872"; None -> "unknown"."""
    return tr("unknown") if value is None else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """651000000 -> "651M"; 900000 -> "0.9M"; None -> "unknown"."""
    if value is None:
        return tr("unknown")
    # What rounds to a thousand of a unit is one of the next: 999.9 billion are 1.0T, not 1000B.
    for least, unit, letter in ((999.5e9, 1e12, "T"), (999.5e6, 1e9, "B"), (1e5, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            scaled = value / unit
            return f"{scaled:.1f}{letter}" if scaled < 100 else f"{scaled:.0f}{letter}"
    return f"{value:,.0f}"


def gib(value: float | None) -> str:
    """Bytes as GiB with one decimal and no unit, for columns: "5.4"; two decimals below 0.1."""
    if value is None:
        return "?"
    amount = value / GIB
    return f"{amount:.2f}" if amount < 0.1 else f"{amount:.1f}"


def size(value: float | None) -> str:
    """Bytes with the unit that fits: "24 MiB", "5.4 GiB"."""
    if value is None:
        return tr("unknown")
    if value < 1000:
        return f"{value:.0f} B"
    if value < 1000 * 1024:
        return f"{value / 1024:.1f} KiB"
    if value < 1000 * MIB:
        return f"{value / MIB:.0f} MiB"
    return f"{value / GIB:.1f} GiB"


def duration(seconds: float | None) -> str:
    """One time in the unit that fits: "40 s", "7.4 h"."""
    if seconds is None or not seconds < FARTHEST_S:
        return tr("unknown")
    limit_unit = _unit(seconds)
    return tr(limit_unit[1], amount=_digits(seconds / limit_unit[0]))


def duration_range(low: float | None, high: float | None) -> str:
    """Two times in one unit: "40 to 70 s", "7 to 18 years"; a first one below 1 of it keeps its own: "20 s to 2.1 min"."""
    if low is None or high is None:
        return tr("unknown")
    seconds, written = _unit(high)
    if low < seconds and _unit(low)[1] != written:
        return span(duration(low), duration(high))
    return tr(written, amount=amount_range(low / seconds, high / seconds))


def span(first: str, last: str) -> str:
    """ "1.2 to 3.4"; one where they read the same."""
    return first if first == last else tr("{first} to {last}", first=first, last=last)


def amount_range(low: float, high: float) -> str:
    """Two amounts of one unit: "1.2 to 3.4"."""
    return span(_digits(low), _digits(high))


def percent(share: float | None) -> str:
    """0.57 -> "57%"."""
    return tr("unknown") if share is None else f"{_digits(share * 100)}%"


def deviation(share: float) -> str:
    """Signed: -0.0001 -> "−0.01%"."""
    return f"{share * 100:+.{2 if abs(share) < 0.1 else 0}f}%".replace("-", "−")


def number(value: float) -> str:
    """A setting as short as it is exact: 0.0004 -> "4e-4", 512.0 -> "512", 0.9 -> "0.9"."""
    if isinstance(value, int) or (abs(value) < 1e15 and float(value).is_integer()):
        return f"{int(value):,}"
    if 0 < abs(value) < 1e-2:
        text = f"{value:.6e}"
        mantissa, _, exponent = text.partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.10g}"


def three_digits(value: float) -> str:
    """Passes over the data, seconds a step; whole ones from 1,000: 0.0321, 1.27, 37.5, 1,204."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"


LARGE = 1e4
"""From here on a figure has a letter for its size."""


def value_label(value: float, digits: int = 4) -> str:
    """A measured value in so many significant digits, also where the last ones are 0, so that a column keeps its width; very
    small ones as "2.40e-4", large ones with a letter for their size."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return tr("infinite") if value > 0 else tr("−infinite")
    size = abs(value)
    if size < 1e-2 or size >= 1e15:
        mantissa, _, exponent = f"{value:.{max(1, digits - 2)}e}".partition("e")
        return f"{mantissa}e{int(exponent)}" if value else "0"
    units = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (LARGE, 1e3, "k"))
    unit, letter = next(((unit, letter) for least, unit, letter in units if size >= least), (1.0, ""))
    decimals = max(0, digits - 1 - int(math.log10(size / unit)))
    return f"{value / unit:,.{decimals}f}{letter}"


def parse_number(text: str) -> float:
    """Reads "2,000,000", "2M", "1.5k", "4e-4". Raises ValueError with a sentence for anything else."""
    cleaned = text.strip().replace(",", "").replace("_", "").replace(" ", "")
    match = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([kmbgt]?)", cleaned.lower())
    if match is None:
        raise ValueError(tr("Type a number, for example 512, 2M or 4e-4."))
    value = float(match.group(1)) * _SUFFIXES.get(match.group(2), 1)
    if not math.isfinite(value):
        raise ValueError(tr("This number is too large."))
    return value


def parse_whole_number(text: str) -> int:
    value = parse_number(text)
    if not value.is_integer():
        raise ValueError(tr("Type a whole number."))
    return int(value)


def _unit(seconds: float) -> tuple[float, str]:
    return next((length, written) for limit, length, written in _UNITS if seconds < limit or limit == math.inf)


def _digits(value: float) -> str:
    """Two significant digits, whole numbers from 10 up."""
    if value >= 10:
        return f"{value:,.0f}"
    if value >= 1:
        return f"{value:.1f}".removesuffix(".0")
    if value <= 0:
        return "0"
    return f"{value:.2g}" if value >= 0.001 else tr("under {least}", least="0.001")
