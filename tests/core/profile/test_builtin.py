"""The profiles that ship with trainwiz: valid, complete against their rows, plain ones fit their card, guides do not.

Those that scripts/solve_profiles.py makes are in test_solved.py.
"""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.gather import NOT_ABOUT_FIT
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile import Profile, diff_profiles, list_profiles, load_profile, validate_profiles

from tests.each import each

ESM = ["2080super", "3080-10g", "3080-12g"]
LORA = [
    *(f"lora-r64-{card}" for card in ("3090", "v100", "a100-40g", "a100-80g", "4xa100", "h100", "mps")),
    "lora-r320-a100-80g",
]
PLAIN = [*ESM, "2x2080super", "4080s", "v100-opus", "a100-opus", "3x3080-20g", "a6000", *LORA]
ENCODERS = ["bert-classes-8g", "modernbert-mlm-8g"]
GUIDES = [f"{name}-guide" for name in PLAIN]


def is_solved(profile: Profile) -> bool:
    """Whether the file says that a command made it."""
    return Path(profile.file).read_text(encoding="utf-8").startswith("# Made by scripts/solve_profiles.py")


def plan_on_own_card(name: str) -> Plan:
    profile = load_profile(name)
    hardware = profile.hardware
    machine = catalogue_machine(
        gpu=hardware.gpu, num_gpus=hardware.num_gpus, ram_bytes=hardware.ram_bytes, cpu_cores=hardware.cpu_cores
    )
    config = build_config(profile, {})
    model, findings = resolve_model(config.model)
    return make_plan(machine, config, model=model, data=None, profile=profile, findings=findings)


def test_all_are_valid_and_there() -> None:
    assert validate_profiles() == []
    profiles = list_profiles()
    assert {one.name for one in profiles if not is_solved(one)} == {"cpu-demo", "3080", *ENCODERS, *PLAIN, *GUIDES}
    assert profiles[0].name == "cpu-demo" and profiles[0].hardware.gpu is None
    assert all(set(one.reasons) <= set(one.values) for one in map(load_profile, (one.name for one in profiles)))
    machines = {name: load_profile(name).hardware for name in PLAIN}
    assert (machines["3x3080-20g"].num_gpus, machines["3x3080-20g"].ram_bytes) == (3, 12 * 2**30)
    assert {name for name in PLAIN if machines[name].num_gpus > 1} == {"2x2080super", "3x3080-20g", "lora-r64-4xa100"}
    assert all(machines[name] == load_profile(f"{name}-guide").hardware for name in PLAIN)


@each("name", PLAIN)
def test_every_change_against_the_guide_has_its_reason(name: str) -> None:
    assert {finding.code for finding in plan_on_own_card(name).errors} <= NOT_ABOUT_FIT
    changes = diff_profiles(load_profile(f"{name}-guide"), load_profile(name))
    reasons = load_profile(name).reasons
    assert changes and [change.key for change in changes if not reasons.get(change.key)] == []
