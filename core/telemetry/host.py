"""One reading of the computer around the GPUs: the `host` of a line of system.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
from trainwiz.core.hardware.host import free_disk, read_memory


def sample_host(disk_path: Path) -> dict[str, Any]:
    """{ram_used_bytes, ram_total_bytes, cpu_percent, disk_free_bytes, unavailable}.

    RAM respects the cgroup's limit, as in the plan. `cpu_percent` is of all cores of the machine (0..100)
    since the last call in this process. What cannot be read is None, with its reason under `unavailable`.
    """
    line: dict[str, Any] = {
        "ram_used_bytes": None,
        "ram_total_bytes": None,
        "cpu_percent": None,
        "disk_free_bytes": None,
    }
    unavailable: dict[str, str] = {}
    try:
        memory = read_memory()
        line["ram_total_bytes"] = memory.total_bytes
        line["ram_used_bytes"] = memory.total_bytes - memory.available_bytes
    except (OSError, psutil.Error) as error:
        unavailable["ram_used_bytes"] = unavailable["ram_total_bytes"] = str(error)
    try:
        line["cpu_percent"] = float(psutil.cpu_percent(interval=None))
    except (OSError, psutil.Error) as error:
        unavailable["cpu_percent"] = str(error)
    try:
        line["disk_free_bytes"] = free_disk(disk_path)
    except OSError as error:
        unavailable["disk_free_bytes"] = f"{error.strerror or error}"
    return line | {"unavailable": unavailable}
