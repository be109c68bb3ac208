"""Real runs of the text tasks through accelerate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.texts import load_text_rows

from tests.core.training.runs import different_tensors, evaluations, resumed, steps_of, text_config, train, write_run

pytestmark = pytest.mark.real

DROPOUT = 0.1
"""Random numbers of the training itself: a resumed run must go on with the same ones."""


def seq2seq_config(**changes: Any) -> RunConfig:
    architecture = text_config("t5-chat-tiny").model.architecture
    values: dict[str, Any] = {
        "model__architecture": {**(architecture or {}), "dropout_rate": DROPOUT},
        "data__validation_rows": 10,
        "training__max_steps": None,
        "training__epochs": 2.0,
        "training__label_smoothing": 0.1,
        "batch__micro_batch_size": 8,
        "evaluation__every_steps": 7,
        "evaluation__every_epoch": True,
        "evaluation__generate": True,
        "evaluation__generate_at": "epoch",
        "evaluation__beams": 2,
        "evaluation__generation_length": 12,
        "checkpoint__every_steps": 4,
        "checkpoint__keep": 2,
        "checkpoint__keep_best": True,
        **changes,
    }
    return text_config("t5-chat-tiny", **values)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A seq2seq run that nothing interrupts: 140 rows, 9 steps an epoch."""
    config = seq2seq_config()
    folder = write_run(tmp_path_factory.mktemp("runs") / "whole", config)
    assert train(folder, config)["outcome"] == "finished"
    return folder


def test_evaluations_at_steps_epochs_saves_and_the_end_with_bleu_at_epochs(whole: Path) -> None:
    scores = {line["step"]: line["eval_loss"] for line in evaluations(whole)}
    assert list(scores) == [4, 7, 8, 9, 12, 14, 16, 18]
    assert [line["step"] for line in evaluations(whole) if "eval_bleu" in line] == [9, 18]
    outcome = json.loads((whole / "outcome.json").read_text())
    assert outcome["eval_loss"] < scores[4] and "eval_bleu" in outcome
    last = steps_of(whole)[18]
    assert last["loss"] < steps_of(whole)[1]["loss"]
    assert 0 < last["real_target_tokens"] < last["target_tokens"] and last["real_tokens"] < last["tokens"]
    # The best checkpoints and the newest stay.
    saved = [4, 8, 12, 16, 18]
    best = sorted(saved, key=lambda step: scores[step])[:2]
    assert {int(path.name[11:]) for path in whole.glob("checkpoint-*")} == {*best, 18}
    progress = json.loads((whole / "checkpoint-18" / "progress.json").read_text())
    assert progress["best"] == min(scores.values())


def test_the_final_model_gives_the_loss_and_the_bleu_that_were_logged(whole: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    config = seq2seq_config()
    rows = load_text_rows(config, whole)
    tokenizer: Any = AutoTokenizer.from_pretrained(whole / "final_model")
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(whole / "final_model").eval()
    assert model.config.use_cache is True
    assert rows.targets is not None
    loss, count, generated, references = 0.0, 0, [], []
    for number in map(int, rows.held_out):
        source = tokenizer(rows.texts[number], return_tensors="pt", truncation=True, max_length=48)
        labels = tokenizer(text_target=rows.targets[number], return_tensors="pt", truncation=True, max_length=24)[
            "input_ids"
        ]
        with torch.no_grad():
            loss += model(**source, labels=labels).loss.item() * labels.numel()
            written = model.generate(**source, num_beams=2, max_new_tokens=12)
        count += labels.numel()
        generated.append(tokenizer.decode(written[0], skip_special_tokens=True).strip())
        references.append(rows.targets[number])
    last = evaluations(whole)[-1]
    assert last["eval_labelled_tokens"] == count
    assert last["eval_loss"] == pytest.approx(loss / count, abs=1e-4)
    assert last["eval_bleu"] == pytest.approx(sacrebleu.corpus_bleu(generated, [references]).score, abs=1e-6)
    shown = [json.loads(line) for line in (whole / "generations.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["generation"] for line in shown if line["step"] == 18] == generated[:5]


def test_a_resumed_seq2seq_run_is_the_uninterrupted_one(whole: Path, tmp_path: Path) -> None:
    """From the middle of an epoch, with dropout, streamed rows and loader workers where the first run had none."""
    config = seq2seq_config(data__streaming=True, data__workers=2)
    step = min(int(path.name[11:]) for path in whole.glob("checkpoint-*"))
    folder = resumed(whole, tmp_path / "resumed", config, step)
    assert step < 18 and different_tensors(whole / "checkpoint-18", folder / "checkpoint-18") == []
    (before, after) = (
        {key: (line["loss"], line["tokens"]) for key, line in steps_of(run).items()} for run in (whole, folder)
    )
    assert after == {key: value for key, value in before.items() if key > step}
