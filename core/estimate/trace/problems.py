"""CannotTrace: why a step cannot be traced."""

from __future__ import annotations

from trainwiz.core.tracing.result import ProblemCode, TraceProblem


class CannotTrace(Exception):
    """There is no trace of this request. `message` is one sentence for the user."""

    def __init__(self, code: ProblemCode, message: str) -> None:
        super().__init__(message)
        self.code: ProblemCode = code
        self.message = message

    @property
    def problem(self) -> TraceProblem:
        return TraceProblem(self.code, self.message)
