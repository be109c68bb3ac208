"""The reason of a profile's value stands beside it only as long as its cause is the profile's."""

from __future__ import annotations

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import is_settable
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.profile import list_profiles, load_profile
from trainwiz.core.profile.profile import CARD, CAUSES

from tests.each import each

GIB = 2**30


def origins(name: str, overrides: dict[str, object], gpu: str | None = None) -> dict[str, tuple[str, str]]:
    profile = load_profile(name)
    here = catalogue_machine(gpu=gpu or profile.hardware.gpu, num_gpus=1, ram_bytes=64 * GIB, cpu_cores=12)
    config = build_config(profile, overrides)
    plan = make_plan(here, config, model=load_models()[config.model.name], data=None, profile=profile)
    return {choice.key: (choice.origin, choice.reason) for choice in plan.choices}


def test_the_profile_as_it_is_keeps_every_reason_that_it_gives():
    profile = load_profile("2080super")
    found = origins("2080super", {})
    kept = {key: why for key, why in profile.reasons.items() if found[key] == ("profile", why)}
    assert kept == dict(profile.reasons)


def test_another_model_takes_the_reasons_that_spoke_of_the_old_one():
    found = origins("2080super", {"model.name": "esm2-8m"})
    for key in ("engine.checkpointing", "engine.offload"):
        assert found[key] == ("profile", "from the profile, which trains esm2-650m"), key
    # The card is the same.
    assert found["engine.precision"] == ("profile", load_profile("2080super").reasons["engine.precision"])


def test_another_card_takes_the_reasons_that_spoke_of_the_old_one():
    found = origins("2080super", {}, gpu="RTX 3090")
    assert found["engine.precision"] == ("profile", "from the profile, which is made for RTX 2080 Super")
    assert "sm 7.5" not in " ".join(reason for _, reason in found.values())


def test_a_value_of_the_users_own_has_no_reason_of_the_profiles():
    found = origins("2080super", {"engine.checkpointing": False, "batch.sequence_length": 256})
    assert found["engine.checkpointing"] == ("you", "")
    assert found["engine.offload"] == ("profile", "from the profile, where batch.sequence_length is 512")


def test_a_limit_of_rows_is_no_other_data():
    profile = load_profile("cpu-demo")
    found = origins("cpu-demo", {"data.sources.0.max_rows": 100}, gpu="RTX 3090")
    assert found["batch.sequence_length"] == ("profile", profile.reasons["batch.sequence_length"])


def test_a_profile_of_the_users_own_does_not_inherit_reasons_of_another_model(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nextends: 2080super\nvalues:\n  model:\n    name: esm2-8m\n")
    mine = load_profile(str(file))
    assert "engine.offload" not in mine.reasons and "engine.precision" in mine.reasons
    assert mine.values["engine.offload"] == "optimizer"


@each("key", sorted({*CAUSES, *(cause for causes in CAUSES.values() for cause in causes)} - {CARD}))
def test_the_table_names_keys_of_a_config(key):
    assert is_settable(key)


def test_every_key_that_a_profile_gives_a_reason_for_is_in_the_table_or_speaks_of_itself():
    alone = {
        "data.persistent_workers",
        "data.pin_memory",
        "data.prefetch",
        "data.sources",
        "engine.process_timeout_s",
        "evaluation.beams",
        "logging.every_steps",
        "model.name",
        "peft.targets",
        "training.empty_cache_steps",
        "training.schedule",
    }
    given = {key for profile in list_profiles() if profile.origin == "builtin" for key in profile.reasons}
    assert given - set(CAUSES) == alone
