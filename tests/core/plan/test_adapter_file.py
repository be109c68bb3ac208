"""Continuing from an adapter: its settings become those of the run, and what contradicts them is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.plan.adapter_file import with_adapter

from tests.each import each

SAVED = {
    "peft_type": "LORA", "r": 16, "lora_alpha": 8, "target_modules": ["v_proj", "q_proj"], "use_rslora": True,
    "modules_to_save": None,
}  # fmt: skip


def asked(folder: Path, **values: Any) -> RunConfig:
    return RunConfig().with_values({"peft.adapter": str(folder), **values}, "you")


def test_rank_scale_and_modules_are_the_adapters(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(SAVED))
    config, findings = with_adapter(asked(tmp_path, **{"peft.rank": 16}))
    peft = config.peft
    assert not findings and (peft.method, peft.rank, peft.alpha, peft.rslora) == ("lora", 16, 8.0, True)
    assert peft.targets == ["q_proj", "v_proj"] and str(tmp_path) in config.origin("peft.alpha").reason
    config, findings = with_adapter(asked(tmp_path, **{"peft.rank": 32, "peft.method": "lora"}))
    assert [finding.code for finding in findings] == ["adapter_differs"] and config.peft.rank == 32
    again, findings = with_adapter(config.with_values(dict(findings[0].remedies[0].changes), "you"))
    assert not findings and again.peft.rank == 16


@each(
    ("saved", "code"),
    [
        (None, "missing_adapter"),
        ("{", "missing_adapter"),
        ("[]", "adapter_not_supported"),
        (json.dumps({**SAVED, "peft_type": "IA3"}), "adapter_not_supported"),
        (json.dumps({**SAVED, "target_modules": ".*proj"}), "adapter_not_supported"),
    ],
)
def test_what_is_no_lora_adapter_is_refused(saved: str | None, code: str, tmp_path: Path) -> None:
    if saved is not None:
        (tmp_path / "adapter_config.json").write_text(saved)
    config, findings = with_adapter(asked(tmp_path))
    assert [finding.code for finding in findings] == [code]
    assert with_adapter(config.with_values(dict(findings[0].remedies[0].changes), "you"))[1] == ()
