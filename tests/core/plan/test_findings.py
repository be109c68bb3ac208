"""Each finding where it is due, not where it is not, with remedies that work when they are applied."""

from dataclasses import replace

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.resolve import assumed_rows
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import duration_range, gib
from trainwiz.core.profile.store import load_profile

from tests.core.plan.machines import GIB, codes, config, finding, machine, plan, real
from tests.each import each

ESM650 = {"batch__target_samples": 3900, "batch__micro_batch_size": 20, "engine__checkpointing": False}


def apply(request: RunConfig, remedy: Remedy) -> RunConfig:
    return request.with_values(dict(remedy.changes), "you")


def test_the_rate_of_a_card_given_by_hand_is_of_no_catalogue() -> None:
    by_hand = catalogue_machine(
        gpu=None, num_gpus=1, ram_bytes=None, gpu_memory_bytes=20 * GIB, tflops=60, capability="8.6"
    )
    made = plan(by_hand, config("esm2-35m", engine__precision="fp32", batch__target_samples=64))
    assert "catalogue" not in finding(made, "uncertain_rate").message
    assert "given by hand" in finding(made, "uncertain_rate").message


def test_does_not_fit_has_remedies_that_fit_at_the_same_batch() -> None:
    request = config("esm2-650m", **ESM650)
    made = plan(machine("RTX 3080 10GB"), request)
    found = finding(made, "does_not_fit")
    assert found.severity == "error"
    assert 1 <= len(found.remedies) <= 4
    for remedy in found.remedies:
        fixed = plan(machine("RTX 3080 10GB"), apply(request, remedy))
        assert fixed.memory.verdict in ("fits", "tight"), remedy.text
        assert abs(fixed.batch.effective_samples - 3900) <= 0.01 * 3900, remedy.text
        assert f"{fixed.memory.device_used_bytes / GIB:.1f} GiB" in remedy.text


def test_remedies_are_cheapest_first() -> None:
    request = config("esm2-650m", **ESM650)
    remedies = finding(plan(machine("RTX 3080 12GB"), request), "does_not_fit").remedies
    costs = []
    for one in remedies:
        engine = {
            key.partition(".")[2] not in ("checkpointing", "precision")
            for key in one.changes
            if key.startswith("engine.")
        }
        learnt = ("bf16-true", "adafactor")
        otherwise = "batch.sequence_length" in one.changes or any(value in learnt for value in one.changes.values())
        step = plan(machine("RTX 3080 12GB"), apply(request, one)).time.step_s
        costs.append((otherwise, step * 1.25 ** len(engine)))
    assert len(costs) > 1 and costs == sorted(costs)


def test_nothing_fits_says_so() -> None:
    small = catalogue_machine(gpu="RTX 2080 Super", num_gpus=1, ram_bytes=64 * GIB, gpu_memory_bytes=GIB)
    made = plan(small, config("esm2-650m"))
    found = finding(made, "does_not_fit")
    assert "No engine setting makes it fit." in found.message
    assert [one.changes["model.name"] for one in found.remedies] == ["esm2-35m", "esm2-8m"]
    tiny = catalogue_machine(gpu="RTX 2080 Super", num_gpus=1, ram_bytes=64 * GIB, gpu_memory_bytes=GIB // 3)
    assert not finding(plan(tiny, config("esm2-650m")), "does_not_fit").remedies


def test_tight_is_a_warning() -> None:
    base = config("esm2-150m", batch__micro_batch_size=16, engine__checkpointing=False)
    need = plan(machine("H100 SXM"), base).memory
    here = real(machine("RTX 3090"))
    between = (need.needed_bytes + need.needed_high_bytes) // 2
    made = plan(replace(here, gpus=(replace(here.gpus[0], memory_free_bytes=between),)), base)
    assert made.memory.verdict == "tight"
    assert finding(made, "tight").severity == "warning"


def test_longer_than_the_model_has_positions() -> None:
    from trainwiz.core.catalog.models import load_models
    from trainwiz.core.plan.make import make_plan

    spec = load_models()["esm2-8m"]
    absolute = replace(spec, architecture={**spec.architecture, "position_embedding_type": "absolute"})
    request = config("esm2-8m", batch__sequence_length=2048)
    assert finding(make_plan(machine(), request, model=absolute, data=None), "too_long").severity == "error"
    assert "too_long" not in codes(make_plan(machine(), request, model=spec, data=None))


def test_years_come_with_what_would_end() -> None:
    request = config("esm2-650m", batch__target_tokens=2_000_000, training__max_steps=500_000)
    found = finding(plan(machine(), request), "takes_years")
    assert found.severity == "warning"
    fewer, sibling = found.remedies
    shorter = plan(machine(), apply(request, fewer))
    assert not {"takes_years", "takes_months"} & codes(shorter)
    assert (shorter.config.training.warmup or 0) < (shorter.config.training.max_steps or 0)
    assert sibling.changes["model.name"].startswith("esm2-")
    assert (plan(machine(), apply(request, sibling)).time.total_s or 0) < 1e9


def test_findings_of_the_reader_are_passed_through_and_errors_come_first() -> None:
    from trainwiz.core.errors import Finding

    missing = Finding("missing_data", "error", "data.sources.0", "There is no such file.")
    made: Plan = plan(machine(cores=4), config("esm2-8m", data__workers=12), findings=(missing,))
    assert made.findings[0] == missing
    assert made.errors == (missing,)


def test_a_remedys_command_gives_the_remedied_plan() -> None:
    """What stands after --set is read back as the same value."""
    import shlex

    from trainwiz.core.config.build import build_config

    request = config("esm2-650m", **ESM650)
    remedy = finding(plan(machine("RTX 3080 10GB"), request), "does_not_fit").remedies[-1]
    words = shlex.split(remedy.command or "")
    assert words[:2] == ["trainwiz", "plan"]
    settings = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--set")
    rebuilt = build_config(None, settings)
    for key, value in remedy.changes.items():
        assert rebuilt.value(key) == value


def test_a_target_far_below_one_sequence_is_said_in_words() -> None:
    request = config("esm2-8m", batch__target_tokens=1, batch__micro_batch_size=16)
    found = finding(plan(machine(), request), "batch_deviation")
    assert "%" not in found.message
    assert any(one.changes["batch.micro_batch_size"] == 1 for one in found.remedies)


def test_a_profile_for_any_machine_takes_the_cpu_where_torch_misses_the_gpu() -> None:
    here = replace(real(machine()), torch_cuda=None, unavailable={"torch_cuda": "torch 2.13.0+cpu is a CPU build"})
    profile = load_profile("cpu-demo")
    spec = load_models()["esm2-tiny"]
    made = make_plan(here, build_config(profile, {}), model=spec, data=None, profile=profile)
    found = finding(made, "torch_without_cuda")
    assert found.severity == "warning" and "stays idle" in found.message
    assert made.config.engine.device == "cpu"
    assert made.memory.device == "host RAM"


def test_a_remedy_for_training_holds_in_evaluation_too() -> None:
    """NLLB's 256,206 words: six sequences are evaluated with more logits than three are trained with."""
    profile = load_profile("4080s")
    request = build_config(profile, {})
    small = catalogue_machine(
        gpu="RTX 4080 Super", num_gpus=1, ram_bytes=64 * GIB, cpu_cores=8, gpu_memory_bytes=6 * GIB
    )
    made = plan(small, request, assumed_rows(request), profile=profile)
    remedies = finding(made, "does_not_fit").remedies
    assert remedies
    for remedy in remedies:
        cured = plan(small, apply(request, remedy), assumed_rows(request), profile=profile)
        assert not codes(cured) & {"does_not_fit", "evaluation_does_not_fit"}, remedy.text


def test_a_remedy_does_not_move_to_the_host_what_it_has_no_room_for() -> None:
    profile = load_profile("3x3080-20g")
    request = build_config(profile, {})
    small = catalogue_machine(gpu="RTX 3080 20GB", num_gpus=3, ram_bytes=12 * GIB, gpu_memory_bytes=6 * GIB)
    remedies = finding(plan(small, request, profile=profile), "does_not_fit").remedies
    assert remedies
    for remedy in remedies:
        assert "host_ram" not in codes(plan(small, apply(request, remedy), profile=profile)), remedy.text


def test_a_loss_in_slices_is_no_remedy_where_the_micro_batch_alone_does_as_much() -> None:
    profile = load_profile("4080s-guide")
    request = build_config(profile, {})
    made = plan(machine("RTX 4080 Super"), request, profile=profile)
    micro = {
        one.changes.get("training.loss_chunk"): one.changes.get("batch.micro_batch_size")
        for one in finding(made, "does_not_fit").remedies
        if not any(key.startswith(("engine.", "peft.")) for key in one.changes)
    }
    assert None in micro
    assert all(size > micro[None] for chunk, size in micro.items() if chunk is not None)


def _offered(made: Plan) -> list[tuple[Finding, Remedy]]:
    return [(found, remedy) for found in made.findings for remedy in found.remedies if remedy.changes]


@each("name", ["2080super", "2080super-guide", "3080-12g-guide", "a6000-guide", "3x3080-20g-guide"])
def test_a_remedy_brings_what_it_says_and_is_gone_when_it_is_applied(name: str) -> None:
    """Time of a whole run with evaluation and saving, memory with all that the other batch changes."""
    request = PlanRequest(profile=name)
    made = plan_run(request)
    seen = set()
    for found, remedy in _offered(made):
        then = plan_run(replace(request, overrides={**request.overrides, **remedy.changes}))
        assert all(dict(other.changes) != dict(remedy.changes) for _, other in _offered(then)), remedy
        if found.code == "takes_years":
            seen.add(found.code)
            assert duration_range(then.time.total_low_s, then.time.total_high_s) in remedy.text
        if found.code in ("claim_batch", "claim_memory"):
            seen.add(found.code)
            assert gib(then.memory.device_used_bytes) in remedy.text
    assert seen
