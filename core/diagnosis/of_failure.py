"""The cause that a failure file speaks for."""

from __future__ import annotations

from typing import cast

from trainwiz.core.diagnosis.causes import CAUSES, Cause, Confidence
from trainwiz.core.diagnosis.evidence import Failure
from trainwiz.core.diagnosis.patterns import PATTERNS

CAUSE_OF_CODE = {"missing_data": "missing_file", "node_missing": "node_lost", "wrong_interface": "config_mismatch"}
"""Code of a finding of trainwiz's own -> the cause, where it is another word."""


def cause_of_failure(failure: Failure) -> tuple[Cause, Confidence, bool, str]:
    """(cause, confidence, whether it may come of another process, what was said in one line)."""
    said = next((line.strip() for line in failure.message.splitlines() if line.strip()), "")
    if failure.is_own:
        codes = [CAUSE_OF_CODE.get(code, code) for code in failure.codes]
        return cast(Cause, next((code for code in codes if code in CAUSES), "config_mismatch")), "high", False, said
    # The sentence that tells may stand in any line of a long message, or under the exception that hid it.
    for text in (f"{failure.type}: {said}", failure.message, *_raised(failure)):
        for pattern in PATTERNS:
            if pattern.expression.search(text):
                if pattern.cause == "nccl_error" and text is not failure.message:
                    # NCCL names what it ran into in its last lines; of the patterns, those of such causes stand first.
                    pattern = next((one for one in PATTERNS if one.expression.search(failure.message)), pattern)
                return pattern.cause, pattern.confidence, pattern.consequence, said
    return "python_error", "high", False, said


def _raised(failure: Failure) -> list[str]:
    """The exceptions of the traceback, the first first: not the source lines between."""
    lines = failure.traceback.splitlines()
    return [line for line in lines if line[:1].isalpha() and ("Error" in line or "Exception" in line)]
