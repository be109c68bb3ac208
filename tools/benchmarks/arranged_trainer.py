"""The same training by trainwiz: the entry point of its runs, with the gate among its callbacks.

python -m tools.benchmarks.arranged_trainer RUNFOLDER WAITS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from trainwiz.core.processes import wait_briefly
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training import session
from trainwiz.core.training.process import StopRequest
from trainwiz.core.training.trainer import RunTrainer

from tools.benchmarks.gate import Gate


class GatedTrainer(RunTrainer):
    """A RunTrainer that does one step each time it is told to."""

    waits = True

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self.add_callback(Gate(self.model, waits=self.waits))
        return super().train(*args, **kwargs)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    GatedTrainer.waits = sys.argv[2] == "waits"
    session.RunTrainer = GatedTrainer  # type: ignore[attr-defined]
    wait_briefly(os.environ)
    os.chdir(folder)
    session.TrainingSession(folder, newest_complete(RunFolder(folder)), StopRequest.install()).run()


if __name__ == "__main__":
    main()
