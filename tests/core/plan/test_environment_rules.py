"""Environment variables: chosen by the rules of profiles/environment.yaml, and what somebody set against them."""

from dataclasses import replace
from typing import Any

from trainwiz.core.config.values import check_variable_name, check_variable_value
from trainwiz.core.export.launch_script import launch_script
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.environment import conditions_of, load_variable_rules
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import codes, config, finding, machine, plan, real
from tests.each import each

RULES = load_variable_rules()
ALONE = plan(machine(), config())
MIB = 2**20


def environment(made: Plan) -> dict[str, str]:
    return made.config.engine.environment


def cards(name: str, count: int, **values: Any) -> Machine:
    """A machine as if it were here."""
    return replace(real(machine(name, count)), **values)


def with_links(here: Machine, link: str) -> Machine:
    return replace(here, gpus=tuple(replace(gpu, links=(link,)) for gpu in here.gpus))


@each("rule", [*RULES.choices, *RULES.conflicts, *RULES.formats])
def test_every_rule_can_be_judged_explained_and_set(rule: Any) -> None:
    assert set(rule.when) <= conditions_of(ALONE).keys() and all(
        isinstance(wanted, bool) for wanted in rule.when.values()
    )
    assert rule.text and not rule.text.endswith(".") and rule.sources
    assert check_variable_name(rule.variable) == rule.variable
    for value in (getattr(rule, "value", None), getattr(rule, "instead", None), *getattr(rule, "values", ())):
        assert value is None or check_variable_value(value) == value


def test_a_choice_is_in_the_plan_and_in_the_launch_script_with_its_reason() -> None:
    made = plan(machine("RTX 4090", 2), config())
    choice = next(one for one in made.choices if one.key == "engine.environment.NCCL_P2P_DISABLE")
    assert choice.value == "1" and choice.origin == "solved" and "RTX 4090" in choice.reason
    script = launch_script(made.config)
    assert "export NCCL_P2P_DISABLE=1" in script and "RTX 4090 cards without NVLink" in script
    listed = {one["name"]: one for one in made.to_json()["environment"]}
    assert listed["NCCL_P2P_DISABLE"]["value"] == "1" and listed["TOKENIZERS_PARALLELISM"]["reason"]
    assert all(f"{name}=" in script for name in listed)


@each(
    ("gpu", "disabled"),
    [
        ("RTX 4090", True),
        ("RTX 5090", True),
        ("RTX 4060 Ti 16GB", True),
        ("RTX 3090", False),
        ("L4", False),
        ("T4", False),
        ("A10", False),
        ("H200 SXM", False),
    ],
)
def test_peer_access_is_switched_off_only_where_the_driver_has_none(gpu: str, disabled: bool) -> None:
    assert ("NCCL_P2P_DISABLE" in environment(plan(machine(gpu, 2), config()))) is disabled


def test_cards_before_turing_keep_their_peer_access() -> None:
    here = with_links(cards("RTX 4090", 2), "GPU1: one PCIe switch")
    old = replace(
        here, gpus=tuple(replace(gpu, name="NVIDIA GeForce GTX 1080 Ti", compute_capability="6.1") for gpu in here.gpus)
    )
    assert "NCCL_P2P_DISABLE" in environment(plan(here, config()))
    assert "NCCL_P2P_DISABLE" not in environment(plan(old, config()))


def test_under_wsl_memory_is_not_shared_between_processes() -> None:
    assert environment(plan(cards("RTX A6000", 2, wsl=True), config())) == {"NCCL_P2P_DISABLE": "1"}
    assert environment(plan(cards("RTX A6000", 1, wsl=True), config())) == {}


def test_the_shared_memory_of_a_container() -> None:
    small = plan(cards("RTX 4090", 2, shared_memory_bytes=64 * MIB), config())
    assert environment(small)["NCCL_SHM_DISABLE"] == "1"
    found = finding(small, "shared_memory")
    assert "64 MiB" in found.message and "--shm-size=1g" in found.remedies[0].text
    large = plan(cards("RTX 4090", 2, shared_memory_bytes=1024 * MIB), config())
    assert "NCCL_SHM_DISABLE" not in environment(large) and "shared_memory" not in codes(large)
    unknown = plan(cards("RTX 4090", 2), config())
    assert "NCCL_SHM_DISABLE" not in environment(unknown)
    alone = plan(cards("RTX 4090", 1, shared_memory_bytes=64 * MIB), config())
    assert "NCCL_SHM_DISABLE" not in environment(alone) and "shared_memory" not in codes(alone)
    linked = plan(with_links(cards("H100 SXM", 2, shared_memory_bytes=64 * MIB), "GPU1: NVLink x18"), config())
    assert "NCCL_SHM_DISABLE" not in environment(linked)


def test_batches_that_do_not_fit_into_shared_memory_are_said() -> None:
    request = config(
        data__workers=8,
        data__prefetch=8,
        batch__micro_batch_size=256,
        batch__sequence_length=1024,
        data__streaming=True,
    )
    found = finding(plan(cards("RTX 4090", 1, shared_memory_bytes=64 * MIB), request), "shared_memory")
    assert found.remedies[1].changes == {"data.workers": 0}


def test_several_nodes_get_the_interface_of_the_default_route() -> None:
    here = cards("A100 40GB SXM", 2, network_interfaces=("eno1", "tailscale0"))
    made = environment(plan(here, config(engine__nodes=2)))
    assert made == {"NCCL_SOCKET_IFNAME": "eno1", "GLOO_SOCKET_IFNAME": "eno1"}
    assert environment(plan(here, config())) == {}
    assert environment(plan(machine("A100 40GB SXM", 2), config(engine__nodes=2))) == {}


CONFLICTS: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("RTX 4090", "NCCL_P2P_DISABLE", {"NCCL_P2P_DISABLE": "0"}, "environment_contradicted", "warning"),
    ("RTX 4090", "NCCL_IB_DISABLE", {"NCCL_IB_DISABLE": "0"}, "environment_contradicted", "note"),
    ("RTX A6000", "NCCL_SHM_DISABLE", {"NCCL_SHM_DISABLE": "1"}, "environment_conflict", "warning"),
    (
        "A10",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
        "environment_conflict",
        "warning",
    ),
    ("A10", "NCCL_BLOCKING_WAIT", {"NCCL_BLOCKING_WAIT": "1"}, "environment_conflict", "note"),
    ("A10", "TOKENIZERS_PARALLELISM", {"TOKENIZERS_PARALLELISM": "True"}, "environment_conflict", "warning"),
    ("A10", "CUDA_LAUNCH_BLOCKING", {"CUDA_LAUNCH_BLOCKING": "1"}, "environment_conflict", "warning"),
]


@each(("gpu", "name", "own", "code", "severity"), CONFLICTS)
def test_what_contradicts_the_machine_is_said_and_the_remedy_ends_it(
    gpu: str, name: str, own: dict[str, str], code: str, severity: str
) -> None:
    here = cards(gpu, 2, shared_memory_bytes=1024 * MIB)
    request = config(engine__environment={**own, "NCCL_DEBUG": "WARN"}, data__workers=2)
    made = plan(here, request)
    assert environment(made)[name] == own[name]
    found = finding(made, code)
    assert found.severity == severity and found.where == f"engine.environment.{name}" and name in found.message
    cured = plan(here, request.with_values(dict(found.remedies[0].changes), "you"))
    assert code not in codes(cured) and environment(cured)["NCCL_DEBUG"] == "WARN"


def test_nvlink_that_is_switched_off_is_said() -> None:
    here = with_links(cards("RTX 3090", 2), "GPU1: NVLink x4")
    made = plan(here, config(engine__environment={"NCCL_P2P_DISABLE": "1"}))
    assert "NVLink" in finding(made, "environment_conflict").message


def test_what_fits_is_not_talked_about() -> None:
    fine = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": "false"}
    made = plan(cards("RTX 4090", 2, shared_memory_bytes=1024 * MIB), config(engine__environment=fine))
    assert not {code for code in codes(made) if "environment" in code or code == "shared_memory"}
    assert environment(made) == fine


def test_what_the_plan_chose_is_not_held_against_it_when_planned_again() -> None:
    here = cards("RTX 4090", 2, shared_memory_bytes=64 * MIB)
    once = plan(here, config())
    assert not {code for code in codes(plan(here, once.config)) if code.startswith("environment")}


def test_nccl_for_one_process_does_nothing() -> None:
    assert (
        "NCCL_ALGO"
        in finding(plan(machine(), config(engine__environment={"NCCL_ALGO": "Ring"})), "environment_unused").message
    )


def test_two_names_of_the_allocator() -> None:
    own = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}
    found = finding(plan(machine(), config(engine__environment=own)), "environment_conflict")
    assert found.remedies[0].changes["engine.environment"] == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@each(
    ("value", "missing"),
    [("eth7", True), ("=eno", True), ("eno", False), ("=eno1", False), ("^docker", False), ("ib0,eno1", False)],
)
def test_an_interface_that_is_not_here(value: str, missing: bool) -> None:
    here = cards("A10", 2, network_interfaces=("eno1", "enp2s0"))
    made = plan(here, config(engine__environment={"NCCL_SOCKET_IFNAME": value}))
    assert ("unknown_interface" in codes(made)) is missing
    if missing:
        found = finding(made, "unknown_interface")
        assert found.severity == "error" and "eno1, enp2s0" in found.message


def test_a_value_with_control_characters_cannot_be_set_and_a_long_one_is_cut() -> None:
    made = plan(
        cards("A10", 2, network_interfaces=("eno1",)), config(engine__environment={"NCCL_SOCKET_IFNAME": "x" * 900})
    )
    assert len(finding(made, "unknown_interface").message) < 250


@each(
    ("name", "value", "severity"),
    [
        ("NCCL_P2P_DISABLE", "perhaps", "warning"),
        ("NCCL_P2P_DISABLE", "true", "warning"),
        ("NCCL_P2P_DISABLE", "0x1", None),
        ("NCCL_P2P_LEVEL", "PCIE", "warning"),
        ("NCCL_P2P_LEVEL", "nvl", None),
        ("NCCL_DEBUG", "loud", "warning"),
        ("TORCH_NCCL_BLOCKING_WAIT", "sometimes", "error"),
        ("TORCH_NCCL_BLOCKING_WAIT", "", "error"),
        ("TORCH_NCCL_BLOCKING_WAIT", "Yes", None),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "on", "error"),
    ],
)
def test_a_value_that_its_library_does_not_understand(name: str, value: str, severity: str | None) -> None:
    made = plan(cards("A10", 2), config(engine__environment={name: value}))
    if severity is None:
        assert not {code for code in codes(made) if code.startswith("environment")}
        return
    found = finding(made, "environment_conflict")
    assert found.severity == severity and name in found.message
    assert found.remedies[0].changes == {"engine.environment": {}}


def test_words_for_numbers_are_said_once_where_the_machine_wants_one() -> None:
    made = plan(cards("RTX 4090", 2), config(engine__environment={"NCCL_P2P_DISABLE": "yes"}))
    assert "whole number" in finding(made, "environment_conflict").message
    assert "environment_contradicted" not in codes(made)


def test_a_variable_without_a_value_is_told() -> None:
    made = plan(cards("A10", 2, network_interfaces=("eno1",)), config(engine__environment={"NCCL_SOCKET_IFNAME": " "}))
    found = finding(made, "environment_empty")
    assert found.severity == "warning" and "NCCL_SOCKET_IFNAME" in found.message
    assert "unknown_interface" not in codes(made)


def test_a_machine_with_little_ram_never_loads_all_kernels_at_once() -> None:
    small, large = machine("RTX 3090", 1, ram_gib=12), machine("RTX 3090", 1, ram_gib=64)
    assert environment(plan(small, config())) == {"CUDA_MODULE_LOADING": "LAZY"}
    assert environment(plan(large, config())) == {} == environment(plan(machine(None, ram_gib=12), config()))
    eager = config(engine__environment={"CUDA_MODULE_LOADING": "EAGER"})
    assert finding(plan(small, eager), "environment_contradicted").severity == "warning"
    assert finding(plan(large, eager), "environment_conflict").severity == "note"


def test_processes_wait_longer_than_a_step_may_take() -> None:
    assert plan(machine(), config()).config.engine.process_timeout_s is None
    assert plan(machine("RTX 3090", 2), config()).config.engine.process_timeout_s == 1800
    request = config("esm2-650m", batch__target_tokens=20_000_000, batch__sequence_length=512)
    slow = plan(machine("RTX 2080 Super", 2), request)
    assert (slow.config.engine.process_timeout_s or 0) >= 3 * (slow.time.step_high_s or 0) - 600 > 1800
    given = plan(machine("RTX 3090", 2), config(engine__process_timeout_s=77))
    assert given.config.engine.process_timeout_s == 77


def test_a_plan_with_an_environment_survives_being_planned_again() -> None:
    made = plan(machine("RTX 3080 20GB", 3), config(batch__target_samples=96))
    assert plan(machine("RTX 3080 20GB", 3), made.config).config == made.config
