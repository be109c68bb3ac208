"""Every command that a plan offers, pasted back: the same machine, the changes made, what the text says."""

import re
import shlex

import pytest
from trainwiz.core.errors import Remedy
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Plan
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.cli import parsed
from trainwiz.tui.options import BY_NAME

from tests.each import each

GIB = 2**30

CASES = [
    "--profile 3080-10g-guide",
    "--profile 2080super-guide --ram 12G",
    "--profile 2080super --num-gpus 3 --accumulation 651",
    "--model esm2-8m --dataset sample-proteins --gpu 'RTX 4090' --target-tokens 100000 --micro-batch 3 --accumulation 5",
    "--model esm2-650m --dataset sample-proteins --gpu 'RTX 3080 10GB' --micro-batch 64 --target-samples 1000",
    "--profile cpu-demo --model mistral-7b --task causal-lm --peft lora --gpu 'RTX 4090'",
    "--profile cpu-demo --overfit 10 --precision fp16",
    "--profile cpu-demo --model esm2-8n",
    "--profile cpu-demo --target-samples 5000",
]


def planned(line: str) -> Plan:
    _, values = parsed(["plan", *shlex.split(line)])
    return plan_run(parse_choices({name: value for name, value in values.items() if name in BY_NAME}).request)


@each("case", CASES)
def test_a_remedy_gives_what_it_says(case: str) -> None:
    made = planned(case)
    tried = 0
    for finding in made.findings:
        for remedy in finding.remedies:
            if remedy.command is None or not remedy.command.startswith("trainwiz plan "):
                assert not (remedy.command or "").startswith("--"), "an option alone cannot be pasted"
                continue
            tried += 1
            again = planned(remedy.command.removeprefix("trainwiz plan "))
            assert again.machine.description == made.machine.description, remedy.command
            assert again.config.mode.kind == made.config.mode.kind
            _does(remedy, made, again)
            if not finding.code.startswith("claim_"):
                assert (finding.code, finding.message) not in [(one.code, one.message) for one in again.findings]
    assert tried


def _does(remedy: Remedy, made: Plan, again: Plan) -> None:
    for key, value in remedy.changes.items():
        if isinstance(value, int | float | str):
            assert again.config.value(key) == value, remedy.command
    memory = re.search(r": ([\d.]+) GiB", remedy.text)
    if memory and "engine" in str(dict(remedy.changes)):
        assert f"{again.memory.judged_bytes / GIB:.1f}" == memory[1], remedy.text
        unit = "effective_tokens" if made.batch.target_tokens else "effective_samples"
        assert getattr(again.batch, unit) == pytest.approx(getattr(made.batch, unit), rel=0.01)
    off = re.search(r": ([+-][\d.]+) %$", remedy.text)
    if off and again.batch.deviation is not None:
        assert again.batch.deviation * 100 == pytest.approx(float(off[1]), abs=0.006)
