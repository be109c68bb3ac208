"""What a step sends from one machine to the other, counted on the cable, is what the plan says; ZeRO over two machines."""

from pathlib import Path

import pytest
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.flops import network_bytes
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.run.folder import RunFolder, read_json

from tests.core.nodes.conftest import PORT, TwoNodes
from tests.fakes.namespaces import TwoMachines

pytestmark = [pytest.mark.real, pytest.mark.all, pytest.mark.timeout(1800), pytest.mark.xdist_group("two_nodes")]

ACCUMULATION, FEW, MANY = 3, 3, 9
# ZeRO-3 keeps what has fewer than 100,000 numbers in every process, and gathers the rest.
LARGE = {"num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024}
BUILD_S = 840.0
"""DeepSpeed may compile first."""


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3"])
def test_a_step_sends_what_the_plan_says(machines: TwoMachines, tmp_path: Path, strategy: str) -> None:
    """The difference of two runs: without the start, the end, and what is said at both."""
    sent: dict[int, tuple[int, int]] = {}
    for steps in (FEW, MANY):
        two = TwoNodes(machines, tmp_path / f"run-{steps}", port=PORT + steps)
        before = machines.sent_bytes(0), machines.sent_bytes(1)
        two.prepare(
            engine__strategy=strategy, training__max_steps=steps, checkpoint__every_steps=100,
            evaluation__every_steps=100, batch__micro_batch_size=1,
            batch__gradient_accumulation_steps=ACCUMULATION, model__architecture_overrides=LARGE,
        )  # fmt: skip
        try:
            two.join(0)
            two.join(1)
            assert (two.end_of(0, BUILD_S), two.end_of(1)) == (0, 0), two.text(0) + two.text(1) + two.log()
        finally:
            two.close()
        sent[steps] = machines.sent_bytes(0) - before[0], machines.sent_bytes(1) - before[1]
    engine = read_json(two.run.engine_json) or {}
    assert (engine["actual"], engine["world_size"]) == (strategy, 2)
    work = workload(two.run, strategy)
    assert work.architecture.parameters == engine["parameters"]
    for node in (0, 1):
        a_step = (sent[MANY][node] - sent[FEW][node]) / (MANY - FEW)
        assert a_step == pytest.approx(network_bytes(work), rel=0.03)


def workload(run: RunFolder, strategy: str) -> Workload:
    document = load_yaml(run.run_yaml.read_text(encoding="utf-8"))
    model = document["model"]
    architecture, _ = read_architecture({**model["architecture"], **model["architecture_overrides"]})
    assert architecture is not None
    sizes = {"micro_batch": 1, "length": 48, "target_length": 48, "accumulation": ACCUMULATION, "world_size": 2}
    return Workload(architecture, **sizes, strategy=strategy)
