"""The RunConfig that the newest attempt of a run really has: run.yaml with what recovery changed."""

from __future__ import annotations

from trainwiz.core.config.run import RunConfig
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.recovery import changes_now


def with_recovery(config: RunConfig, folder: RunFolder) -> RunConfig:
    """`config` as run.yaml holds it, with the changes of recovery.json.

    Raises pydantic.ValidationError or KeyError when recovery.json was edited into nonsense.
    """
    changes = changes_now(folder)
    return config.with_values(changes, "solved", dict.fromkeys(changes, "recovery")) if changes else config
