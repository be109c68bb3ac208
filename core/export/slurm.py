"""RunConfig -> a complete sbatch file that resumes the run at every start and saves before the time limit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.config.run import RunConfig
from trainwiz.core.errors import usage_error
from trainwiz.core.export.accelerate import cpu_threads
from trainwiz.core.export.launch_script import comment
from trainwiz.core.export.training_arguments import runs_on_cpu
from trainwiz.core.language import tr
from trainwiz.core.run.folder import LAUNCH_SH
from trainwiz.core.text import plain_text

TIME_MARGIN = 1.25
"""Over the slow end of the planned time."""
SHORTEST_S = 30 * 60
"""A queue's clock counts whole minutes, and a job that ends too early waits in the queue again."""
UNKNOWN_TIME_S = 24 * 3600
MEMORY_MARGIN = 1.25
SHORTEST_NOTICE_S = 120
"""Between the signal and the limit at least: a step, a checkpoint, and the way of the signal."""
NOTICE_MARGIN = 1.5
LOWEST_PORT, PORT_PAIRS = 20_000, 6000
"""Below 32,768, where Linux begins to take ports for connections that it makes itself."""
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*")
"""Accounts, partitions and the like: nothing that ends the line or begins another option."""
TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class SlurmOrder:
    """What the cluster asks for beside what the plan says."""

    account: str | None = None
    partition: str | None = None
    time: str | None = None
    """As sbatch takes it; None: planned."""
    qos: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What of a plan decides about the job; None where it is not known."""

    total_high_s: float | None
    host_ram_bytes: int | None
    """Of one machine."""
    stop_s: float
    """How long a graceful stop may take."""
    host_ram_high_bytes: int | None = None
    """The upper end of the prediction: Slurm kills what takes more than it was asked for."""


def slurm_script(config: RunConfig, folder: Path, planned: Planned, order: SlurmOrder) -> str:
    """The text of the sbatch file; `folder` is the run folder, at the same place for all nodes.

    Raises UsageError for words that sbatch cannot take.
    """
    if not str(folder).isprintable():
        message = tr(
            "The run folder's name has a line break or another control character, which an sbatch line cannot contain."
        )
        raise usage_error("folder_not_for_slurm", plain_text(str(folder)), message)
    notice = notice_s(planned)
    limit = time_limit(planned, order, notice)
    lines = [
        "#!/bin/bash",
        *_directives(config, folder, planned, order, limit, notice),
        "",
        *(comment(text) for text in _assumptions(order)),
        "set -u",
        f"run={shlex.quote(str(folder))}",
        *_meeting_point(config),
        "",
        comment(
            tr("Slurm sends USR1 before the time limit: the step is finished, a checkpoint saved, the job requeued.")
        ),
        "requeue=",
        "save() {",
        "    requeue=yes; caught=yes",
        "    "
        + comment(
            tr("A signal to srun would kill the step half a minute later; the supervisor of the run is on this node.")
        ),
        '    trainwiz runs stop "$run"',
        "    " + comment(tr("Ends what has not started yet or does not stop.")),
        '    sleep 5; kill -TERM "${!:-}" 2>/dev/null',
        "}",
        "trap save USR1",
        "",
        comment(
            tr("One task per node; launch.sh starts one process per GPU. A run that was started before is resumed.")
        ),
        _srun(config),
        "steps=$!",
        comment(tr("A trapped signal ends `wait` while the training is still saving.")),
        "while :; do",
        '    caught=; wait "$steps"; code=$?',
        '    [ -n "$caught" ] || break',
        "done",
        "",
        'if [ -n "$requeue" ] && [ "$code" -ne 0 ]; then',
        '    scontrol requeue "$SLURM_JOB_ID" && exit 0',
        "fi",
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def time_limit(planned: Planned, order: SlurmOrder, notice: int) -> str:
    """D-HH:MM:SS. Raises UsageError for a time of the user's that sbatch does not take, or that leaves no time to save."""
    if order.time is not None:
        seconds = seconds_of(order.time)
        if seconds <= 2 * notice:
            message = tr(
                "--time {time} is too short: a checkpoint is saved {notice} s before the end; set at least {least}.",
                time=order.time,
                notice=notice,
                least=_clock(4 * notice),
            )
            raise usage_error("bad_choice", "--time", message)
        return _clock(seconds)
    if planned.total_high_s is None:
        return _clock(UNKNOWN_TIME_S)
    return _clock(max(SHORTEST_S, planned.total_high_s * TIME_MARGIN + notice))


def seconds_of(time: str) -> int:
    """Of hours:minutes:seconds, with days- in front. Raises UsageError for the shorter forms of sbatch(1) too."""
    found = TIME.fullmatch(time.strip())
    if found is None:
        message = tr("--time {time} is not a time; use HH:MM:SS or D-HH:MM:SS.", time=plain_text(time, 40))
        raise usage_error("bad_choice", "--time", message)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def notice_s(planned: Planned) -> int:
    """Seconds before the limit at which the checkpoint is asked for; whole minutes, as Slurm may be a minute late."""
    return -(-int(max(SHORTEST_NOTICE_S, planned.stop_s * NOTICE_MARGIN + 60)) // 60) * 60


def _directives(
    config: RunConfig, folder: Path, planned: Planned, order: SlurmOrder, limit: str, notice: int
) -> Iterator[str]:
    engine = config.engine
    processes = engine.processes or 1
    yield f"#SBATCH --job-name={_NAME.sub('-', config.name).strip('-') or 'trainwiz'}"
    for option, value in (("account", order.account), ("partition", order.partition), ("qos", order.qos)):
        if value is not None:
            yield f"#SBATCH --{option}={_word(option, value)}"
    yield f"#SBATCH --nodes={engine.nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    if not runs_on_cpu(config):
        yield f"#SBATCH --gpus-per-node={processes}"
    # Of one node: the threads and loader workers of each process.
    yield f"#SBATCH --cpus-per-task={processes * max(cpu_threads(config), (config.data.workers or 0) + 1)}"
    if planned.host_ram_bytes is not None:
        needed = max(int(planned.host_ram_bytes * MEMORY_MARGIN), planned.host_ram_high_bytes or 0)
        yield f"#SBATCH --mem={-(-needed // 2**30)}G"
    yield f"#SBATCH --time={limit}"
    yield f"#SBATCH --signal=B:USR1@{notice}"
    yield "#SBATCH --requeue"
    yield "#SBATCH --open-mode=append"
    yield f"#SBATCH --output={_in_directive(folder, 'slurm-%j.log')}"


def _assumptions(order: SlurmOrder) -> Iterator[str]:
    yield tr("Assumes that all nodes see this run folder, its data and this environment at the same paths.")
    if order.account is None or order.partition is None:
        yield tr("No account or partition was set: the cluster's defaults are used (--account, --partition).")
    if order.time is None:
        yield tr(
            "The time limit is the upper end of the plan's estimate plus a quarter, or one day where the plan has none; "
            "a run that needs more is requeued."
        )


def _meeting_point(config: RunConfig) -> Iterator[str]:
    if config.engine.nodes == 1:
        return
    yield comment(
        tr("Node 0 is the first node of the job; the port is derived from the job ID, so two jobs do not collide.")
    )
    yield 'host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    yield f'main="$host:$(( {LOWEST_PORT} + SLURM_JOB_ID % {PORT_PAIRS} * 2 ))"'


def _srun(config: RunConfig) -> str:
    # srun passes on to its tasks what it is sent; a node that fails may be waited for, so none is killed for another.
    # Since Slurm 22.05 it does not take over the number of cores by itself.
    start = 'srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=0 --export=ALL'
    if config.engine.nodes == 1:
        return f'{start} trainwiz runs join "$run" &'
    return f'{start} "$run/{LAUNCH_SH}" --main "$main" &'


def _word(option: str, value: str) -> str:
    if _WORD.fullmatch(value) is None:
        message = tr("--{option} {value} is not a valid Slurm name.", option=option, value=plain_text(value, 60))
        raise usage_error("bad_choice", f"--{option}", message)
    return value


def _in_directive(folder: Path, name: str) -> str:
    """A file in `folder`, whose `name` may hold what sbatch puts in for %; it cuts at spaces as a shell does."""
    text = f"{str(folder).replace('%', '%%')}/{name}"
    return text if re.fullmatch(r"[\w@%+=:,./-]+", text) else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _clock(seconds: float) -> str:
    minutes = -(-int(seconds) // 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"
