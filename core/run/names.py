"""Names of run folders."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr

DEFAULT_ROOT = Path("runs")
LONGEST_NAME_BYTES = 200


def check_name(name: str) -> str:
    """The name itself when it is one plain folder name; raises UsageError for anything else.

    Letters, digits, '-', '_' and '.', not starting with '.' or '-': such a name cannot leave the
    folder that it is put in, nor hide there, nor be read as an option.
    """
    if not name or name.startswith((".", "-")) or any(not (char.isalnum() or char in "-_.") for char in name):
        raise usage_error(
            "bad_run_name",
            "name",
            tr(
                "A run cannot be named {name}: use letters, digits, '-', '_' and '.', not starting with '.' or '-'.",
                name=repr(name),
            ),
        )
    return name


def check_text(path: Path) -> None:
    """Raises UsageError for a path with bytes that are no UTF-8: no file of a run could name it."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        message = tr("{path} cannot hold a run: its name is not UTF-8 text.", path=path)
        raise usage_error("bad_run_name", str(path), message) from None


def new_run_folder(root: Path, name: str, now_s: float | None = None) -> Path:
    """A path below `root` that nothing has yet: `<year-month-day_hourminute>-<name>`, then with -2, -3, ...

    The folder is not made. Raises UsageError for a name that is not one plain folder name.
    """
    check_name(name)
    stamp = time.strftime("%Y-%m-%d_%H%M", time.localtime(now_s))
    short = name.encode()[:LONGEST_NAME_BYTES].decode("utf-8", "ignore")
    candidate = root / f"{stamp}-{short}"
    number = 2
    while candidate.exists() or candidate.is_symlink():
        candidate = root / f"{stamp}-{short}-{number}"
        number += 1
    return candidate


def name_for_commands(folder: Path) -> str:
    """What a user types after `trainwiz runs resume`: the name below runs/, else the path, quoted for a shell.

    A name that would be read as an option is given with its folder.
    """
    if folder.parent.name == DEFAULT_ROOT.name:
        return shlex.quote(folder.name if not folder.name.startswith("-") else f"{DEFAULT_ROOT}/{folder.name}")
    return shlex.quote(str(folder) if not str(folder).startswith("-") else f"./{folder}")
