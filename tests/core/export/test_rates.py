"""The drawn learning rate is the one that transformers gives, at every step."""

from __future__ import annotations

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.export.training_arguments import rate_schedule, scheduler_arguments

from tests.each import each

STEPS = (1, 7, 120)
WARMUPS = (0, 0.02, 0.3333, 1, 10, 2000)


def rates_of_transformers(config: RunConfig, steps: int) -> list[float]:
    """The rates that a Trainer's optimizer has before each step, and after the last one."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.training.learning_rate)
    arguments = transformers.TrainingArguments(output_dir="unused", **scheduler_arguments(config))
    scheduler = transformers.get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=arguments.get_warmup_steps(steps),
        num_training_steps=steps,
        scheduler_specific_kwargs=dict(arguments.lr_scheduler_kwargs or {}),
    )
    rates = []
    for _ in range(steps + 1):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@each("schedule", ["linear", "cosine", "constant", "polynomial"])
@each("final", [0.0, 4e-5, 4e-4])
@each("warmup", WARMUPS)
def test_every_step_has_the_rate_of_transformers(schedule, final, warmup):
    config = RunConfig().with_values(
        {
            "training.learning_rate": 4e-4,
            "training.schedule": schedule,
            "training.final_learning_rate": final,
            "training.warmup": warmup,
        },
        "you",
    )
    for steps in STEPS:
        config = config.with_values({"training.max_steps": steps}, "you")
        ours = rate_schedule(config, steps)
        theirs = rates_of_transformers(config, steps)
        assert [ours.at(step) for step in range(steps + 1)] == pytest.approx(theirs, rel=1e-9, abs=1e-15)
        assert ours.highest == pytest.approx(max(theirs[:-1]), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("warmup", [1, 10, 0.999])
def test_a_run_that_is_all_warmup_has_a_rate_after_its_last_step(warmup):
    """transformers' polynomial decay divides by the steps after the warm-up."""
    values = {"training.learning_rate": 1e-3, "training.final_learning_rate": 1e-4, "training.warmup": warmup}
    steps = max(1, int(warmup))
    config = RunConfig().with_values({**values, "training.max_steps": steps}, "you")
    assert len(rates_of_transformers(config, steps)) == steps + 1


def test_the_highest_rate_of_a_run_that_ends_in_its_warmup_is_below_the_peak():
    config = RunConfig().with_values({"training.learning_rate": 1e-3, "training.warmup": 100}, "you")
    assert rate_schedule(config, 50).highest == pytest.approx(4.9e-4)
    assert rate_schedule(config, 1).highest == 0.0
    assert rate_schedule(config, 200).highest == pytest.approx(1e-3)
    assert rate_schedule(config, 200).ends_at == 0.0
