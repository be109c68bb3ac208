"""Real runs: proteins, pairs of texts, and a run that gets worse; each once to its end, and resumed."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
import yaml
from safetensors.torch import load_file
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import SHUFFLED_AS_ONE
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.identity import IDENTITY_JSON, Identity
from trainwiz.core.run.state import read_state, result_sentences
from trainwiz.core.training.session import tokenizer_digest
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer, EsmTokenizer

from tests.core.training.runs import (
    CHAT,
    different_tensors,
    evaluations,
    metrics,
    resumed,
    start,
    steps_of,
    stop_at,
    text_config,
    tiny_config,
    train,
    write_run,
)
from tests.core.training.tokenizers_for_tests import small_tokenizer

pytestmark = pytest.mark.real

TRAINING_KEYS = {
    "time_s", "step", "epoch", "loss", "learning_rate", "grad_norm", "tokens", "real_tokens", "tokens_per_s",
    "real_tokens_per_s", "step_s", "data_wait_s", "own_s", "peak_allocated_bytes", "peak_reserved_bytes",
}  # fmt: skip
GROUPED: dict[str, Any] = {"data__group_by_length": True}
WHOLE = tiny_config(**GROUPED, mode__trace_steps=2, logging__memory_every_steps=6, training__empty_cache_steps=1)
RunOf = Callable[[str], Path]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """A run that nothing interrupts, by what it trains on."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            config = {"proteins": WHOLE, "pairs": seq2seq_config(), "spoilt": spoilt()}[name]
            made[name] = write_run(tmp_path_factory.mktemp("runs") / name, config)
            assert train(made[name], config)["outcome"] == "finished"
        return made[name]

    return run


def outcome_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "outcome.json").read_text())  # type: ignore[no-any-return]


def test_a_run_writes_its_files(run_of: RunOf) -> None:
    whole = run_of("proteins")
    training = steps_of(whole)
    assert list(training) == list(range(1, 19))
    assert all(set(line) == TRAINING_KEYS for line in training.values())
    last = training[18]
    assert last["peak_allocated_bytes"] is None
    assert 0 < last["real_tokens"] < last["tokens"]
    assert 0 <= last["data_wait_s"] < last["step_s"] and 0 < last["own_s"] <= 1.1 * last["step_s"]
    assert [line["step"] for line in evaluations(whole)] == [6, 12, 18]
    said = {
        "actual": "single", "precision": "fp32", "device": "cpu", "world_size": 1, "optimizer": "AdamW", "attention": "sdpa",
    }  # fmt: skip
    assert said.items() <= json.loads((whole / "engine.json").read_text()).items()
    state, outcome = read_state(RunFolder(whole)), outcome_of(whole)
    assert state.status == "finished" and state.exit is not None and state.exit.code == 0
    assert (outcome["step"], outcome["max_steps"]) == (18, 18)
    assert outcome["first_loss"] == training[1]["loss"] and outcome["last_loss"] == last["loss"] < outcome["first_loss"]


def test_the_final_model_loads_back_with_its_tokenizer(run_of: RunOf) -> None:
    whole = run_of("proteins")
    tokenizer = AutoTokenizer.from_pretrained(whole / "final_model")
    assert isinstance(tokenizer, EsmTokenizer)
    assert tokenizer("MKT")["input_ids"] == [0, 20, 15, 11, 2]
    model, report = AutoModelForMaskedLM.from_pretrained(whole / "final_model", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(model.lm_head.bias, load_file(whole / "checkpoint-18" / "model.safetensors")["lm_head.bias"])


def test_a_trace_of_two_steps_and_the_memory_every_six(run_of: RunOf) -> None:
    whole = run_of("proteins")
    assert sorted(path.name for path in (whole / "trace").iterdir()) == ["steps-3-4.json.gz", "steps-3-4.txt"]
    with gzip.open(whole / "trace" / "steps-3-4.json.gz", "rt", encoding="utf-8") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert sum(name.startswith("Optimizer.step#AdamW.step") for name in names) == 2
    assert "aten::addmm" in (whole / "trace" / "steps-3-4.txt").read_text()
    memory = [line for line in metrics(whole) if "memory_host_rss_bytes" in line]
    assert [line["step"] for line in memory] == [6, 12, 18]
    assert all(line["memory_allocated_bytes"] is None for line in memory)
    assert all(50e6 < line["memory_host_rss_bytes"] < 20e9 for line in memory)
    # Writing the trace takes seconds; a step of this model takes hundredths of one.
    assert np.median([line["step_s"] for step, line in steps_of(whole).items() if step > 4]) < 0.5


def test_stopped_and_resumed_equals_uninterrupted(run_of: RunOf, tmp_path: Path) -> None:
    """Other worker counts too, and the stop falls in the middle of an epoch, and of a pool of rows of like length."""
    whole = run_of("proteins")
    config = tiny_config(**GROUPED, data__workers=2)
    folder = write_run(tmp_path / "stopped", config)
    outcome = stop_at(folder, start(folder, config), 8)
    stopped = outcome["step"]
    assert outcome["outcome"] == "stopped" and 8 <= stopped < 18
    assert not (folder / "final_model").exists()
    train(folder, config, "--resume", f"checkpoint-{stopped}")
    assert different_tensors(whole / "checkpoint-18", folder / "checkpoint-18") == []
    assert different_tensors(whole / "final_model", folder / "final_model") == []
    lines = metrics(folder)
    assert [line["resumed_from"] for line in lines if "resumed_from" in line] == [stopped]
    keys = ("step", "loss", "tokens", "real_tokens")
    (before, after) = ([[line[key] for key in keys] for line in steps_of(path).values()] for path in (whole, folder))
    assert after == before and len([line for line in lines if "loss" in line]) == 18


def test_from_its_last_step_it_only_writes_the_model_and_something_else_must_be_accepted(
    run_of: RunOf, tmp_path: Path
) -> None:
    """Killed while the final model is written: no step more than was asked for."""
    whole = run_of("proteins")
    run = RunFolder(tmp_path / "cut short")
    shutil.copytree(whole, run.path, ignore=shutil.ignore_patterns("final_model", "outcome.json"))
    outcome = train(run.path, WHOLE, "--resume", "checkpoint-18")
    assert outcome == outcome_of(whole)
    assert not (run.path / "checkpoint-19").exists()
    assert different_tensors(whole / "final_model", run.final_model) == []

    recorded = Identity.read(run.file(IDENTITY_JSON))
    data = {"rows that train": 107, "rows held out": 13, "how the rows are shuffled": SHUFFLED_AS_ONE}
    assert recorded is not None and recorded.loaded["data"] == data
    assert (run.path / "checkpoint-18" / IDENTITY_JSON).read_text() == run.file(IDENTITY_JSON).read_text()
    longer = WHOLE.with_values({"training.max_steps": 20}, "you")
    run.run_yaml.write_text(yaml.safe_dump(longer.model_dump(mode="json")), encoding="utf-8")
    logged = metrics(run.path)
    assert start(run.path, longer, "--resume", "checkpoint-18", "--accept", "data").wait(240) != 0
    failure = json.loads(run.failure_json(0).read_text())
    assert (failure["type"], failure["rank"], failure["step"]) == ("UsageError", 0, None)
    assert "training.max_steps: 18 → 20" in failure["message"] and "--accept data,training" in failure["message"]
    assert f"error: {failure['message']}" in run.train_log.read_text()
    assert metrics(run.path) == logged
    assert train(run.path, longer, "--resume", "checkpoint-18", "--accept", "data,training")["step"] == 20
    now = Identity.read(run.file(IDENTITY_JSON))
    assert now is not None and [entry["part"] for entry in now.accepted] == ["training"]


@pytest.mark.all
def test_torch_compile_takes_batches_of_every_length(tmp_path: Path) -> None:
    config = text_config("gpt2-tiny", engine__compile=True)
    folder = write_run(tmp_path / "run", config)
    train(folder, config)
    engine = json.loads((folder / "engine.json").read_text())
    assert (engine["compile"], engine["model"]) == (True, "GPT2LMHeadModel")
    assert "recompile_limit" not in (folder / "train.log").read_text()


def test_a_tokenizer_is_known_by_its_vocabulary_and_its_rules(tmp_path: Path) -> None:
    one, same = small_tokenizer(tmp_path / "one"), small_tokenizer(tmp_path / "same")
    assert tokenizer_digest(one) == tokenizer_digest(same)
    same.padding_side = "left" if one.padding_side == "right" else "right"
    assert tokenizer_digest(one) == tokenizer_digest(same)
    same.add_tokens(["<new>"])
    assert tokenizer_digest(one) != tokenizer_digest(same)


# Pairs of texts.


def seq2seq_config(**changes: Any) -> RunConfig:
    """140 rows, 9 steps an epoch. Dropout has random numbers of its own: a resumed run must go on with the same ones."""
    architecture = text_config("t5-chat-tiny").model.architecture
    values: dict[str, Any] = {
        "model__architecture": {**(architecture or {}), "dropout_rate": 0.1}, "data__validation_rows": 10,
        "training__max_steps": None, "training__epochs": 2.0, "training__label_smoothing": 0.1,
        "batch__micro_batch_size": 8, "evaluation__every_steps": 7, "evaluation__every_epoch": True,
        "evaluation__generate": True, "evaluation__generate_at": "epoch", "evaluation__beams": 2,
        "evaluation__generation_length": 12, "checkpoint__every_steps": 4, "checkpoint__keep": 2,
        "checkpoint__keep_best": True, **changes,
    }  # fmt: skip
    return text_config("t5-chat-tiny", **values)


def test_evaluations_at_steps_epochs_saves_and_the_end_with_bleu_at_epochs(run_of: RunOf) -> None:
    whole = run_of("pairs")
    scores = {line["step"]: line["eval_loss"] for line in evaluations(whole)}
    assert list(scores) == [4, 7, 8, 9, 12, 14, 16, 18]
    assert [line["step"] for line in evaluations(whole) if "eval_bleu" in line] == [9, 18]
    outcome = outcome_of(whole)
    assert outcome["eval_loss"] < scores[4] and "eval_bleu" in outcome
    last = steps_of(whole)[18]
    assert last["loss"] < steps_of(whole)[1]["loss"]
    assert 0 < last["real_tokens"] < last["tokens"]
    # The best checkpoints and the newest stay.
    saved = [4, 8, 12, 16, 18]
    best = sorted(saved, key=lambda step: scores[step])[:2]
    assert {int(path.name[11:]) for path in whole.glob("checkpoint-*")} == {*best, 18}
    progress = json.loads((whole / "checkpoint-18" / "progress.json").read_text())
    assert progress["best"] == min(scores.values())


def test_the_final_model_gives_the_loss_and_the_bleu_that_were_logged(run_of: RunOf) -> None:
    whole = run_of("pairs")
    config = seq2seq_config()
    rows = load_text_rows(config, whole)
    tokenizer: Any = AutoTokenizer.from_pretrained(whole / "final_model")
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(whole / "final_model").eval()
    assert model.config.use_cache is True
    assert rows.targets is not None
    loss, count, generated, references = 0.0, 0, [], []
    for number in map(int, rows.held_out):
        source = tokenizer(rows.texts[number], return_tensors="pt", truncation=True, max_length=48)
        target = tokenizer(text_target=rows.targets[number], return_tensors="pt", truncation=True, max_length=24)
        labels = target["input_ids"]
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


def test_a_resumed_seq2seq_run_is_the_uninterrupted_one(run_of: RunOf, tmp_path: Path) -> None:
    """From the middle of an epoch, with dropout, streamed rows and loader workers where the first run had none."""
    whole = run_of("pairs")
    config = seq2seq_config(data__streaming=True, data__workers=2)
    step = min(int(path.name[11:]) for path in whole.glob("checkpoint-*"))
    folder = resumed(whole, tmp_path / "resumed", config, step)
    assert step < 18 and different_tensors(whole / "checkpoint-18", folder / "checkpoint-18") == []
    before, after = ({at: (one["loss"], one["tokens"]) for at, one in steps_of(run).items()} for run in (whole, folder))
    assert after == {key: value for key, value in before.items() if key > step}


# A run that gets worse: it ends early, leaves its best weights, and says what the model answered on the way.


def spoilt() -> RunConfig:
    """Rows that are known by heart after a few steps, at a rate that spoils them again."""
    return text_config(
        "gpt2-tiny", data__sources=[{**CHAT[0], "max_rows": 24}], data__validation_rows=8, training__max_steps=60,
        training__learning_rate=2e-2, checkpoint__every_steps=4, checkpoint__keep=1, checkpoint__final="best",
        evaluation__patience=3, evaluation__at_start=True, evaluation__prompts="rows", evaluation__generation_length=8,
    )  # fmt: skip


def test_it_ends_early_and_leaves_the_best_weights(run_of: RunOf) -> None:
    ended = run_of("spoilt")
    scores = {line["step"]: line["eval_loss"] for line in evaluations(ended)}
    best = min((step for step in scores if step), key=lambda step: scores[step])
    outcome = outcome_of(ended)
    assert outcome["outcome"] == "finished" and min(scores) == 0
    assert outcome["step"] == max(scores) == best + 3 * 4 < 60
    assert outcome["final"] == {"step": best, "which": "best", "metric": "eval_loss", "score": scores[best]}
    assert {path.name for path in ended.glob("checkpoint-*")} == {f"checkpoint-{best}", f"checkpoint-{max(scores)}"}
    assert different_tensors(ended / "final_model", ended / f"checkpoint-{best}") == []
    assert not {path.name for path in (ended / "final_model").iterdir()} & {"optimizer.pt", "trainer_state.json"}
    early, final = result_sentences(outcome)
    assert f"step {max(scores)} of 60" in early and f"step {best}" in final


def test_the_model_answers_before_the_first_step_and_at_every_evaluation(run_of: RunOf) -> None:
    ended = run_of("spoilt")
    lines = [json.loads(line) for line in (ended / "generations.jsonl").read_text().splitlines()]
    evaluated = [line["step"] for line in evaluations(ended)]
    assert [line["step"] for line in lines if line["prompt"] == 0] == evaluated
    assert {line["prompt"] for line in lines} == {0, 1, 2} and len({line["source"] for line in lines}) == 3
    assert all(line["tokens"] <= 8 and line["reference"] for line in lines)
    assert len({line["generation"] for line in lines if line["prompt"] == 0}) > 1


def test_a_resumed_run_ends_at_the_same_step_with_the_same_model(run_of: RunOf, tmp_path: Path) -> None:
    """Also one that was killed between the checkpoint of its last step and its end: what it waited for is over."""
    ended = run_of("spoilt")
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
        assert different_tensors(folder / "final_model", ended / "final_model") == []
