"""Each finding where it is due and not where it is not, with remedies that end it when they are applied: one table."""

from dataclasses import replace
from typing import Any

from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import CAUSAL, CHAT, GIB, PAIRS, TEXT, codes, config, finding, machine, plan, real, rows
from tests.each import each

CSV = [{"name": "rows.csv", "text_column": "text"}]
FSDP, OFFLOAD = {"engine__strategy": "fsdp"}, {"engine__offload": "optimizer"}
FLASH, BEST = {"engine__attention": "flash_attention_2"}, {"checkpoint__keep_best": True}
BLEU = {**BEST, "evaluation__metric": "eval_bleu"}
GPT2 = {"model": "gpt2-medium", "task": "causal-lm"}
QLORA = {"model": "qwen2.5-1.5b", "peft__method": "lora", "engine__base_precision": "nf4"}
PACKED = {"model": "gpt2-tiny", "data__packing": True, "data__concatenate": False, "batch__micro_batch_size": 16}
REAL = {"batch__target_real_tokens": 100_000, "batch__sequence_length": 512}
LENGTHS = DataSummary(rows=1_000_000, rows_exact=True, lengths=(100,) * 75 + (500,) * 25)
LONG = {**CAUSAL, "model": "gpt2-medium", "data__sources": CSV, "data__concatenate": False}
ANSWERS = {**CAUSAL, "data__sources": CHAT, "batch__sequence_length": 256, "evaluation__generate": True}
PAIR = {**PAIRS["data__sources"][0], "max_rows": 5_000_000}
LIMITED = {**PAIRS, "data__sources": [PAIR, {**PAIR, "name": "more.tsv", "max_rows": 500_000}]}
HERE, ONE, TWO, CPU = real(machine()), machine(), machine(count=2), machine(None)
THREE_60 = machine("RTX 3060 12GB", 2)
TURING, SMALL = machine("RTX 2080 Super"), machine(ram_gib=12)
NO_CUDA = replace(HERE, torch_cuda=None, unavailable={"torch_cuda": "torch 2.13.0+cpu is a CPU build"})
FULL_DISK = replace(real(machine(), deepspeed="0"), disk_free_bytes=5 * GIB, disk_path="/data/runs")


def of(length: int, *more: int) -> DataSummary:
    return DataSummary(rows=1000, rows_exact=True, lengths=(length,) * 9 + more)


Row = tuple[str, str, str, Machine, dict[str, Any], DataSummary | None, Any]
"""Code, severity, words of the message, machine, request, data, and what makes it quiet: a machine or values."""


def due(
    code: str, severity: str, words: str, here: Machine, *, data: DataSummary | None = None, quiet: Any = None, **values: Any
) -> Row:  # fmt: skip
    return code, severity, words, here, values, data, quiet


ROWS = [
    # What the device cannot do, and what is not installed.
    due("bf16_unsupported", "error", "bf16 needs compute capability 8.0", TURING, engine__precision="bf16", quiet=ONE),
    due("bf16_unsupported", "error", "DeepSpeed on a CPU", real(CPU, deepspeed="0"), engine__precision="bf16",
        engine__strategy="zero2", mode__kind="smoke", quiet={"engine__strategy": "single"}),
    due("engine_not_exercised", "warning", "test engine.optimizer adamw_bnb_8bit", real(CPU), mode__kind="smoke",
        engine__optimizer="adamw_bnb_8bit", quiet=ONE),
    due("engine_not_exercised", "warning", "test engine.strategy ddp", HERE, mode__kind="smoke", engine__strategy="ddp", quiet=TWO),
    due("tf32_unsupported", "error", "TF32 needs", TURING, engine__tf32=True),
    due("fp16_unsupported", "error", "without an NVIDIA", CPU, engine__precision="fp16", quiet=ONE),
    due("flash_attention_missing", "error", "too old", TURING, **FLASH, quiet=ONE),
    due("flash_attention_missing", "error", "needs an NVIDIA GPU", CPU, **FLASH),
    due("flash_attention_missing", "error", "not installed", HERE, **FLASH, quiet=real(ONE, flash_attn="2.8")),
    due("flash_attention_missing", "error", "half precision only", ONE, **FLASH, engine__precision="fp32"),
    due("deepspeed_missing", "error", "deepspeed", HERE, **OFFLOAD, quiet=real(ONE, deepspeed="0.19")),
    due("bitsandbytes_missing", "error", "bitsandbytes", HERE, engine__optimizer="adamw_bnb_8bit", quiet=ONE),
    due("torch_without_cuda", "error", "CPU build", NO_CUDA, quiet=ONE),
    due("compile_unsupported", "error", "too old", machine("P100 PCIe 16GB"), engine__compile=True, quiet=ONE),
    due("triton_missing", "error", "triton", HERE, engine__compile=True, quiet=real(ONE, triton="3.5")),
    due("compile_takes_time", "note", "2 to 120 s more at the start", ONE, engine__compile=True, quiet={"engine__compile": False}),
    due("reporter_missing", "error", "wandb", HERE, logging__report_to=["tensorboard", "wandb"], quiet=ONE),
    due("reporter_missing", "error", "telegram", ONE, logging__report_to=["telegram"]),
    due("too_many_processes", "error", "one process uses one GPU", TWO, engine__processes=4),
    due("missing_hardware", "error", "engine.gpus selects GPU 0, 1,", CPU, engine__gpus=["0", "1"], quiet=TWO),
    due("unknown_gpu", "error", "No GPU 7 on this machine", TWO, engine__gpus=["1", "7"], quiet={"engine__gpus": ["1"]}),
    due("liger_missing", "error", "not installed", HERE, **CAUSAL, engine__liger=True, quiet=real(ONE, liger_kernel="0.8.5")),
    due("liger_unsupported", "error", "need an NVIDIA GPU", CPU, **CAUSAL, engine__liger=True, quiet=ONE),
    due("liger_unsupported", "error", "here: gpt2", ONE, **GPT2, engine__liger=True),
    due("liger_unsupported", "error", "zero3", ONE, **CAUSAL, engine__liger=True, engine__strategy="zero3"),
    due("liger", "note", "Its savings are not", ONE, **CAUSAL, engine__liger=True, quiet={"engine__liger": False}),
    # A base in 4 bits.
    due("quantized_without_adapters", "error", "cannot be trained", THREE_60, **{**QLORA, "peft__method": "none"}),
    due("quantized_not_possible", "error", "here: zero3", THREE_60, **QLORA, engine__strategy="zero3"),
    due("quantized_not_possible", "error", "torch.compile", THREE_60, **QLORA, engine__compile=True),
    due("quantized_not_possible", "error", "an NVIDIA GPU or a CPU", machine("Apple M2 Max"), **QLORA, quiet=THREE_60),
    # Engines that share out.
    due("fsdp_not_possible", "error", "here: seq2seq", TWO, **FSDP, model="opus-mt-tiny", task="seq2seq"),
    due("fsdp_needs_gpus", "error", "silently", CPU, **FSDP, engine__processes=2, quiet=TWO),
    due("fsdp_needs_gpus", "error", "this run has one", ONE, **FSDP),
    due("fsdp_not_possible", "error", "offload optimizer", TWO, **FSDP, **OFFLOAD),
    due("fsdp_not_possible", "error", "adamw_bnb_8bit", TWO, **FSDP, engine__optimizer="adamw_bnb_8bit"),
    # What contradicts the task.
    due("peft_not_supported", "error", "all weights", ONE, peft__method="lora"),
    due("nothing_to_generate", "error", "have neither", ONE, evaluation__generate=True),
    due("nothing_to_generate", "error", "have neither", ONE, **CAUSAL, data__sources=TEXT, evaluation__generate=True),
    due("nothing_held_out", "error", "no rows are held out", ONE, **BEST, data__validation_rows=0),
    due("unknown_metric", "error", "eval_bleu", ONE, **PAIRS, **BLEU, quiet={"evaluation__generate": True}),
    due("nothing_to_join", "error", "plain texts of causal", ONE, **CAUSAL, data__sources=CHAT, data__concatenate=True),
    due("nothing_to_join", "error", "plain texts of causal", ONE, data__concatenate=True),
    due(
        "unknown_lora_target", "error", "no module c_attn", ONE, **CAUSAL, peft__method="lora",
        peft__targets=["q_proj", "c_attn"], quiet={"peft__method": "none"},
    ),
    due("too_long", "error", "512 positions", ONE, **{**PAIRS, "model": "opus-mt-zh-en"}, batch__target_length=1000),
    due("adapters_on_random_weights", "error", "nothing lasting", ONE, model="qwen2-tiny", peft__method="lora"),
    due("learning_rate_wipes", "error", "destroys", ONE, model="qwen2-tiny", training__learning_rate=5),
    due("unusual_learning_rate", "warning", "usual is 5e-05", ONE, **CAUSAL, training__learning_rate=2e-3),
    due("generation_cut", "warning", "end at 128 tokens, not 200", ONE, **ANSWERS, evaluation__generation_length=200,
        quiet={"evaluation__generation_length": 100}),
    # Packing.
    due("packing_not_possible", "error", "here: gpt2, eager", ONE, **PACKED, engine__attention="eager"),
    due("packing_not_possible", "error", "torch.compile", ONE, **PACKED, engine__compile=True),
    due("packing_not_possible", "error", "fsdp", TWO, **PACKED, **FSDP),
    due("packing_not_possible", "error", "here: esm", ONE, data__packing=True),
    # The batch and its rows.
    due(
        "batch_deviation", "warning", "-25.0% from batch.target_samples 128", ONE, batch__target_samples=128, batch__micro_batch_size=24,
        batch__gradient_accumulation_steps=4, quiet={"batch__target_samples": 96},
    ),
    due("takes_years", "warning", "500,000 steps", ONE, model="esm2-650m", batch__target_tokens=2_000_000,
        training__max_steps=500_000),
    due("rows_assumed", "note", "5,498,000", ONE, **LIMITED, training__epochs=2, quiet={"training__max_steps": 100}),
    due("batch_larger_than_data", "warning", "more than once", ONE, data=rows(1000), batch__target_samples=4000),
    due("unknown_lengths", "error", "--target-tokens", ONE, **REAL),
    due("several_targets", "error", "target_samples 64, ", ONE, data=LENGTHS, **REAL, batch__target_samples=64),
    due(
        "half_precision_accumulation", "warning", "16 bits", ONE, model="esm2-150m", engine__precision="bf16-true",
        batch__target_samples=640, batch__micro_batch_size=4, quiet={"batch__target_samples": 8},
    ),
    due("rows_cut", "note", "10% of the rows", ONE, data=of(300, 600), batch__sequence_length=512),
    due("rows_cut", "warning", "100% of the rows", ONE, data=of(300, 600), batch__sequence_length=128),
    due(
        "targets_cut", "note", "of the targets", ONE, **PAIRS, batch__target_length=64,
        data=replace(of(90), target_lengths=(100,) * 9), quiet={"batch__target_length": 128},
    ),
    # Memory of the device, of the host, and of the disk.
    due("host_ram", "error", "offloaded", machine(ram_gib=16), model="esm2-650m", **OFFLOAD, data__workers=12,
        data__prefetch=8, quiet=ONE),
    due("host_ram_tight", "warning", "19.4 GiB to 20.1 GiB needed", machine(ram_gib=20), model="esm2-650m", **OFFLOAD,
        quiet=machine(ram_gib=24)),
    due("disk", "error", "/data/runs", FULL_DISK, model="esm2-650m", checkpoint__keep=3, quiet=HERE),
    due("workers", "warning", "12 data loader workers for 4", machine(cores=4), data=rows(), data__workers=12),
    due("workers", "warning", "the GPU waits", machine("RTX A6000", ram_gib=60), data__workers=0, quiet=SMALL),
    due(
        "evaluation_does_not_fit", "error", "logits", machine("RTX 4080 Super"), **PAIRS, batch__micro_batch_size=2,
        batch__target_samples=96, batch__eval_micro_batch_size=192, batch__sequence_length=256,
        quiet={"batch__eval_micro_batch_size": None},
    ),
]  # fmt: skip
KEPT = {"rows_cut", "disk", "host_ram", "batch_deviation"}
"""Several remedies may be needed, or one that brings it nearer and does not end it."""


def made(here: Machine, values: dict[str, Any], data: DataSummary | None, changes: Any = ()) -> Plan:
    return plan(here, config(**{"model": "esm2-8m", **values}).with_values(dict(changes), "you"), data)


@each(("code", "severity", "words", "here", "values", "data", "quiet"), ROWS)
def test_where_it_is_due(
    code: str, severity: str, words: str, here: Machine, values: dict[str, Any], data: DataSummary | None, quiet: Any
) -> None:
    found = finding(made(here, values, data), code)
    assert found.severity == severity and words in found.message
    for remedy in found.remedies:
        assert remedy.command or not remedy.changes or code == "unknown_gpu"
        if remedy.changes and code not in KEPT:
            assert code not in codes(made(here, values, data, remedy.changes)), remedy.text
    if isinstance(quiet, Machine):
        assert code not in codes(made(quiet, values, data))
    elif quiet:
        assert code not in codes(made(here, {**values, **quiet}, data))


def test_a_longer_input_is_offered_up_to_what_the_model_knows() -> None:
    offered = []
    for length, values, data in ((128, {}, of(300, 600)), (512, LONG, of(4000)), (1024, LONG, of(4000))):
        found = finding(made(ONE, {**values, "batch__sequence_length": length}, data), "rows_cut")
        offered.append([one.changes for one in found.remedies])
    assert offered == [[{"batch.sequence_length": 1024}]] * 2 + [[]]


def test_only_the_user_allows_the_code_of_a_model() -> None:
    asked = config().with_values({"model.trust_remote_code": True}, "profile")
    found = finding(plan(ONE, asked), "remote_code")
    assert found.severity == "error" and "--set model.trust_remote_code=true" in found.message
    assert "remote_code" not in codes(plan(ONE, asked.with_values({"model.trust_remote_code": True}, "you")))


def test_what_can_be_trained_is_not_refused() -> None:
    for here, values in (
        (TWO, {"engine__strategy": "zero2", "engine__gpus": ["0"], "logging__report_to": ["none"]}),
        (ONE, {"mode__trace_steps": 3, "logging__memory_every_steps": 200, "evaluation__every_epoch": True}),
        (ONE, {**PAIRS, **BEST, "evaluation__metric": "bleu", "evaluation__generate": True}),
        (ONE, {**CAUSAL, **BEST, "data__sources": CHAT, "evaluation__generate": True}),
        *((TWO, {"engine__strategy": name, "engine__offload": off}) for name in ("fsdp", "zero1", "zero3")
          for off in ("none", "all")),
    ):  # fmt: skip
        assert not made(here, values, None).errors, values


def test_data_that_cannot_be_used_say_nothing_of_the_length() -> None:
    """No time for steps that nobody named; what the user says of the length stays."""
    refused = Finding("missing_data", "error", "data.sources.0", "There is no such file.")
    unknown, named = (plan(ONE, config("esm2-8m", training__max_steps=n), findings=(refused,)).time for n in (None, 70))
    assert (unknown.steps, unknown.epochs, unknown.total_s) == (None, None, None) and unknown.step_s is not None
    assert (named.steps, named.epochs) == (70, None) and named.total_s is not None


def test_gpu_memory_that_is_the_ram_is_one_budget() -> None:
    """What the GPU needs, the host does not have; a card of its own leaves the RAM alone."""
    shared, alone = (plan(machine(gpu, ram_gib=64), config(**CAUSAL)) for gpu in ("GB10", "RTX 3090"))
    assert shared.memory.capacity_bytes == 60 * GIB and alone.memory.host_ram_capacity_bytes == 64 * GIB
    assert shared.memory.host_ram_capacity_bytes == 64 * GIB - shared.memory.device_used_bytes
