"""The lines of `trainwiz plan` about a plan whose figures are known, and the phrases that they are made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import starmap

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.result import TimePlan
from trainwiz.tui.commands.plan import machine_text, number_rows
from trainwiz.tui.output import labelled
from trainwiz.tui.plan_words import finish_words, memory_lines, padding_words, source_words
from trainwiz.tui.widgets.plan_panel import amount_words

from tests.each import each
from tests.tui.wizard_parts import GIB, NOW, make_frozen_plan

PLAN = make_frozen_plan(PlanRequest(profile="2080super"))


def text_of(plan=PLAN) -> str:
    return "\n".join(starmap(labelled, number_rows(plan, NOW)))


def test_the_lines_say():
    text = text_of()
    for words in (
        "1,130,000 non-padding (57%)",
        "1,450,000 processed, 22% padding; 4% padding if the rows of a step were grouped by length",
        "needs 5.4 of 7.8 GiB on GPU 0 · RTX 2080 Super",
        "peak: backward of layer 33; activations 2.9 GiB",
        "during evaluation 3.0 GiB",
        "tracing layer by layer…",
        "finishes 2034-",
        "15,000 to 30,000 kWh, 4,500 to 9,000 EUR",
    ):
        assert words in text, words


def test_what_is_not_known_is_left_out():
    memory = replace(PLAN.memory, waiting="", evaluation_bytes=None, basis="", device="host RAM")
    batch = replace(PLAN.batch, padded_tokens=None, real_tokens=None)
    time = replace(PLAN.time, energy_low_kwh=None, total_tokens=None, total_low_s=None, total_high_s=None)
    text = text_of(replace(PLAN, memory=memory, batch=batch, time=time))
    for word in ("padding", "during evaluation", "tracing", "kWh", "done"):
        assert word not in text, word
    assert "analytic" in text and not [line for line in text.splitlines() if not line.strip()]


def test_what_another_wrote_is_plain():
    memory = replace(PLAN.memory, waiting="\x1b[31mred", basis="[bold]", peak_moment="a\x07b")
    text = text_of(replace(PLAN, memory=memory))
    assert "\x1b" not in text and "\x07" not in text and "[bold]" in text


def test_the_source_is_said_once():
    assert source_words(PLAN.memory) == "analytic (formulas)"
    here = "measured on this machine, 2026-11-21"
    assert source_words(replace(PLAN.memory, tier="measured", basis=here)) == here


@each(
    ("low", "high", "words"),
    [
        (40, 50, "finishes 14:02"),
        (3600, 7200, "finishes 15:02 to 16:02"),
        (86400, 3 * 86400, "finishes 2026-11-22 14:02 to 2026-11-24 14:02"),
        (10 * 86400, 30 * 86400, "finishes 2026-12-01 to 2026-12-21"),
        (7 * 365.25 * 86400, 18 * 365.25 * 86400, "finishes 2033-11-21 to 2044-11-21"),
        (1e18, 1e20, ""),
        (None, None, ""),
    ],
)
def test_when_it_is_done(low, high, words):
    assert finish_words(TimePlan(total_low_s=low, total_high_s=high), NOW) == words


def test_what_decides_against_what_is_seen():
    """Two statements, each with its range; what is seen decides nothing, and only NVIDIA's GPUs have it."""
    card = PLAN.memory
    small = replace(card, capacity_bytes=card.judged_bytes - GIB)
    assert (amount_words(card), amount_words(small)) == ("5.4 of 7.8 GiB", "needs 5.4, has 4.4 GiB")

    def names_nvidia(device: str) -> bool:
        plan = replace(PLAN, config=PLAN.config.with_values({"engine.device": device}, "detected"))
        return any("nvidia-smi" in line for line in memory_lines(plan))

    assert [names_nvidia(device) for device in ("cuda", "mps", "cpu")] == [True, False, False]
    on_cpu = replace(card, device="host RAM")
    assert (on_cpu.judged_bytes, on_cpu.judged_high_bytes) == (card.device_used_bytes, card.high_bytes)


def test_padding_is_said_once_and_what_arranging_it_saves():
    def said(padded, waste, arranged, drawn=None):
        known = {"padded_tokens": padded, "padding_waste": waste, "arranged_waste": arranged, "drawn_waste": drawn}
        return list(padding_words(replace(PLAN.batch, effective_tokens=4096, **known)))

    assert said(3000, 0.05, 0.05, 0.43) == ["3,000 processed, 5% padding", "43% padding in sampling order"]
    assert said(4096, 0.2, 0.14) == ["14% padding if the rows of a step were grouped by length"]
    assert said(4096, 0.2, 0.195) == []


def test_a_machine_that_is_not_here_says_so():
    named = catalogue_machine(gpu="RTX 3090", num_gpus=1, ram_bytes=None)
    assert machine_text(replace(PLAN, machine=named)).endswith("(not this machine)")
