"""A run that gets worse: it ends early, leaves its best weights, and says what the model answered on the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.run.state import result_sentences

from tests.core.training.runs import evaluations, text_config, train, write_run


def spoilt() -> RunConfig:
    """Rows that are known by heart after a few steps, at a rate that spoils them again."""
    return text_config(
        "gpt2-tiny",
        data__sources=[{"name": "sample-chat", "text_column": "prompt", "target_column": "response", "max_rows": 24}],
        data__validation_rows=8,
        training__max_steps=60,
        training__learning_rate=2e-2,
        checkpoint__every_steps=4,
        checkpoint__keep=1,
        checkpoint__final="best",
        evaluation__patience=3,
        evaluation__at_start=True,
        evaluation__prompts="rows",
        evaluation__generation_length=8,
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("runs") / "early", spoilt())
    train(folder, spoilt())
    return folder


def outcome_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "outcome.json").read_text())  # type: ignore[no-any-return]


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_it_ends_early_and_leaves_the_best_weights(ended: Path) -> None:
    scores = {line["step"]: line["eval_loss"] for line in evaluations(ended)}
    best = min((step for step in scores if step), key=lambda step: scores[step])
    outcome = outcome_of(ended)
    assert outcome["outcome"] == "finished" and min(scores) == 0
    assert outcome["step"] == max(scores) == best + 3 * 4 < 60
    assert outcome["final"] == {"step": best, "which": "best", "metric": "eval_loss", "score": scores[best]}
    assert {path.name for path in ended.glob("checkpoint-*")} == {f"checkpoint-{best}", f"checkpoint-{max(scores)}"}
    assert weights(ended / "final_model") == weights(ended / f"checkpoint-{best}")
    assert not {path.name for path in (ended / "final_model").iterdir()} & {"optimizer.pt", "trainer_state.json"}
    early, final = result_sentences(outcome)
    assert f"step {max(scores)} of 60" in early and f"step {best}" in final


def test_the_model_answers_before_the_first_step_and_at_every_evaluation(ended: Path) -> None:
    lines = [json.loads(line) for line in (ended / "generations.jsonl").read_text().splitlines()]
    evaluated = [line["step"] for line in evaluations(ended)]
    assert [line["step"] for line in lines if line["prompt"] == 0] == evaluated
    assert {line["prompt"] for line in lines} == {0, 1, 2} and len({line["source"] for line in lines}) == 3
    assert all(line["tokens"] <= 8 and line["reference"] for line in lines)
    assert len({line["generation"] for line in lines if line["prompt"] == 0}) > 1


def test_a_resumed_run_ends_at_the_same_step_with_the_same_model(ended: Path, tmp_path: Path) -> None:
    """Also one that was killed between the checkpoint of its last step and its end: what it waited for is over."""
    last = outcome_of(ended)["step"]
    for name, gone in (("killed", (last,)), ("late", ())):
        folder = shutil.copytree(ended, tmp_path / name)
        shutil.rmtree(folder / "final_model")
        (folder / "outcome.json").unlink()
        for step in gone:
            shutil.rmtree(folder / f"checkpoint-{step}")
        newest = max(int(path.name[11:]) for path in folder.glob("checkpoint-*"))
        train(folder, spoilt(), "--resume", str(folder / f"checkpoint-{newest}"))
        assert outcome_of(folder)["final"] == outcome_of(ended)["final"]
        assert outcome_of(folder)["ended_early"] == outcome_of(ended)["ended_early"]
        assert weights(folder / "final_model") == weights(ended / "final_model")
