"""The sections of a RunConfig as pydantic models, made of their settings. `None` means: detected or solved by the plan."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from trainwiz.core.config import settings_model
from trainwiz.core.config.setting import Section as Declared
from trainwiz.core.config.settings import SECTIONS, declared

__all__ = [
    "BatchSection",
    "CheckpointSection",
    "DataSection",
    "DataSource",
    "EngineSection",
    "EvaluationSection",
    "LoggingSection",
    "ModeSection",
    "ModelSection",
    "PeftSection",
    "PlanningSection",
    "RecoverySection",
    "RunSection",
    "Section",
    "TrainingSection",
]


class Section(BaseModel):
    """A group of settings; unknown keys are refused, values are checked on assignment."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)


if TYPE_CHECKING:
    from trainwiz.core.config.settings_keeping import (
        CheckpointSection,
        EvaluationSection,
        LoggingSection,
        ModeSection,
        PlanningSection,
        RecoverySection,
    )
    from trainwiz.core.config.settings_model import (
        BatchSection,
        DataSection,
        DataSource,
        ModelSection,
        PeftSection,
        RunSection,
    )
    from trainwiz.core.config.settings_training import EngineSection, TrainingSection
else:

    def _model(section: type[Declared]) -> type[Section]:
        """The model of a declared section: its fields with their checks, its properties."""
        fields: dict[str, Any] = {}
        for entry in declared(section, ""):
            kind = list[DataSource] if entry.type == list[settings_model.DataSource] else entry.type
            default: dict[str, Any] = {"default": entry.default}
            if isinstance(entry.default, list | dict):
                default = {"default_factory": partial(copy.deepcopy, entry.default), "validate_default": True}
            fields[entry.key] = (kind, Field(**default, **entry.bounds, description=entry.what or None))
        model = create_model(section.__name__, __base__=Section, __module__=__name__, __doc__=section.__doc__, **fields)
        for name, member in vars(section).items():
            if isinstance(member, property):
                setattr(model, name, member)
        return model

    DataSource = _model(settings_model.DataSource)
    globals().update({section.__name__: _model(section) for section in SECTIONS.values()})
