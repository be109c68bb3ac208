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
from trainwiz.core.training.process import StopRequest
from trainwiz.core.training.session import TrainingSession
from transformers import TrainerCallback

from tools.benchmarks.gate import Gate


class GatedSession(TrainingSession):
    """A TrainingSession that does one step each time it is told to."""

    waits = True

    def _extras(self, config: Any, trainer: Any, meter: Any) -> list[TrainerCallback]:
        return [*super()._extras(config, trainer, meter), Gate(trainer.model, waits=self.waits)]


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    GatedSession.waits = sys.argv[2] == "waits"
    wait_briefly(os.environ)
    os.chdir(folder)
    GatedSession(folder, newest_complete(RunFolder(folder)), StopRequest.install()).run()


if __name__ == "__main__":
    main()
