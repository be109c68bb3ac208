"""`trainwiz runs resume`."""

from __future__ import annotations

from collections.abc import Sequence

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.find import find_run
from trainwiz.core.run.identity import PARTS


def run_resume(run: str, *, detach: bool, accept: Sequence[str] = ()) -> int:
    """Go on from the newest complete checkpoint, followed like a new run.

    `accept`: parts of its identity, also joined by commas. Raises UsageError for a part that there is not.
    """
    from trainwiz.tui.headless.reporters import new_reporter
    from trainwiz.tui.headless.run import start_and_follow

    parts = [part.strip() for given in accept for part in given.split(",") if part.strip()]
    unknown = [part for part in parts if part not in (*PARTS, "all")]
    if unknown:
        message = tr(
            "--accept {given}: there is no such part; it can be {parts} or all.",
            given=plain_text(", ".join(unknown), 40),
            parts=", ".join(PARTS),
        )
        raise usage_error("bad_choice", "--accept", message)
    folder = find_run(run)
    reporter = new_reporter(as_json=False, plain=False)
    try:
        return start_and_follow(folder, reporter, detach=detach, checkpoint="auto", accept=parts)
    finally:
        reporter.close()
