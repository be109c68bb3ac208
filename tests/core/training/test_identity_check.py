"""A real training that is resumed: the same goes on, something else does not, unless it is accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from trainwiz.core.data.streamed import SHUFFLED_AS_ONE
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.identity import IDENTITY_JSON, Identity
from trainwiz.core.training.identity_check import tokenizer_digest

from tests.core.training.runs import metrics, start, tiny_config, train, write_run
from tests.core.training.tokenizers_for_tests import small_tokenizer


@pytest.mark.real
def test_a_resume_with_something_else_does_not_train_until_it_is_accepted(tmp_path: Path) -> None:
    rows = tmp_path / "rows.fasta"
    rows.write_text("".join(f">{row}\nMKTAYIAKQRQISFVKSHF{'AG' * (row % 9)}\n" for row in range(60)))
    source = [{"name": "../rows.fasta"}]
    config = tiny_config(data__sources=source, training__max_steps=6, data__validation_rows=6)
    run = RunFolder(write_run(tmp_path / "run", config))
    train(run.path, config)
    recorded = Identity.read(run.file(IDENTITY_JSON))
    assert recorded is not None and recorded.loaded["data"] == {
        "rows that train": 54,
        "rows held out": 6,
        "how the rows are shuffled": SHUFFLED_AS_ONE,
    }
    assert (run.path / "checkpoint-6" / IDENTITY_JSON).read_text() == run.file(IDENTITY_JSON).read_text()

    longer = config.with_values({"training.max_steps": 9}, "you")
    run.run_yaml.write_text(yaml.safe_dump(longer.model_dump(mode="json")), encoding="utf-8")
    rows.write_text(rows.read_text().replace("MKTAYI", "MKTAYV", 1))
    logged = metrics(run.path)
    process = start(run.path, longer, "--resume", "checkpoint-6", "--accept", "data")
    assert process.wait(240) != 0
    message = json.loads(run.failure_json(0).read_text())["message"]
    assert "training.max_steps: 6 → 9" in message and "--accept training,data" in message
    assert "rows.fasta" not in message
    assert metrics(run.path) == logged

    outcome = train(run.path, longer, "--resume", "checkpoint-6", "--accept", "data,training")
    assert outcome["step"] == 9
    now = Identity.read(run.file(IDENTITY_JSON))
    assert now is not None and {entry["part"] for entry in now.accepted} == {"data", "training"}
    assert len(now.earlier) == 1


def test_a_tokenizer_is_known_by_its_vocabulary_and_its_rules(tmp_path: Path) -> None:
    one, same = small_tokenizer(tmp_path / "one"), small_tokenizer(tmp_path / "same")
    assert tokenizer_digest(one) == tokenizer_digest(same)
    same.padding_side = "left" if one.padding_side == "right" else "right"
    assert tokenizer_digest(one) == tokenizer_digest(same)
    same.add_tokens(["<new>"])
    assert tokenizer_digest(one) != tokenizer_digest(same)
