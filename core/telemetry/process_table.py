"""ProcessTable: all processes of this machine as of one look, with what is asked of single ones read once."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.run.processid import all_pids
from trainwiz.core.telemetry.processes import Member, command_of, member_of


class ProcessTable:
    """Who is whose child. What goes away while it is read is absent; nothing raises."""

    def __init__(self) -> None:
        found = (member_of(pid) for pid in all_pids())
        self.members: dict[int, Member] = {member.pid: member for member in found if member is not None}
        self._children: dict[int, list[int]] = {}
        for member in self.members.values():
            self._children.setdefault(member.parent, []).append(member.pid)
        self._commands: dict[int, list[str]] = {}

    def is_alive(self, pid: int) -> bool:
        member = self.members.get(pid)
        return member is not None and not member.zombie

    def command(self, pid: int) -> list[str]:
        if pid not in self._commands:
            self._commands[pid] = command_of(pid)
        return self._commands[pid]

    def children(self, pid: int) -> list[int]:
        return [child for child in self._children.get(pid, ()) if self.is_alive(child)]

    def parent(self, pid: int) -> int | None:
        """None for a process without a parent, or one that is not seen."""
        member = self.members.get(pid)
        return member.parent if member is not None and member.parent in self.members else None

    def ancestors(self, pid: int) -> Iterator[int]:
        """The parent, its parent, ...; ends also where numbers that were used again make a ring."""
        seen = {pid}
        above = self.parent(pid)
        while above is not None and above not in seen:
            seen.add(above)
            yield above
            above = self.parent(above)

    def tree(self, root: int) -> list[int]:
        """`root` and all below it, parents first."""
        if not self.is_alive(root):
            return []
        order = [root]
        for pid in order:
            order.extend(child for child in self.children(pid) if child not in order)
        return order
