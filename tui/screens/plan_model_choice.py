"""What the model step can be chosen from beside the catalogue: folders and config.json files of the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.language import tr

if TYPE_CHECKING:
    from trainwiz.tui.screens.plan_fields import FieldSpec
    from trainwiz.tui.screens.plan_state import PlanState
    from trainwiz.tui.widgets.file_picker import FilePicker


def browse_model(state: PlanState, spec: FieldSpec) -> FilePicker:
    """The file picker, opened where the present model lies."""
    from trainwiz.tui.widgets.file_picker import FilePicker

    model = state.reading.model
    start = model.name if model is not None and model.source in ("folder", "config") else ""
    return FilePicker(tr("Model: a folder with a config.json, or such a file"), start, (".json",))
