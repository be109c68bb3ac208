"""The steps of a plan say what they read and write: each key is written before it is read, by one step."""

from dataclasses import fields
from typing import Any

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.estimate.traced import NO_EVIDENCE
from trainwiz.core.plan.resolve import STEPS, Step
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import config, machine, rows
from tests.each import each

PARTS = {part.name for part in fields(Plan)}
GIVEN = {"machine", "config", "spec", "data", "based_on", "known", "asked", "found"}
OWN = {"values", "reasons", "config"}
"""Where settings lie."""


def test_each_key_is_written_before_it_is_read_and_by_one_step() -> None:
    written, names = dict[str, str](), set[str]()
    for step in STEPS:
        unknown = {key for key in step.reads.split() if key not in written and key not in GIVEN and key not in names}
        assert not unknown, (step.name, unknown)
        twice = {key: written[key] for key in step.writes.split() if key in written}
        assert not twice, (step.name, twice)
        written |= dict.fromkeys(step.writes.split(), step.name)
        names.add(step.name)
    again = {key for step in STEPS for key in step.again.split()}
    assert again <= written.keys() | GIVEN and len(names) == len(STEPS)


class Watched(Plan):
    """Notes what is read and written."""

    __slots__ = ()
    seen: tuple[set[str], set[str]] = (set(), set())

    def get(self, key: str) -> Any:
        self.seen[0].add(key)
        return Plan.get(self, key)

    def put(self, key: str, *values: Any) -> None:
        self.seen[1].add(key)
        Plan.put(self, key, *values)

    def __getattribute__(self, name: str) -> Any:
        if name in PARTS:
            Watched.seen[0].add(name)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in PARTS:
            Watched.seen[1].add(name)
        object.__setattr__(self, name, value)


def undeclared(step: Step, written: dict[str, str]) -> set[str]:
    """What a step read or wrote and does not say."""
    read, wrote = Watched.seen
    reads, declared = step.reads.split(), {*step.writes.split(), *step.again.split()}
    told = {*declared, *reads}
    for other in STEPS:
        told |= {*other.writes.split(), *other.again.split()} if other.name in reads else set()
    return {key for key in read if key in {*written, *GIVEN} - OWN and key not in told} | {
        key for key in wrote - OWN if not key.startswith(tuple(declared) or ("-",))
    }


@each(
    ("request_", "gpu", "mode"),
    [
        (config("nllb-600m", evaluation__generate=True, checkpoint__keep_best=True), "RTX 3090", "train"),
        (config("gpt2-medium", engine__strategy="zero3", engine__optimizer="adamw_bnb_8bit"), None, "smoke"),
    ],
)
def test_the_steps_do_what_they_say(request_: RunConfig, gpu: str | None, mode: str) -> None:
    asked = request_.with_values({"mode.kind": mode}, "solved", {})
    given = {"asked": asked, "spec": load_models()[asked.model.name], "data": rows(), "known": NO_EVIDENCE}
    plan, written = Watched(machine(gpu, 2), asked, **given), dict[str, str]()
    for step in STEPS:
        Watched.seen = (set(), set())
        step.run(plan)
        assert not undeclared(step, written), step.name
        written |= dict.fromkeys(step.writes.split(), step.name)
