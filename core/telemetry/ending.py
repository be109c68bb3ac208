"""How a run ended: one sentence, and the command that goes on from there."""

from __future__ import annotations

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.telemetry.snapshot import Ending


def ending_of(state: RunState, folder: RunFolder, step: int | None, max_steps: int | None, metrics: Metrics) -> Ending:
    """The supervisor's own words where it left some; for a finished run what came out of it."""
    where = f" at step {step:,}" + (f" of {max_steps:,}" if max_steps else "") if step is not None else ""
    resume = f"trainwiz runs resume {folder.path}"
    if state.status == "finished":
        loss = metrics.series.get("loss")
        change = ""
        if loss is not None and loss.first is not None and loss.last is not None:
            change = f", loss {loss.first:.4g} → {loss.last:.4g}"
        model = f" The model is in {folder.final_model}." if folder.final_model.is_dir() else ""
        return Ending(f"Finished{where}{change}.{model}", remedy=None, command=None, cause=None)
    message = state.exit.message if state.exit else ""
    remedy = state.exit.remedy if state.exit else None
    cause = state.exit.cause if state.exit else None
    if state.status == "stopped":
        return Ending(message or f"Stopped{where}.", remedy or resume, resume, cause)
    if state.status == "lost":
        return Ending(
            message or f"Lost{where}: its processes are gone without a last word.", remedy or resume, resume, cause
        )
    return Ending(message or f"Failed{where}.", remedy or f"Read why in {folder.train_log}.", resume, cause)
