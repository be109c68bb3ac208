"""StartOrder: what a front end hands to the keeper that it starts, as JSON on the keeper's stdin."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.run.processid import ProcessId
from trainwiz.core.supervise.recovery import Setup


@dataclass(frozen=True, slots=True)
class StartOrder:
    """All that the keeper needs, so that it never has to load the configuration itself."""

    command: list[str]
    """The launcher with its arguments; it runs in the run folder, and the keeper adds --resume."""
    mark: str
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are added to those of the front end."""
    system_every_s: float = 1.0
    resume: str | None = None
    """None from the beginning, "auto" the newest complete checkpoint, else the name of one."""
    owner: ProcessId | None = None
    """The foreground command that the run is tied to: the run is stopped when it is gone."""
    setup: Setup | None = None
    """What a start by itself may change; None: the keeper never starts the training again."""
    renew: list[str] = field(default_factory=list)
    """The command that writes the exported files again for changed settings and prints the launcher's `command`,
    `environment` and `setup` as JSON; none: the next attempt is started as this one was."""

    accept: list[str] = field(default_factory=list)
    """Parts of the run's identity that may differ from its record (core.run.identity)."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the record of the run: what was accepted."""

    def to_text(self) -> str:
        return json.dumps(
            {
                "command": self.command,
                "mark": self.mark,
                "environment": self.environment,
                "system_every_s": self.system_every_s,
                "resume": self.resume,
                "owner": self.owner.to_json() if self.owner else None,
                "setup": self.setup.to_json() if self.setup else None,
                "renew": self.renew,
                "accept": self.accept,
                "notes": self.notes,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> StartOrder:
        """Raises ValueError or KeyError when the text is not an order."""
        document: dict[str, Any] = json.loads(text)
        return cls(
            command=[str(word) for word in document["command"]],
            mark=str(document["mark"]),
            environment={str(key): str(value) for key, value in document["environment"].items()},
            system_every_s=float(document["system_every_s"]),
            resume=document["resume"],
            owner=ProcessId.from_json(document["owner"]),
            setup=Setup.from_json(document.get("setup")),
            renew=[str(word) for word in document.get("renew") or []],
            accept=[str(word) for word in document.get("accept") or []],
            notes=[str(word) for word in document.get("notes") or []],
        )
