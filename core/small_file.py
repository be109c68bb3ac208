"""Files that people write, read whole: a device or a pipe in the place of one never ends, a huge one fills the memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.telemetry.paths import open_at_once

MOST_BYTES = 64 * 2**20
"""More than any profile, settings file, DeepSpeed file or description of a model has."""


def read_small(path: Path) -> bytes:
    """The whole file. Raises OSError with a reason, also for what is no regular file and for one above MOST_BYTES."""
    if "\0" in str(path):
        # No name of a file holds one, and Python says so with another exception.
        raise OSError(errno.EINVAL, tr("it is no regular file"), str(path))
    with open(path, "rb", opener=open_at_once) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, tr("it has more than {size} MiB", size=MOST_BYTES >> 20), str(path))
        return file.read(MOST_BYTES)
