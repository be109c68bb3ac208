"""CUDA_VISIBLE_DEVICES in all its forms; precision, attention and TF32 by capability, and Apple's GPUs, each with a reason."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.hardware.host import Memory, apple_gpu
from trainwiz.core.hardware.machine import Gpu, Libraries, Machine
from trainwiz.core.hardware.visible import choose_attention, choose_precision, choose_tf32, mark_visible

from tests.each import each

CARDS = tuple(Gpu(number, uuid=uuid) for number, uuid in enumerate(("GPU-aaaa1111", "GPU-aabb2222", "GPU-cccc3333")))
READ_BY_TORCH = {
    "2,0": [2, 0], "": [], " ": [], "-1": [], "0,-1,1": [0], "0,5,1": [0], "1gpu2,2ampere": [1, 2], "NoDevFiles": [],
    "0,0": [], " 1 , 2 ": [1, 2], "+1": [1], "1,,2": [1], "1.5": [1], "0,x,1": [0], "2,1,0,": [2, 1, 0],
    "GPU-aaaa1111": [0], "GPU-c": [2], "GPU-aa": [], "GPU-": [], "GPU-cccc,GPU-aaaa": [2, 0], "GPU-cccc,0": [2],
    "0,GPU-cccc": [0], "GPU-cccc,GPU-cccc3": [], "GPU-cccc,GPU-zzzz,GPU-aaaa": [2], "gpu-aaaa1111": [],
    "GPU-aaaa, GPU-cccc": [0], "0,3": [0],
}  # fmt: skip
"""By cuda._parse_visible_devices and _transform_uuid_to_ordinals of torch 2.13, up to the first that is not there."""


def seen(gpus: tuple[Gpu, ...]) -> list[int]:
    """Indexes of the visible cards in the order of cuda:0, cuda:1, ..."""
    visible = sorted((gpu for gpu in gpus if gpu.visible), key=lambda gpu: gpu.cuda_index or 0)
    assert [gpu.cuda_index for gpu in visible] == list(range(len(visible)))
    return [gpu.index for gpu in visible]


@each(("form", "expected"), READ_BY_TORCH.items())
def test_every_form_is_read_as_torch_reads_it(form: str, expected: list[int]) -> None:
    gpus, notes = mark_visible(CARDS, {"CUDA_VISIBLE_DEVICES": form})
    assert seen(gpus) == expected
    named = len([entry for entry in form.split(",") if entry.strip()])
    assert bool(notes) or len(seen(gpus)) == named, "what is left out is said"


def test_a_lost_card_keeps_its_number_and_is_not_used() -> None:
    lost = Gpu(1, visible=False, unavailable={"gpu": "the GPU is lost"})
    gpus, notes = mark_visible((CARDS[0], lost, CARDS[2]), {"CUDA_VISIBLE_DEVICES": "1,2"})
    assert seen(gpus) == [2]
    assert notes == ("CUDA_VISIBLE_DEVICES selects GPU 1, but the GPU is lost.",)


def test_unlike_cards_are_numbered_fastest_first_unless_by_bus() -> None:
    names = ("T4", "RTX 3090")
    cards = tuple(Gpu(number, uuid=f"GPU-{name}", name=name, catalogue_name=name) for number, name in enumerate(names))
    fastest, notes = mark_visible(cards, {"CUDA_VISIBLE_DEVICES": "0"})
    by_bus, quiet = mark_visible(cards, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    by_name, silent = mark_visible(cards, {"CUDA_VISIBLE_DEVICES": "GPU-T4"})
    assert (seen(fastest), seen(by_bus), seen(by_name)) == ([1], [0], [0])
    assert "PCI_BUS_ID" in notes[0]
    assert quiet == silent == ()


MIG_CARDS = (
    Gpu(0, uuid="GPU-plain"),
    Gpu(1, uuid="GPU-cut", mig="enabled"),
    Gpu(1, uuid="MIG-one", mig="1g.5gb", parent_uuid="GPU-cut"),
    Gpu(1, uuid="MIG-two", mig="2g.10gb", parent_uuid="GPU-cut"),
    Gpu(2, uuid="GPU-empty", mig="enabled"),
)


@each(("form", "visible"), [
    (None, ["MIG-one"]), ("1", ["MIG-one"]), ("0", ["GPU-plain"]), ("0,1", ["MIG-one"]), ("MIG-tw", ["MIG-two"]),
    ("MIG-two,MIG-one", ["MIG-two"]), ("MIG-", []), ("MIG-nothere", []), ("2", []),
])  # fmt: skip
def test_one_slice_at_most(form: str | None, visible: list[str]) -> None:
    gpus, notes = mark_visible(MIG_CARDS, {} if form is None else {"CUDA_VISIBLE_DEVICES": form})
    assert [gpu.uuid for gpu in gpus if gpu.visible] == visible
    assert visible or notes


WITH_FLASH = Libraries({"flash_attn": "2.8.3"})


def cuda(*capabilities: str | None, libraries: Libraries | None = None) -> Machine:
    gpus = tuple(Gpu(index, name="card", compute_capability=one) for index, one in enumerate(capabilities))
    return Machine(gpus=gpus, accelerator="cuda", libraries=libraries or Libraries())


@each(
    ("capability", "precision"),
    [("5.2", "fp32"), ("6.0", "fp16"), ("7.5", "fp16"), ("8.0", "bf16"), ("12.0", "bf16"), (None, "fp32")],
)  # fmt: skip
def test_precision_follows_the_capability(capability: str | None, precision: str) -> None:
    value, reason = choose_precision(cuda(capability))
    assert value == precision
    assert (capability or "unknown") in reason
    assert choose_tf32(cuda(capability))[0] is (precision == "bf16")


def test_the_weakest_visible_card_decides() -> None:
    mixed = cuda("8.6", "7.5")
    hidden = replace(mixed, gpus=(mixed.gpus[0], replace(mixed.gpus[1], visible=False)))
    assert [choose_precision(one)[0] for one in (mixed, cuda("8.6", None), hidden)] == ["fp16", "fp32", "bf16"]


@each(("version", "precision"), [("14.0", "bf16"), ("15.2.1", "bf16"), ("13.6", "fp32"), (None, "fp32"), ("x", "fp32")])
def test_precision_on_apple_follows_macos(version: str | None, precision: str) -> None:
    machine = Machine(gpus=(Gpu(0, name="Apple M2 Max"),), accelerator="mps", os_version=version)
    assert choose_precision(machine)[0] == precision
    assert choose_attention(machine)[0] == "sdpa"
    assert choose_tf32(machine)[0] is False


@each(("capability", "libraries", "attention"), [
    ("8.0", WITH_FLASH, "flash_attention_2"),
    ("7.5", WITH_FLASH, "sdpa"),
    (None, WITH_FLASH, "sdpa"),
    ("8.6", Libraries({"flash_attn": None}), "sdpa"),
])  # fmt: skip
def test_attention_needs_capability_and_library(capability: str | None, libraries: Libraries, attention: str) -> None:
    value, reason = choose_attention(cuda(capability, libraries=libraries))
    assert value == attention and reason


GIB = 1024**3


def test_apples_gpus() -> None:
    memory = Memory(64 * GIB, 40 * GIB)
    (gpu,) = apple_gpu("arm64", "14.5", "Apple M2 Max", memory).gpus
    assert (gpu.name, gpu.catalogue_name, gpu.capability) == ("Apple M2 Max", "Apple M2 Max", None)
    assert (gpu.memory_total_bytes, gpu.memory_free_bytes) == (48 * GIB, 40 * GIB)
    for machine, macos, why in (("x86_64", "14.5", "for Intel"), ("arm64", "12.2", "needs macOS 12.3, this is 12.2")):
        found = apple_gpu(machine, macos, "Apple M1", memory)
        assert not found.gpus and why in found.unavailable["gpus"]
