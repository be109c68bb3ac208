"""state.json that cannot be used: why, and what else in the folder says about the run."""

from __future__ import annotations

import os
from typing import Any, get_args

from trainwiz.core.errors import os_reason
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.status import RunStatus
from trainwiz.core.small_file import read_small

SCHEMA_VERSION = 1
"""Of state.json. Keys that are added do not change it."""


def read_document(run: RunFolder) -> dict[str, Any] | str:
    """The document of state.json, or one sentence that says why there is none."""
    path = run.state_json
    try:
        text = read_small(path)
        if not text.strip(b"\0 \r\n\t"):
            # Zero bytes are what a file system leaves of a file after a power cut.
            return tr("{path} is empty.", path=path)
        document = parse_json(text)
    except FileNotFoundError:
        return tr("{path} is not there.", path=path)
    except OSError as error:
        return tr("{path} cannot be read: {reason}.", path=path, reason=os_reason(error))
    except ValueError:
        return tr("{path} is broken: it is not JSON.", path=path)
    if not isinstance(document, dict):
        return tr("{path} is broken: it is no JSON object.", path=path)
    if document.get("status") not in get_args(RunStatus):
        return newer_schema(run, document) or tr("{path} is broken: it names no state.", path=path)
    return document


def newer_schema(run: RunFolder, document: dict[str, Any]) -> str | None:
    """One sentence when a newer trainwiz wrote the state; what it means may not be known here."""
    version = document.get("schema_version")
    if not isinstance(version, int) or version <= SCHEMA_VERSION:
        return None
    return tr(
        "{path} was written by a newer trainwiz (version {theirs} of the file, this one knows {ours}).",
        path=run.state_json,
        theirs=version,
        ours=SCHEMA_VERSION,
    )


def known_without_state(run: RunFolder) -> dict[str, Any]:
    """As much of a state as plan.json has: enough to list the run and to go on with it."""
    plan = read_json(run.plan_json) or {}
    model, time = plan.get("model"), plan.get("time")
    return {
        "name": run.path.name,
        "profile": plan.get("profile"),
        "task": plan.get("task"),
        "model": model.get("name") if isinstance(model, dict) else None,
        "max_steps": time.get("steps") if isinstance(time, dict) else None,
    }


def was_trained(run: RunFolder) -> bool:
    """Whether a training ever wrote here. Raises nothing."""
    # os.path: below a closed folder Path.exists() raises PermissionError.
    return any(os.path.exists(path) for path in (run.metrics_jsonl, run.train_log))  # noqa: PTH110
