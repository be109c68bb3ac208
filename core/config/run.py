"""RunConfig and its sections, made of their settings: the one resolved description of a run, from which every file is derived."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model
from trainwiz.core.config import settings_model
from trainwiz.core.config.setting import Section as Declared
from trainwiz.core.config.settings import SECTIONS, declared
from trainwiz.core.config.values import CLASSIFIES, RowKind

__all__ = [
    "DataSection",
    "DataSource",
    "EngineSection",
    "ModeSection",
    "ModelSection",
    "Origin",
    "OriginKind",
    "RunConfig",
    "set_path",
]

# The sections as pydantic models. `None` means: detected or solved by the plan.


class Section(BaseModel):
    """A group of settings; unknown keys are refused, values are checked on assignment."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, validate_default=True, allow_inf_nan=False)


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
            fields[entry.key] = (kind, Field(entry.default, **entry.bounds, description=entry.what or None))
        model = create_model(section.__name__, __base__=Section, __module__=__name__, __doc__=section.__doc__, **fields)
        for name, member in vars(section).items():
            if isinstance(member, property):
                setattr(model, name, member)
        return model

    DataSource = _model(settings_model.DataSource)
    globals().update({section.__name__: _model(section) for section in SECTIONS.values()})


# RunConfig.

OriginKind = Literal["detected", "profile", "you", "solved"]


class Origin(BaseModel):
    """Who chose a value, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: OriginKind
    reason: str = ""


class RunConfig(RunSection):
    """Everything a run needs. With `None` left in solvable fields it is a request;
    `make_plan` returns it with every field filled, and that is what `run.yaml` holds.

    `origins` maps key paths ("engine.precision") to who chose the value; a key that is not in
    it is the product's default.
    """

    model: ModelSection = ModelSection()
    data: DataSection = DataSection()
    batch: BatchSection = BatchSection()
    training: TrainingSection = TrainingSection()
    engine: EngineSection = EngineSection()
    peft: PeftSection = PeftSection()
    evaluation: EvaluationSection = EvaluationSection()
    checkpoint: CheckpointSection = CheckpointSection()
    recovery: RecoverySection = RecoverySection()
    logging: LoggingSection = LoggingSection()
    planning: PlanningSection = PlanningSection()
    mode: ModeSection = ModeSection()
    forced: bool = Field(False, description="Started with --force in spite of error findings.")
    origins: dict[str, Origin] = {}

    @property
    def row_kind(self) -> RowKind:
        """A masked language model whose architecture is not known yet is taken for ESM-2."""
        kind = (self.model.architecture or {}).get("model_type", "esm")
        return "proteins" if self.task == "masked-lm" and kind == "esm" else self.task

    @property
    def task_is_chosen(self) -> bool:
        """By the user; or by a profile that classifies, for which any model will do. Else it follows the model."""
        chosen_by = self.origin("task").origin
        return chosen_by == "you" or (chosen_by == "profile" and self.task in CLASSIFIES)

    def value(self, key: str) -> Any:
        """The value at a key path such as "engine.precision"; KeyError when there is none."""
        return value_at(self, key)

    def origin(self, key: str) -> Origin:
        """Who chose the value at `key`; the product's default when nobody did."""
        return self.origins.get(key, Origin(origin="solved", reason="default"))

    def with_values(
        self, values: Mapping[str, Any], origin: OriginKind, reasons: Mapping[str, str] | None = None
    ) -> RunConfig:
        """A validated copy with `values` (key path -> value) set and their origin noted.

        Raises pydantic.ValidationError for a bad value and KeyError for a path that is not there.
        """
        document = self.model_dump()
        origins = {key: Origin(origin=origin, reason=(reasons or {}).get(key, "")) for key in values}
        for key, value in values.items():
            set_path(document, key, value)
        return RunConfig.model_validate({**document, "origins": {**self.origins, **origins}})

    def left_open(self, keys: Collection[str]) -> RunConfig:
        """A copy in which nobody chose the values of `keys`: the plan fills them in, and says why."""
        return self.model_copy(update={"origins": {key: by for key, by in self.origins.items() if key not in keys}})


def value_at(node: Any, key: str) -> Any:
    """What a key path leads to in sections, mappings and lists; KeyError when there is nothing."""
    for part in key.split("."):
        entries: Any = node.__dict__ if isinstance(node, BaseModel) else node
        try:
            node = entries[int(part) if isinstance(entries, list) else part]
        except (LookupError, TypeError, ValueError):
            raise KeyError(key) from None
    return node


def set_path(document: dict[str, Any], key: str, value: Any) -> None:
    """Set `document["a"]["b"]` for key "a.b"; KeyError when a parent is not there."""
    parents, _, last = key.rpartition(".")
    node = value_at(document, parents) if parents else document
    if not isinstance(node, dict):
        raise KeyError(key)
    node[last] = value
