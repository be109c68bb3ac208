"""How a run ended: one sentence, and the command that goes on from there."""

from __future__ import annotations

from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import RunState
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.telemetry.snapshot import Ending
from trainwiz.core.telemetry.spans import step_words


def ending_of(state: RunState, folder: RunFolder, step: int | None, max_steps: int | None, metrics: Metrics) -> Ending:
    """The supervisor's own words where it left some; for a finished run what came out of it."""
    place = None if step is None else step_words(step, max_steps)
    resume = f"trainwiz runs resume {name_for_commands(folder.path)}"
    if state.status == "finished":
        loss = metrics.series.get("loss")
        said = finished_words(place, loss.first, loss.last) if loss is not None else finished_words(place, None, None)
        if folder.final_model.is_dir():
            said = tr("{finished} The model is in {path}.", finished=said, path=folder.final_model)
        return Ending(said, remedy=None, command=None, cause=None)
    message = state.exit.message if state.exit else ""
    remedy = state.exit.remedy if state.exit else None
    cause = state.exit.cause if state.exit else None
    if state.status == "stopped":
        said = tr("Stopped.") if place is None else tr("Stopped at {place}.", place=place)
        return Ending(message or said, remedy or resume, resume, cause)
    if state.status == "lost":
        said = tr("Lost: its processes are gone without a last word.")
        if place is not None:
            said = tr("Lost at {place}: its processes are gone without a last word.", place=place)
        return Ending(message or said, remedy or resume, resume, cause)
    said = tr("Failed.") if place is None else tr("Failed at {place}.", place=place)
    return Ending(message or said, remedy or tr("Read why in {path}.", path=folder.train_log), resume, cause)


def finished_words(place: str | None, first_loss: float | None, last_loss: float | None) -> str:
    """The sentence of a training that reached its end. `place`: as `step_words` says it."""
    if first_loss is None or last_loss is None:
        return tr("Finished.") if place is None else tr("Finished at {place}.", place=place)
    losses = f"{first_loss:.4g} → {last_loss:.4g}"
    if place is None:
        return tr("Finished, loss {losses}.", losses=losses)
    return tr("Finished at {place}, loss {losses}.", place=place, losses=losses)
