"""All files that a RunConfig stands for, as text."""

from __future__ import annotations

import json
from collections.abc import Iterable

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.accelerate import accelerate_yaml
from trainwiz.core.export.deepspeed import deepspeed_config
from trainwiz.core.export.deepspeed_file import checked_deepspeed_text
from trainwiz.core.export.launch_script import launch_script
from trainwiz.core.run.folder import ACCELERATE_YAML, DEEPSPEED_JSON, LAUNCH_SH


def export_files(config: RunConfig, needs: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """File name -> text: accelerate.yaml, launch.sh and, with DeepSpeed, deepspeed.json.

    `needs`: paths outside the folder that the run reads, as (setting, path), for launch.sh to look for.
    Raises UsageError for a DeepSpeed file of the user's that contradicts the run.
    """
    files = {ACCELERATE_YAML: accelerate_yaml(config), LAUNCH_SH: launch_script(config, needs)}
    own = checked_deepspeed_text(config)
    document = deepspeed_config(config) if own is None else None
    if own is not None:
        files[DEEPSPEED_JSON] = own
    elif document is not None:
        files[DEEPSPEED_JSON] = json.dumps(document, indent=2) + "\n"
    return files
