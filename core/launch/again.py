"""`python -m trainwiz.core.launch.again FOLDER`: the next attempt of a run that recovery has changed.

Writes the exported files for the settings of recovery.json and prints one line of JSON: {"command",
"environment", "setup"} of the new start, or {"error"}: one sentence. The keeper runs it as a child,
because it must not load the configuration itself. The exported files of the plan are kept in
`attempts/planned/`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError, os_reason
from trainwiz.core.export.files import export_files
from trainwiz.core.export.launch_script import launch_command
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import chosen_language, tr, use_language
from trainwiz.core.launch.portable import needed
from trainwiz.core.launch.start import changed_config, own_launcher, setup_of, training_variables
from trainwiz.core.run.folder import ATTEMPTS, DEEPSPEED_JSON, LAUNCH_SH, RunFolder, write_atomic
from trainwiz.core.small_file import read_small

PLANNED = "planned"
BATCH_KEYS = {
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Key of a DeepSpeed file -> field of `batch`."""


def prepare_again(run: RunFolder) -> dict[str, Any]:
    """Write what the newest attempt needs; the answer for the keeper. Raises UsageError and OSError."""
    config = changed_config(run)
    if config.engine.deepspeed_file is not None:
        _change_own_deepspeed_file(run, config)
    needs = [(one.key, one.name) for one in needed(config, run.path) if one.kind == "path"]
    for name, text in export_files(config, needs).items():
        _write(run, name, text)
    run.file(LAUNCH_SH).chmod(0o755)
    setup = setup_of(config)
    return {
        "command": own_launcher(launch_command(config)),
        "environment": training_variables(config, os.environ),
        "setup": setup.to_json() if setup else None,
    }


def _change_own_deepspeed_file(run: RunFolder, config: RunConfig) -> None:
    """A file of the user's keeps all that it says but the numbers of the batch, where it names them itself."""
    document = parse_json(read_small(run.file(DEEPSPEED_JSON)).decode())
    numbers = {
        key: getattr(config.batch, field) for key, field in BATCH_KEYS.items() if isinstance(document.get(key), int)
    }
    if any(document[key] != value for key, value in numbers.items()):
        _write(run, DEEPSPEED_JSON, json.dumps({**document, **numbers}, indent=2) + "\n")


def _write(run: RunFolder, name: str, text: str) -> None:
    """The first version of a file that changes is kept."""
    path, kept = run.file(name), run.path / ATTEMPTS / PLANNED / name
    if path.exists():
        if read_small(path).decode() == text:
            return
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, kept)
    write_atomic(path, text)


def main() -> int:
    use_language(chosen_language(None, os.environ))
    run = RunFolder(Path(sys.argv[1]).resolve())
    # deepspeed.json is named relative to the run folder.
    os.chdir(run.path)
    try:
        answer = prepare_again(run)
    except UsageError as error:
        answer = {"error": " ".join(finding.message for finding in error.findings)}
    except OSError as error:
        answer = {
            "error": tr("The run folder {path} cannot be used: {reason}.", path=run.path, reason=os_reason(error))
        }
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
