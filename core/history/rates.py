"""Rates of the devices here: measured by a process with torch, kept in the data folder, renewed with the libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from trainwiz.core.errors import CannotRunError, Finding, os_reason
from trainwiz.core.hardware.install import without
from trainwiz.core.hardware.machine import Gpu, Machine, Rates
from trainwiz.core.history.measurement import device_key, gpu_key, history_path, keys_of
from trainwiz.core.language import tr
from trainwiz.core.run.folder import read_json, write_json_atomic
from trainwiz.core.text import object_in, objects_in, parse_json, plain_text

# rates.json beside history.jsonl.

METHOD = "2"
"""Of the measuring. What was measured in another way is measured anew."""


def rates_path() -> Path:
    """It need not exist."""
    return history_path().with_name("rates.json")


def kept_rates(machine: Machine) -> tuple[Rates, ...]:
    """Of all devices of this machine with the libraries and drivers that are here now, the newest first; () for a machine
    that is only planned. What cannot be read of the file is left out."""
    here = (rates for rates in _read() if rates.device in keys_of(machine))
    return tuple(rates for rates in here if rates.versions == _versions(machine, rates.device))


def keep_rates(rates: Rates) -> None:
    """In place of what is kept of the same devices and threads. Raises OSError where it cannot be written."""
    path = rates_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    others = [one for one in _read() if (one.device, one.threads) != (rates.device, rates.threads)]
    write_json_atomic(path, {"rates": [one.to_json() for one in (rates, *others)]})


def _read() -> list[Rates]:
    found = []
    for values in objects_in((read_json(rates_path()) or {}).get("rates")):
        with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            found.append(Rates.from_json(values))
    return found


def _versions(machine: Machine, key: str) -> dict[str, str]:
    """What rates of a device depend on beside it."""
    named = {"torch": machine.libraries.versions.get("torch"), "method": METHOD}
    for gpu in machine.gpus:
        if gpu_key(machine.accelerator, gpu) == key:
            named |= {"cuda": machine.torch_cuda, "driver": gpu.driver}
    return {name: str(version) for name, version in named.items() if version is not None}


# The measuring: some seconds in a process of its own.

LIMIT_S = 5.0
PATIENCE_S = 120.0
"""For torch from a cold, slow disk, and for cores that others take."""
LOOK_EVERY_S = 0.05
BACKGROUND_NICENESS = 19


def measure_rates(
    machine: Machine,
    device: str,
    gpus: Sequence[Gpu],
    threads: int | None,
    *,
    limit_s: float = LIMIT_S,
    niceness: int = 0,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Rates:
    """Measured now, the first of `gpus` for all of its kind; nothing is kept. `is_cancelled` is looked at 20 times a second.

    The process ends with the calling thread. Raises CannotRunError with the reason in one sentence.
    """
    key = device_key(machine, device, gpus)
    if machine.hypothetical or key is None:
        raise _cannot(tr("only one kind of device of this machine can be measured"))
    if not machine.libraries.has("torch"):
        raise without(("torch",), machine)
    threads = max(1, threads or machine.cpu_cores) if device == "cpu" else None
    uuid = gpus[0].uuid if device == "cuda" else None
    order = {"device": device, "uuid": uuid, "threads": threads, "limit_s": limit_s, "nice": niceness}
    found = object_in(_asked(order, limit_s, is_cancelled))
    known = {"device": key, "threads": threads, "versions": _versions(machine, key)}
    try:
        return Rates.from_json({**object_in(found.get("rates")), **known, "day": date.today().isoformat()})
    except (KeyError, TypeError, ValueError) as error:
        problem = found.get("problem") or tr("the process ended without a result")
        raise _cannot(plain_text(problem, 300)) from error


def _cannot(reason: str) -> CannotRunError:
    message = tr("The speed of this machine was not measured: {reason}.", reason=reason.rstrip("."))
    return CannotRunError(Finding("no_rates", "error", "hardware", message))


def _asked(order: dict[str, Any], limit_s: float, is_cancelled: Callable[[], bool]) -> Any:
    """The answer as JSON; raises CannotRunError where there is none."""
    command = [sys.executable, "-P", "-m", "trainwiz.core.training.rates", "--parent", str(os.getpid())]
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": order["uuid"]} if order["uuid"] else {})}
    asked: bytes | None = json.dumps(order).encode()
    pipe, nowhere, patience_s = subprocess.PIPE, subprocess.DEVNULL, PATIENCE_S + limit_s
    try:
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nowhere, env=environment, start_new_session=True
        ) as child:
            try:
                for _ in range(round(patience_s / LOOK_EVERY_S)):
                    with suppress(subprocess.TimeoutExpired):
                        return parse_json(child.communicate(asked, timeout=LOOK_EVERY_S)[0])
                    asked = None
                    if is_cancelled():
                        raise _cannot(tr("it was canceled"))
                raise _cannot(tr("it took longer than {seconds} s", seconds=f"{patience_s:.0f}"))
            finally:
                child.kill()
    except OSError as error:
        raise _cannot(os_reason(error)) from error
    except ValueError:
        raise _cannot(tr("the process ended without a result")) from None
