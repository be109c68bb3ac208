"""The faults of a campaign, drawn from a seed: half of them at random times."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle

from tools.faults.broken_data import BROKEN_DATA
from tools.faults.damage import DAMAGES
from tools.faults.fault import Fault, Moment
from tools.faults.scenario import EVALUATE_EVERY, SCENARIOS, STEPS

SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
USUAL = ("esm", "esm-two", "esm-workers", "esm-two", "llama")
ZERO = "esm-zero2"
LIVE_FILES = (
    "run.yaml", "plan.json", "accelerate.yaml", "launch.sh", "state.json", "metrics.jsonl", "system.jsonl", "train.log",
    "phase.json", "supervisor.log", "engine.json",
)  # fmt: skip
REST_FILES = (
    "run.yaml", "plan.json", "accelerate.yaml", "launch.sh", "state.json", "engine.json", "metrics.jsonl", "system.jsonl",
    "train.log", "phase.json", "outcome.json", "supervisor.log", "identity.json", "recovery.json", "advice.jsonl",
    "{checkpoint}/model.safetensors", "{checkpoint}/optimizer.pt", "{checkpoint}/scheduler.pt",
    "{checkpoint}/rng_state.pth", "{checkpoint}/trainer_state.json", "{checkpoint}/progress.json",
    "{checkpoint}/config.json", "{checkpoint}/training_args.bin", "{checkpoint}/files.json",
    "{checkpoint}/identity.json", "{checkpoint}/vocab.txt", "{checkpoint}/tokenizer_config.json",
)  # fmt: skip
"""Those that a run has; the newest checkpoint's among them."""
SHARES = {"signal": 108, "file": 38, "training": 22, "disk": 8, "data": 7, "start": 6, "clock": 7, "stop": 10}
"""Of 206 faults, how many of each family."""


def plan(count: int, seed: int) -> list[Fault]:
    """`count` faults; the same for the same seed."""
    chance = random.Random(seed)
    whole = sum(SHARES.values())
    drawn: list[Fault] = []
    for family, share in SHARES.items():
        wanted = max(1, round(count * share / whole))
        makers = cycle(_MAKERS[family](chance))
        drawn += [next(makers) for _ in range(wanted)]
    while len(drawn) < count:
        drawn.append(next(_signals(chance)))
    drawn = drawn[:count]
    chance.shuffle(drawn)
    return [replace(fault, number=number) for number, fault in enumerate(_half_at_random(drawn, chance), start=1)]


def _half_at_random(faults: list[Fault], chance: random.Random) -> list[Fault]:
    """The moments of half of them are replaced by random times, where the family has a moment at all."""
    movable = [
        k for k, fault in enumerate(faults) if fault.family in ("signal", "stop", "disk", "clock", "file", "start")
    ]
    movable = [k for k in movable if faults[k].moment.kind != "rest" and faults[k].how != "both at once"]
    chosen = set(chance.sample(movable, min(len(movable), (len(faults) + 1) // 2)))
    return [
        replace(fault, moment=_random_moment(chance), random=True) if k in chosen else fault
        for k, fault in enumerate(faults)
    ]


def _random_moment(chance: random.Random) -> Moment:
    """Half over the whole time of a run, most of which is preparation; half over its steps."""
    if chance.random() < 0.5:
        return Moment("time", round(chance.uniform(0.05, 0.95), 3))
    return Moment("step", float(chance.randint(1, STEPS - 1)))


def earlier(fault: Fault) -> Fault:
    """The same fault sooner, for one that came when all was over."""
    moment = fault.moment
    if moment.kind in ("time", "step", "saving"):
        return replace(fault, moment=replace(moment, at=moment.at / 2))
    return replace(fault, moment=Moment("step", 4.0))


def _signals(chance: random.Random) -> Iterator[Fault]:
    """Every target with every signal, each at another moment and in another scenario."""
    moments = cycle(_moments(chance))
    usual = cycle(USUAL)
    number = 0
    while True:
        pairs = [
            (target, how)
            for target in ("front", "supervisor", "launcher", "rank0", "rank1", "worker")
            for how in SIGNALS
        ]
        pairs += [
            ("guard", "SIGKILL"),
            ("guard", "SIGTERM"),
            ("screen", "SIGKILL"),
            ("screen", "SIGHUP"),
            ("screen", "SIGTERM"),
        ]
        chance.shuffle(pairs)
        for target, how in pairs:
            number += 1
            scenario = ZERO if number % 24 == 0 and target not in ("worker", "screen") else _scenario_for(target, usual)
            front, target = ("screen", "front") if target == "screen" else ("headless", target)
            moment = next(moments)
            if front == "screen" and moment.kind == "preparation":
                moment = Moment("step", 4.0)
            yield Fault(0, "signal", scenario, target, how, moment, "screen" if front == "screen" else "headless")


def _scenario_for(target: str, usual: Iterator[str]) -> str:
    for name in usual:
        scenario = SCENARIOS[name]
        if (target != "worker" or scenario.workers) and (target != "rank1" or scenario.processes > 1):
            return name
    raise AssertionError


def _moments(chance: random.Random) -> list[Moment]:
    return [
        Moment("preparation"),
        Moment("step", float(chance.randint(2, STEPS - 2))),
        Moment("saving", 3.0),
        Moment("evaluation"),
        Moment("saving", 6.0),
        Moment("final"),
        Moment("saving", 9.0),
    ]


def _files(chance: random.Random) -> Iterator[Fault]:
    rest, live = list(REST_FILES), list(LIVE_FILES)
    while True:
        chance.shuffle(rest)
        chance.shuffle(live)
        for k, name in enumerate(rest):
            how = chance.choice(DAMAGES)
            yield Fault(0, "file", "esm", name, how, Moment("rest"))
            if k % 2:
                target = live[(k // 2) % len(live)]
                yield Fault(0, "file", chance.choice(USUAL), target, chance.choice(DAMAGES), Moment("step", 5.0))


def _training(chance: random.Random) -> Iterator[Fault]:
    while True:
        step = chance.randint(2, STEPS - 1)
        for scenario, how in (
            ("esm", "oom@7:above=3"),
            ("esm-two", f"oom@{step}:above=3"),
            ("esm-two", f"oom@{chance.randint(2, STEPS - 1)}:rank=1:above=3"),
            ("esm", f"oom@{EVALUATE_EVERY}:above=3:during=evaluation"),
            ("esm", f"nan@{step}"),
            ("esm-two", f"nan@{step}:rank=1"),
            ("llama", f"nan@{chance.randint(2, STEPS - 1)}"),
            ("esm", f"host_oom@{step}:once"),
            ("llama", f"host_oom@{step}:once"),
            ("esm-two", f"nccl@{step}:rank=1:once"),
            ("esm-two", f"nccl@{chance.randint(2, STEPS - 1)}:rank=0:once"),
            ("esm", f"error@{step}"),
            ("esm-two", f"error@{step}:rank=1"),
            ("llama", f"worker@{step}:once"),
            ("esm-workers", f"worker@{chance.randint(2, STEPS - 1)}:once"),
            ("esm", f"kill@{step}:once"),
            ("esm-two", f"kill@{step}:rank=1:once"),
            ("esm", "disk@6:during=saving:times=1"),
            ("esm-two", f"slow@{step}:seconds=4"),
            (ZERO, "oom@7:above=3"),
            ("esm", f"oom@{STEPS}:above=3"),
            ("llama", f"error@{EVALUATE_EVERY}:during=evaluation"),
        ):
            yield Fault(
                0, "training", scenario, "training", how, Moment("step", float(how.split("@")[1].split(":")[0]))
            )


def _disk(chance: random.Random) -> Iterator[Fault]:
    for k in cycle(range(4)):
        moment = (Moment("saving", 3.0), Moment("step", 2.0), Moment("preparation"), Moment("saving", 6.0))[k]
        yield Fault(0, "disk", chance.choice(("esm", "esm-two")), "disk", "filled", moment)


def _data(chance: random.Random) -> Iterator[Fault]:
    for how in BROKEN_DATA:
        yield Fault(0, "data", "esm", "data", how, Moment("time"))


def _starts(chance: random.Random) -> Iterator[Fault]:
    for how in ("resumed", "resumed by name"):
        yield Fault(0, "start", chance.choice(USUAL), "folder", how, Moment("step", 3.0))
    yield Fault(0, "start", chance.choice(USUAL), "folder", "both at once", Moment("preparation"))


def _clock(chance: random.Random) -> Iterator[Fault]:
    for how in ("86400", "-86400", "-3600", "31536000", "-5", "suspended"):
        yield Fault(0, "clock", chance.choice(USUAL), "clock", how, Moment("step", 5.0))


def _stops(chance: random.Random) -> Iterator[Fault]:
    for how in ("stop", "closed terminal", "now"):
        for moment in (Moment("saving", 3.0), Moment("evaluation"), Moment("preparation")):
            yield Fault(0, "stop", chance.choice(USUAL), "run", how, moment)


_MAKERS: dict[str, Callable[[random.Random], Iterator[Fault]]] = {
    "signal": _signals,
    "file": _files,
    "training": _training,
    "disk": _disk,
    "data": _data,
    "start": _starts,
    "clock": _clock,
    "stop": _stops,
}
