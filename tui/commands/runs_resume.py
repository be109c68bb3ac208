"""`trainwiz runs resume`."""

from __future__ import annotations

from trainwiz.core.run.find import find_run


def run_resume(run: str, *, detach: bool) -> int:
    """Go on from the newest complete checkpoint, followed like a new run."""
    from trainwiz.tui.headless.reporters import new_reporter
    from trainwiz.tui.headless.run import start_and_follow

    folder = find_run(run)
    reporter = new_reporter(as_json=False, plain=False)
    try:
        return start_and_follow(folder, reporter, detach=detach, checkpoint="auto")
    finally:
        reporter.close()
