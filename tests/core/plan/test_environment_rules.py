"""Environment variables: chosen by the rules of profiles/environment.yaml, and what somebody set against them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwiz.core.export.launch_script import launch_script
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.environment import load_variable_rules
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import codes, config, finding, machine, plan, real
from tests.each import each

MIB = 2**20


def environment(made: Plan) -> dict[str, str]:
    return made.config.engine.environment


def cards(name: str, count: int, **values: Any) -> Machine:
    """A machine as if it were here."""
    return replace(real(machine(name, count)), **values)


def with_links(here: Machine, link: str) -> Machine:
    return replace(here, gpus=tuple(replace(gpu, links=(link,)) for gpu in here.gpus))


def test_a_choice_is_in_the_plan_and_in_the_launch_script_with_its_reason() -> None:
    made = plan(machine("RTX 4090", 2), config())
    script, listed = launch_script(made.config), {one["name"]: one for one in made.to_json()["environment"]}
    assert "export NCCL_P2P_DISABLE=1" in script and "RTX 4090 GPUs without NVLink" in script
    assert listed["NCCL_P2P_DISABLE"]["value"] == "1" and listed["TOKENIZERS_PARALLELISM"]["reason"]
    assert all(f"{name}=" in script for name in listed)


GTX = with_links(cards("GTX 1080 Ti", 2), "GPU1: one PCIe switch")
A100 = cards("A100 40GB SXM", 2, network_interfaces=("eno1", "tailscale0"))
NODES = {"engine__nodes": 2}
P2P_OFF = {"NCCL_P2P_DISABLE": "1"}


@each(("here", "values", "expected"), [
    # Peer access is switched off only where the driver has none: in consumer cards since Turing.
    *((machine(gpu, 2), {}, {**P2P_OFF, "NCCL_IB_DISABLE": "1"}) for gpu in ("RTX 5090", "RTX 4060 Ti 16GB")),
    *((machine(gpu, 2), {}, {}) for gpu in ("A10", "H200 SXM")),
    (GTX, {}, {"NCCL_IB_DISABLE": "1"}),
    # Under WSL memory is not shared between processes.
    (cards("RTX A6000", 2, wsl=True), {}, P2P_OFF),
    (cards("RTX A6000", 1, wsl=True), {}, {}),
    # Several nodes get the interface of the default route.
    (A100, NODES, {"NCCL_SOCKET_IFNAME": "eno1", "GLOO_SOCKET_IFNAME": "eno1"}),
    (A100, {}, {}),
    (machine("A100 40GB SXM", 2), NODES, {}),
    # A machine with little RAM never loads all kernels at once.
    (machine(ram_gib=12), {}, {"CUDA_MODULE_LOADING": "LAZY"}),
    (machine(None, ram_gib=12), {}, {}),
])  # fmt: skip
def test_what_is_chosen(here: Machine, values: dict[str, Any], expected: dict[str, str]) -> None:
    assert environment(plan(here, config(**values))) == expected


def test_the_shared_memory_of_a_container() -> None:
    def of(gpu: str, count: int, size: int | None, **values: Any) -> Plan:
        here = cards(gpu, count, shared_memory_bytes=size)
        return plan(with_links(here, "GPU1: NVLink x18") if gpu == "H100 SXM" else here, config(**values))

    small = of("RTX 4090", 2, 64 * MIB)
    assert environment(small)["NCCL_SHM_DISABLE"] == "1"
    found = finding(small, "shared_memory")
    assert "64 MiB" in found.message and "--shm-size=1g" in found.remedies[0].text
    fine = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": "false"}
    made = of("RTX 4090", 2, 1024 * MIB, engine__environment=fine)
    assert environment(made) == fine and not {code for code in codes(made) if "environment" in code}
    for other in (made, of("RTX 4090", 2, None), of("RTX 4090", 1, 64 * MIB), of("H100 SXM", 2, 64 * MIB)):
        assert "shared_memory" not in codes(other) and "NCCL_SHM_DISABLE" not in environment(other)
    sizes = {"batch__micro_batch_size": 256, "batch__sequence_length": 1024, "data__streaming": True}
    batches = of("RTX 4090", 1, 64 * MIB, data__workers=8, data__prefetch=8, **sizes)
    assert finding(batches, "shared_memory").remedies[1].changes == {"data.workers": 0}


PAGE = Path(__file__).parents[3] / "docs" / "environment.md"


def test_a_variable_has_one_rule_for_one_machine_at_most_twice_and_the_page_names_it() -> None:
    rules = load_variable_rules()
    keys = [(one.variable, tuple(sorted(one.when.items()))) for one in rules]
    assert len(keys) == len(set(keys)) >= 6
    # The documentation is not beside the tests of an installed package.
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else None
    for variable in {one.variable for one in rules}:
        assert page is None or f"`{variable}" in page, variable
