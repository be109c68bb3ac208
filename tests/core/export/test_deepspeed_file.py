"""A DeepSpeed file of the user's: copied byte for byte, and compared with the run in every key that counts."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import UsageError
from trainwiz.core.export.deepspeed import deepspeed_file_findings, read_deepspeed_file, strategy_of
from trainwiz.core.export.launch_script import export_files
from trainwiz.core.plan.gather import plan_run

from tests.core.export.solved_config import solved_config
from tests.each import each

AUTO: dict[str, Any] = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
}  # fmt: skip
"""Agrees with every run of ZeRO-2 with the optimizer in host RAM."""


def write(folder: Path, document: Any) -> Path:
    path = folder / "mine.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def config_for(path: Path, **changes: Any) -> RunConfig:
    """A run whose strategy and offload come from the file, as a plan settles them."""
    strategy, offload = strategy_of(read_deepspeed_file(path))
    values = {"engine__strategy": strategy, "engine__offload": offload, "engine__deepspeed_file": str(path)}
    return solved_config(**{**values, **changes})


def said(folder: Path, document: Any, **changes: Any) -> list[str]:
    return [one.message for one in deepspeed_file_findings(config_for(write(folder, document), **changes))]


def changed(**values: Any) -> dict[str, Any]:
    return {**copy.deepcopy(AUTO), **values}


def test_it_is_copied_byte_for_byte(tmp_path: Path) -> None:
    text = json.dumps(AUTO, indent=7).replace("\n", "\r\n") + "\r\n\r\n  "
    path = tmp_path / "mine.json"
    path.write_bytes(text.encode())
    files = export_files(config_for(path))
    assert files["deepspeed.json"].encode() == path.read_bytes()
    assert "DEEPSPEED" in files["accelerate.yaml"]


def test_every_mismatch_is_listed_at_once(tmp_path: Path) -> None:
    optimizer = {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.3}}
    document = changed(
        train_batch_size=64, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=8, gradient_clipping=0.5,
        bf16={"enabled": True}, fp16={"enabled": True}, optimizer=optimizer,
    )  # fmt: skip
    path = write(tmp_path, document)
    with pytest.raises(UsageError) as refusal:
        export_files(config_for(path, engine__device="cuda"))
    found = refusal.value.findings
    assert {finding.code for finding in found} == {"deepspeed_mismatch"}
    assert [finding.message.split(" file ")[1].split(" ")[0] for finding in found] == [
        "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size", "gradient_clipping",
        "fp16.enabled", "bf16.enabled", "optimizer.params.lr", "optimizer.params.betas", "optimizer.params.eps",
        "optimizer.params.weight_decay",
    ]  # fmt: skip
    assert "is 8, but the run uses 3 (batch.gradient_accumulation_steps)" in found[1].message


def test_a_file_of_autos_fits_every_run_and_sums_in_half_precision_are_named(tmp_path: Path) -> None:
    for precision in ("fp32", "fp16", "bf16"):
        document = changed(data_types={"grad_accum_dtype": "fp32"})
        assert said(tmp_path, document, engine__precision=precision, batch__micro_batch_size=7) == []
    for document in (AUTO, changed(data_types={"grad_accum_dtype": "bf16"})):
        [found] = deepspeed_file_findings(config_for(write(tmp_path, document), engine__precision="bf16"))
        assert (found.code, found.severity) == ("half_precision_accumulation", "warning")
        assert '"data_types": {"grad_accum_dtype": "fp32"}' in found.message
    alone = config_for(write(tmp_path, AUTO), engine__precision="bf16", batch__gradient_accumulation_steps=1)
    assert deepspeed_file_findings(alone) == ()


@each(("document", "changes", "words"), [
    # accelerate writes 1 where the key is missing, and the effective batch shrinks without a word.
    ({"gradient_accumulation_steps": None}, {}, "gradient_accumulation_steps is unset, so 1,"),
    ({"gradient_clipping": None}, {}, "gradient_clipping is unset, so 0.0,"),
    ({"optimizer": {"type": "AdamW", "params": {}}}, {}, "optimizer.params.lr is unset, so 0.001,"),
    ({"optimizer": {"type": "PagedAdamW"}}, {}, "optimizer.type is 'PagedAdamW', but the run uses 'AdamW'"),
    ({}, {"engine__strategy": "zero1"}, "uses zero2 with offload optimizer, but the run uses zero1"),
    ({}, {"engine__offload": "none"}, "but the run uses zero2 with offload none"),
    # What DeepSpeed refuses in every run.
    ({"zero_optimization": {"stage": 0}}, {}, "has stage 0 in `zero_optimization`"),
    ({"zero_optimization": {}}, {}, "has stage 0 in `zero_optimization`"),
    ({"zero_optimization": {"stage": 2, "fp16": {"enabled": "auto"}}}, {}, "`fp16` inside `zero_optimization`"),
    ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}, {}, "to NVMe"),
    ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}}, {}, "the scheduler 'WarmupLR', which would"),
])  # fmt: skip
def test_each_mismatch(tmp_path: Path, document: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    merged = {key: value for key, value in changed(**document).items() if value is not None}
    found = deepspeed_file_findings(config_for(write(tmp_path, merged), **changes))
    assert any(words in one.message and (one.severity == "error" or "clipping" in words) for one in found), found


@each(("zero", "meaning"), [
    ({"stage": 1}, ("zero1", "none")),
    ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, ("zero2", "optimizer")),
    ({"stage": 2, "offload_param": {"device": "cpu"}}, ("zero2", "none")),
    ({"stage": 2, "cpu_offload": True}, ("zero2", "optimizer")),
    ({"stage": 3, "offload_optimizer": {"device": "cpu"}}, ("zero3", "optimizer")),
    ({"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}, ("zero3", "all")),
])  # fmt: skip
def test_strategy_and_offload_come_from_the_file(zero: dict[str, Any], meaning: tuple[str, str]) -> None:
    assert strategy_of({"zero_optimization": zero}) == meaning


@each(("content", "words"), [
    ("{", "line 1 column 2"), ("[]", "no `zero_optimization` section"),
    ('{"zero_optimization": 2}', "no `zero_optimization` section"), (None, "cannot be read"),
    (b"\xff\xfe", "not UTF-8"),
    ('{"zero_optimization": { // two\n"stage": 2}}', "DeepSpeed does not accept comments"),
])  # fmt: skip
def test_a_broken_file_is_one_sentence(tmp_path: Path, content: str | bytes | None, words: str) -> None:
    own = tmp_path / "mine.json"
    if content is not None:
        own.write_bytes(content if isinstance(content, bytes) else content.encode())
    config = solved_config(engine__deepspeed_file=str(own))
    with pytest.raises(UsageError, match=words):
        export_files(config)
    [finding] = deepspeed_file_findings(config)
    assert words in finding.message and finding.where == "engine.deepspeed_file"


WILD_VERDICTS = {
    "evalconfig.json": "stage 0", "HaibaraAiChan": "no `zero_optimization` section", "comments_": "does not accept comments",
    "deepspeed_diffusion": "scheduler 'CosineWarmup'", "templates_zero": "scheduler 'WarmupDecayLR'",
    "PasoDoble": "train_micro_batch_size_per_gpu is 1, but the run uses 2",
}  # fmt: skip


def test_wild_files_are_used_or_refused_in_words(shared_data: Path) -> None:
    files = sorted((shared_data / "wild" / "deepspeed").iterdir())
    assert len(files) > 20
    accepted = 0
    for path in files:
        verdict = next((words for part, words in WILD_VERDICTS.items() if part in path.name), "")
        try:
            document = read_deepspeed_file(path)
        except UsageError as error:
            assert verdict and verdict in str(error), path.name
            continue
        steps = document.get("gradient_accumulation_steps", 1)
        fits: dict[str, Any] = {"batch__gradient_accumulation_steps": steps if isinstance(steps, int) else 3}
        enabled = [name for name in ("fp16", "bf16") if (document.get(name) or {}).get("enabled") is True]
        config = config_for(path, engine__device="cuda", engine__precision=(*enabled, "fp32")[0], **fits)
        findings = deepspeed_file_findings(config)
        assert verdict in " ".join(finding.message for finding in findings), path.name
        accepted += not any(finding.severity == "error" for finding in findings)
    assert accepted >= 14


def test_a_plan_takes_the_engine_from_the_file_and_lists_what_contradicts_it(tmp_path: Path) -> None:
    path = write(tmp_path, changed(bf16={"enabled": True}))
    plan = plan_run(PlanRequest(overrides={"engine.deepspeed_file": str(path)}))
    engine = plan.config.engine
    assert (engine.strategy, engine.offload, engine.precision) == ("zero2", "optimizer", "bf16")
    assert plan.config.origin("engine.strategy").reason == "from your DeepSpeed file"
    assert not [finding for finding in plan.findings if finding.where == "engine.deepspeed_file"]
    path = write(tmp_path, changed(gradient_clipping=0.3, train_micro_batch_size_per_gpu=77))
    overrides = {"engine.deepspeed_file": str(path), "engine.strategy": "zero1"}
    found = [one for one in plan_run(PlanRequest(overrides=overrides)).errors if one.code == "deepspeed_mismatch"]
    words = " ".join(finding.message for finding in found)
    assert len(found) == 3 and all(part in words for part in ("zero1", "gradient_clipping", "micro_batch"))
    missing = plan_run(PlanRequest(overrides={"engine.deepspeed_file": str(tmp_path / "no.json")}))
    assert "cannot be read" in " ".join(finding.message for finding in missing.errors)
