"""What the model step can be chosen from beside the catalogue: folders and config.json files of the disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.language import tr

if TYPE_CHECKING:
    from trainwiz.tui.screens.plan_fields import FieldSpec
    from trainwiz.tui.screens.plan_state import PlanState
    from trainwiz.tui.widgets.file_picker import FilePicker


def browse_model(state: PlanState, spec: FieldSpec) -> FilePicker:
    """The file picker, opened where the present model lies."""
    from trainwiz.tui.widgets.file_picker import FilePicker

    class ModelPicker(FilePicker):
        def answer(self, path: Path) -> None:
            # A bare config.json is a model without its weights, and those lie beside it.
            super().answer(path.parent if path.name == "config.json" and path.is_file() else path)

    model = state.reading.model
    start = model.name if model is not None and model.source in ("folder", "config") else ""
    return ModelPicker(tr("Model: a folder with a config.json, or such a file"), start, (".json",))
