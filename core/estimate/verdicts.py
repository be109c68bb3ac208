"""What an estimate says of memory and time, and how far it goes."""

from __future__ import annotations

from typing import Literal

MemoryVerdict = Literal["fits", "tight", "does_not_fit"]


TimeVerdict = Literal["plausible", "implausible", "impossible", "idle"]


Tier = Literal["analytic", "traced", "measured"]
