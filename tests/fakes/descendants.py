"""The processes below one, asked of the kernel."""

from pathlib import Path


def descendants(root: int) -> list[int]:
    """Pids of all living descendants of `root`, without it; zombies have ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found
