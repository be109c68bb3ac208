"""The GPU catalogue: complete, marked where unsure, and never one card for another."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.catalog.gpus import GIB, find_gpu, is_rate_uncertain, load_gpus, near_gpus, spec_of
from trainwiz.core.hardware.machine import Gpu

from tests.each import each


@each(("name", "memory_gib", "expected"), [
    ("NVIDIA GeForce RTX 3080", 9.8, "RTX 3080 10GB"), ("NVIDIA GeForce RTX 3080", 12.0, "RTX 3080 12GB"),
    ("NVIDIA GeForce RTX 3080", 16.0, None), ("NVIDIA GeForce RTX 3080", None, None),
    ("NVIDIA GeForce RTX 3080 Laptop GPU", 10.0, None), ("NVIDIA GeForce RTX 3080 Ti", 12.0, "RTX 3080 Ti"),
    ("NVIDIA GeForce RTX 3080 Laptop GPU", 15.7, "RTX 3080 Laptop 16GB"),
    ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", 5.8, "RTX 3050 Laptop 6GB"),
    ("NVIDIA GeForce RTX 4060 Ti", 8.0, "RTX 4060 Ti 8GB"), ("NVIDIA GeForce RTX 4060 Ti", 16.0, "RTX 4060 Ti 16GB"),
    ("GeForce RTX 2080 SUPER", 7.8, "RTX 2080 Super"),
    ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", 8.0, "RTX 2080 Super Max-Q"),
    ("NVIDIA RTX 6000 Ada Generation", 47.5, "RTX 6000 Ada"), ("Quadro RTX 6000", 23.6, "Quadro RTX 6000"),
    ("NVIDIA RTX A2000", 5.8, "RTX A2000 6GB"), ("NVIDIA TITAN RTX", 23.6, "TITAN RTX"), ("NVIDIA GB10", None, "GB10"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 95.6, "RTX PRO 6000 Blackwell Max-Q"),
    ("NVIDIA A100-SXM4-40GB", 39.6, "A100 40GB SXM"), ("NVIDIA A100 80GB PCIe", 80.0, "A100 80GB PCIe"),
    ("NVIDIA H100 NVL", 93.6, None), ("NVIDIA A10", 22.5, "A10"), ("NVIDIA A10G", 22.5, None),
    ("Apple M2 Max", None, "Apple M2 Max"),
    # What people type.
    ("rtx3080-10g", None, "RTX 3080 10GB"), ("3080 20 gb", None, "RTX 3080 20GB"), ("3090", None, "RTX 3090"),
    ("a100 80g", None, "A100 80GB SXM"), ("h100", None, "H100 SXM"), ("RTX 3060 12GB", None, "RTX 3060 12GB"),
    ("4070 laptop", None, "RTX 4070 Laptop"), ("rtx 4070 mobile", None, "RTX 4070 Laptop"), ("1080ti", None, "GTX 1080 Ti"),
    ("RTX 4090 24GB", None, "RTX 4090"), ("3060 laptop 6 GB", None, "RTX 3060 Laptop"), ("DGX Spark", None, "GB10"),
])  # fmt: skip
def test_a_name_finds_its_own_card_only(name: str, memory_gib: float | None, expected: str | None) -> None:
    spec = find_gpu(name, None if memory_gib is None else int(memory_gib * GIB))
    assert (spec.name if spec else None) == expected


def test_an_ambiguous_or_misspelt_name_offers_the_near_ones() -> None:
    assert find_gpu("RTX 3080") is None
    assert near_gpus("RTX 3080")[:3] == ["RTX 3080 10GB", "RTX 3080 12GB", "RTX 3080 20GB"]
    assert near_gpus("RTX 2080 Supr")[0] == "RTX 2080 Super"
    assert find_gpu("3060") is None and near_gpus("3060")[:2] == ["RTX 3060 12GB", "RTX 3060 8GB"]
    assert find_gpu("RTX 4090 48GB") is None and near_gpus("RTX 4090 48GB")[0] == "RTX 4090"
    assert set(near_gpus("RTX 6000")) >= {"RTX 6000 Ada", "RTX A6000", "RTX PRO 6000 Blackwell Workstation"}
    assert near_gpus("zzzz") == [] == near_gpus("")


def test_every_name_of_every_card_leads_back_to_it() -> None:
    for spec in load_gpus().values():
        for name in (spec.name, *spec.aliases):
            assert find_gpu(name, spec.usable_bytes or spec.memory_bytes) is spec, name
        assert spec.usable_bytes is None or 0.9 < spec.usable_bytes / spec.memory_bytes < 1.0, spec.name
        if spec.compute_capability is not None:
            ampere = float(spec.compute_capability) >= 8.0
            assert ampere == (spec.bf16_flops is not None) == (spec.tf32_flops is not None), spec.name


PUBLISHED = {
    "GTX 1060 6GB": (4.4, 4.4, 192), "GTX 1080 Ti": (11.3, 11.3, 484), "TITAN V": (14.9, 119, 651),
    "RTX 2060 6GB": (6.5, 25.8, 336), "RTX 2080": (10.1, 40.3, 448), "TITAN RTX": (16.3, 130.5, 672),
    "RTX 3050 8GB": (9.1, 18.2, 224), "RTX 3060 Ti": (16.2, 32.4, 448), "RTX 3070": (20.3, 40.6, 448),
    "RTX 3080 Ti": (34.1, 68.2, 912), "RTX 3090 Ti": (40.0, 80.0, 1008), "RTX A2000 12GB": (8.0, 31.9, 288),
    "RTX A4000": (19.2, 76.7, 448), "RTX A5000": (27.8, 111.1, 768), "A30": (10.3, 165, 933), "A40": (37.4, 149.7, 696),
    "RTX 4060": (15.1, 30.2, 272), "RTX 4070 Ti Super": (44.1, 88.2, 672), "RTX 4000 Ada": (26.7, 106.9, 360),
    "RTX 6000 Ada": (91.1, 364.2, 960), "L40": (90.5, 181.05, 864), "RTX 5060 Ti 16GB": (23.7, 47.4, 448),
    "RTX 5070": (30.9, 61.7, 672), "RTX 5080": (56.3, 112.6, 960),
    "RTX PRO 6000 Blackwell Workstation": (126.0, 503.8, 1792), "GB10": (29.7, 118.8, 273),
}  # fmt: skip
"""TFLOPS of fp32 and of dense fp16 with fp32 accumulation, and GB/s, as NVIDIA's data sheets and white papers have them, or
Wikipedia; all of one kind of card have the same factors."""


def test_cards_of_a_group_have_the_published_rates() -> None:
    for name, published in PUBLISHED.items():
        spec = load_gpus()[name]
        rates = (spec.fp32_flops / 1e12, (spec.fp16_flops or 0) / 1e12, spec.bandwidth_bytes_per_s / 1e9)
        assert rates == pytest.approx(published, rel=0.015), name
        assert "fp16_flops" in spec.uncertain and spec.power_w is not None
        assert spec.tf32_flops in (None, pytest.approx((spec.fp16_flops or 0) / 2))
    grouped = [spec for spec in load_gpus().values() if spec.name not in PUBLISHED and spec.power_w is not None]
    for spec in grouped:
        # No typing error in a size: bytes for each operation lie near those of the cards above.
        assert 9 < spec.fp32_flops / spec.bandwidth_bytes_per_s < 170, spec.name
        assert 20e9 < spec.fp32_flops / (spec.power_w or 1) < 700e9, spec.name
        assert 6 * GIB <= spec.memory_bytes <= 256 * GIB, spec.name


def test_rates_are_those_of_the_measured_table(shared_data: Path) -> None:
    """Every row and cell of the table of sources is in the catalogue, with its doubts."""
    with open(shared_data / "measurements" / "gpu_specs.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 28
    for row in rows:
        names = [row["gpu"]] if "/" not in row["memory_gb"] else [f"{row['gpu']} 16GB", f"{row['gpu']} 32GB"]
        for name in names:
            spec = load_gpus()[name]
            for column, rate in (
                ("fp16_tensor_fp32acc_dense_tflops", spec.fp16_flops),
                ("bf16_tensor_dense_tflops", spec.bf16_flops),
                ("tf32_dense_tflops", spec.tf32_flops),
                ("fp32_tflops", spec.fp32_flops),
            ):
                written = row[column].split()[0]
                assert rate == (None if written == "n/a" else pytest.approx(float(written) * 1e12)), (name, column)
            assert spec.bandwidth_bytes_per_s == pytest.approx(float(row["bandwidth_gbs"]) * 1e9)
            assert spec.compute_capability == row["compute_capability"]
            assert spec.power_w == float(row["tdp_w"])
            doubts = row["not_found_twice"]
            for word, field in (("fp16", "fp16_flops"), ("bandwidth", "bandwidth_bytes_per_s"), ("tdp", "power_w")):
                if word in doubts or doubts == "all cells":
                    assert field in spec.uncertain, (name, field)


def test_rates_given_by_hand_make_a_marked_spec() -> None:
    ampere = spec_of(Gpu(0, name="RTX 9999", memory_total_bytes=24 * GIB, compute_capability="8.9", given_tflops=71))
    turing = spec_of(Gpu(0, memory_total_bytes=24 * GIB, compute_capability="7.5", given_tflops=71))
    assert ampere is not None and turing is not None
    assert (ampere.fp16_flops, ampere.bf16_flops, turing.bf16_flops) == (71e12, 71e12, None)
    assert "bandwidth_bytes_per_s" in ampere.uncertain
    said = replace(Gpu(0, memory_total_bytes=24 * GIB, given_tflops=71), given_fp32_tflops=30.0, given_bandwidth=900.0)
    by_hand, named = spec_of(said), spec_of(replace(said, catalogue_name="RTX 3090", given_tflops=None))
    for one in (by_hand, named):
        assert one is not None and (one.fp32_flops, one.bandwidth_bytes_per_s) == (30e12, 900e9)
        assert not {"fp32_flops", "bandwidth_bytes_per_s"} & set(one.uncertain)
    assert spec_of(Gpu(0, name="unknown")) is None
    # Those that one source alone says.
    assert is_rate_uncertain(load_gpus()["RTX A6000"], "bf16-true")
    assert not is_rate_uncertain(load_gpus()["H100 SXM"], "bf16")
