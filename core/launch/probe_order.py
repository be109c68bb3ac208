"""ProbeOrder: what the processes of a probe are told, and the lines that they answer with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.small_file import read_small

ORDER_JSON = "probe.json"
ANSWERS_JSONL = "probe.jsonl"
"""One JSON object a line, with its kind under `event`: see core/training/probe.py."""
TURN = "turn"
"""How many steps may be done in all, as a number: what a probe that is measured in turns waits for."""
ON_THE_LONGEST = 2
"""Steps of a probe before the clock starts: the first makes the optimizer's states, the second peaks with them."""
PROBE_MODULE = "trainwiz.core.training.probe"

Rows = Literal["data", "lengths", "longest"]
"""Real rows; generated ones with the lengths of the data; generated ones, all of full length."""


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """Sizes in sequences, lengths in tokens."""

    ends_s: float
    """On the monotonic clock, which all processes of a machine share: when the probe must be over."""
    accumulation: int
    """Micro-batches of a step of the plan. The probe's own steps may have fewer."""
    micro_batch: int
    length: int
    """Of the longest batch, which memory is measured with."""
    target_length: int
    """0 where there is no text of its own to predict."""
    rows: Rows
    lengths: tuple[int, ...] = ()
    target_lengths: tuple[int, ...] = ()
    measured_s: float = 15.0
    """How long the clock runs on usual steps, at most."""
    search: bool = True
    """Look for the largest micro-batch."""
    in_turns: bool = False
    """Each step waits until the file TURN allows it; all steps are done at the plan's micro-batch, and none is the last."""
    host_free_bytes: int = 0
    """RAM that may be taken, beyond what is taken once the model trains; for a search on the CPU."""

    def write(self, folder: Path) -> None:
        (folder / ORDER_JSON).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ProbeOrder:
        """Raises OSError, ValueError or TypeError for what is no order."""
        values: dict[str, Any] = json.loads(read_small(folder / ORDER_JSON).decode())
        lists = {key: tuple(values[key]) for key in ("lengths", "target_lengths")}
        return cls(**{**values, **lists})
