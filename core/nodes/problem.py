"""NodeProblem: what ends an attempt of several nodes before or beside the training itself."""

from __future__ import annotations

from trainwiz.core.errors import EXIT_TRAINING_FAILED, TrainwizError
from trainwiz.core.findings import Finding


class NodeProblem(TrainwizError):
    """One sentence with its code, as one of core.diagnosis or of `core.diagnosis.of_failure.CAUSE_OF_CODE`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(Finding(code, "error", "engine.nodes", message), EXIT_TRAINING_FAILED)

    @property
    def code(self) -> str:
        return self.findings[0].code

    @property
    def message(self) -> str:
        return self.findings[0].message
