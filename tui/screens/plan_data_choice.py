"""What the data step can be chosen from: files of the disk, and the columns of the file that was chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainwiz.core.language import tr
from trainwiz.tui.screens.plan_state import Offer, PlanState

if TYPE_CHECKING:
    from trainwiz.core.data.glance import Glance
    from trainwiz.core.plan.request import PlanRequest
    from trainwiz.tui.screens.plan_fields import FieldSpec
    from trainwiz.tui.widgets.file_picker import FilePicker

TEXT, TARGET = "data.sources.0.text_column", "data.sources.0.target_column"


def browse_data(state: PlanState, spec: FieldSpec) -> FilePicker:
    """The file picker, opened where the present data lies."""
    from trainwiz.core.data.formats import file_endings
    from trainwiz.tui.widgets.file_picker import FilePicker

    plan = state.plan
    source = plan.config.data.sources[0].name if plan is not None and plan.config.data.sources else ""
    glance = state.reading.glance
    inside = glance is not None and glance.files == 1 and source and str(glance.path).endswith(source)
    return FilePicker(tr("Data: a file, or a folder with files of one kind"), source if inside else "", file_endings())


def column_offers(glance: Glance | None) -> tuple[Offer, ...]:
    """The columns that hold text, each with the beginning of its first row."""
    if glance is None:
        return ()
    return tuple(
        Offer(glance.setting_of(place), column.name, first_cell(glance, place))
        for place, column in enumerate(glance.columns)
        if column.is_text
    )


def first_cell(glance: Glance, place: int) -> str:
    """The beginning of what the first row has in a column."""
    cell = glance.rows[0][place] if glance.rows else None
    return tr("no value") if cell is None else cell[:80] if cell.strip() else tr("empty")


def found_column(state: PlanState, spec: FieldSpec) -> str:
    """The column that is taken where none was named; what the row says without one is the field's own."""
    glance = state.reading.glance
    if glance is None or spec.id not in {"column", "target_column"}:
        return ""
    place = glance.text if spec.id == "column" else glance.target
    if place is not None:
        return glance.columns[place].name
    return tr("not found") if spec.id == "column" or glance.has_target else ""


def with_text(glance: Glance, place: int, request: PlanRequest) -> PlanRequest:
    """The request that learns from a column; where that was the target, the two change places."""
    values = {TEXT: glance.setting_of(place)}
    if glance.has_target and place == glance.target:
        if glance.text is not None:
            values[TARGET] = glance.setting_of(glance.text)
    elif glance.has_target and glance.target is not None:
        values[TARGET] = glance.setting_of(glance.target)
    return _with_columns(request, values)


def with_target(glance: Glance, place: int, request: PlanRequest) -> PlanRequest:
    """The request whose answers are a column; chosen a second time, it is no answer any more where rows can be without."""
    if glance.target == place and glance.text is not None:
        # Both named: a causal model with a text column alone learns all of it.
        return _with_columns(request, {TEXT: glance.setting_of(glance.text)})
    values = {TARGET: glance.setting_of(place)}
    if glance.text == place:
        if glance.target is not None:
            values[TEXT] = glance.setting_of(glance.target)
    elif glance.text is not None:
        values[TEXT] = glance.setting_of(glance.text)
    return _with_columns(request, values)


def _with_columns(request: PlanRequest, values: dict[str, str]) -> PlanRequest:
    kept = {key: value for key, value in request.overrides.items() if key not in {TEXT, TARGET}}
    return replace(request, overrides={**kept, **values})
