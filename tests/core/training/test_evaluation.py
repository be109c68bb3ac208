"""What is measured on held-out rows and when: sums and means, generated texts and their BLEU."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import prompt_room
from trainwiz.core.estimate import activations as logit_slices
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.evaluation import EvaluationSchedule, token_metrics, token_sums
from trainwiz.core.training.generation import Generator, make_bleu, word_cutter
from trainwiz.core.training.model import build_model
from trainwiz.core.training.tokens import CausalEncoder, PairEncoder
from transformers import PreTrainedTokenizerFast, TrainerControl, TrainerState

from tests.core.training.runs import text_config, tiny_config
from tests.core.training.tokenizers_for_tests import CHINESE, SENTENCES, small_tokenizer, text_rows
from tests.each import each


def evaluated_steps(callback: EvaluationSchedule) -> list[int]:
    last, per_epoch, saves = 10, 4, 5
    arguments, found = SimpleNamespace(), list[int]()
    for step in range(1, last + 1):
        state = TrainerState(global_step=step, max_steps=last, epoch=step / per_epoch)
        control = TrainerControl(should_save=step % saves == 0, should_evaluate=True)
        callback.on_step_end(arguments, state, control)  # type: ignore[arg-type]
        found += [step] * control.should_evaluate
        if step % per_epoch == 0 or step == last:
            # The Trainer's own rule for epochs would measure the same step again.
            control.should_evaluate = True
            callback.on_epoch_end(arguments, state, control)  # type: ignore[arg-type]
            found += [step] * control.should_evaluate
    return found


@each(("changes", "with_saves", "steps"), [
    ({"evaluation__every_steps": 3}, False, [3, 6, 9, 10]),
    ({"checkpoint__every_steps": 5}, False, [5, 10]),
    ({"evaluation__every_epoch": True}, False, [4, 8, 10]),
    ({"evaluation__every_epoch": True, "evaluation__every_steps": 3}, False, [3, 4, 6, 8, 9, 10]),
    ({"evaluation__every_epoch": True}, True, [4, 5, 8, 10]),
])  # fmt: skip
def test_steps_epochs_saves_and_always_the_end(changes: dict[str, Any], with_saves: bool, steps: list[int]) -> None:
    assert evaluated_steps(EvaluationSchedule(tiny_config(**changes), int, True, with_saves)) == steps
    assert evaluated_steps(EvaluationSchedule(tiny_config(**changes), int, False, with_saves)) == []


@each("slice_bytes", [2**28, 400])
def test_sums_and_means(slice_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logit_slices, "EVALUATION_SLICE_BYTES", slice_bytes)
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 6, 11), torch.randint(0, 11, (2, 6))
    labels[0, 2:] = IGNORED
    metrics = token_metrics(token_sums(logits, labels).double(), "eval")
    expected = torch.nn.functional.cross_entropy(logits.view(-1, 11), labels.view(-1)).item()
    assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["eval_perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert metrics["eval_labelled_tokens"] == 8
    right = (logits.argmax(-1) == labels).sum().item()
    assert metrics["eval_accuracy"] == pytest.approx(right / 8)


def test_a_loss_beyond_all_bounds_is_a_number_still() -> None:
    assert token_metrics(torch.tensor([8000.0, 0, 8]), "eval")["eval_perplexity"] == math.inf
    assert token_metrics(torch.tensor([16.0, 0, 8]), "eval")["eval_perplexity"] == pytest.approx(math.exp(2))
    assert math.isnan(token_metrics(torch.tensor([math.nan, 0, 8]), "eval")["eval_perplexity"])
    assert math.isnan(token_metrics(torch.zeros(3), "eval")["eval_loss"])


SOURCES = [text if number % 3 else " ".join(text.split()[: 2 + number % 4]) for number, text in enumerate(SENTENCES)]
"""Of several lengths, so that batches are padded."""
ROWS = text_rows(SOURCES, [text[::-1] for text in SENTENCES], held_out=12)


def trainer_of(model: Any, *, rank: int = 0, processes: int = 1, stops: Callable[[], bool] = lambda: False) -> Any:
    accelerator = SimpleNamespace(
        process_index=rank, num_processes=processes, is_main_process=rank == 0, device=torch.device("cpu"),
        autocast=contextlib.nullcontext, reduce=lambda votes, reduction: votes,
    )  # fmt: skip
    return SimpleNamespace(
        model=model, accelerator=accelerator, state=TrainerState(global_step=40), stop_requested=stops
    )


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreTrainedTokenizerFast]:
    ends = {"seq2seq": True, "causal-lm": False}
    return {task: small_tokenizer(tmp_path_factory.mktemp(task), ends_texts=end) for task, end in ends.items()}


Tokenizers = dict[str, PreTrainedTokenizerFast]


def made(tokenizers: Tokenizers, config: RunConfig, folder: Path) -> tuple[Generator, Any, Any]:
    tokenizer = tokenizers[config.task]
    torch.manual_seed(3)
    model = build_model(config, None, folder, tokenizer).eval()
    pairs = config.task == "seq2seq"
    encode = PairEncoder(tokenizer, 24, 24).source if pairs else partial(CausalEncoder(tokenizer, 48).prompt, room=24)
    return Generator(config, folder, ROWS, tokenizer, encode), model, tokenizer


@each(("name", "beams"), [("t5-chat-tiny", 1), ("opus-mt-tiny", 2), ("qwen2-tiny", 2), ("qwen2-tiny", 1)])
def test_texts_do_not_depend_on_their_batch_and_bleu_is_sacrebleus(
    name: str, beams: int, tokenizers: Tokenizers, tmp_path: Path
) -> None:
    limits = {"evaluation__generation_length": 4, "evaluation__generation_rows": 6, "batch__eval_micro_batch_size": 4}
    config = text_config(name, evaluation__beams=beams, **limits)
    generator, model, tokenizer = made(tokenizers, config, tmp_path)
    metrics = generator.metrics(trainer_of(model), "eval")
    shown = [json.loads(line) for line in (tmp_path / "generations.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["row"] for line in shown] == ROWS.held_out[:5].tolist() and {line["step"] for line in shown} == {40}
    alone = []
    for number in ROWS.held_out[:6]:
        source = SOURCES[int(number)]
        tokens = torch.tensor([tokenizer(source)["input_ids"]])
        with torch.no_grad():
            written = model.generate(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), num_beams=beams, max_new_tokens=4,
                do_sample=False, use_cache=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
            )[0, tokens.shape[1] if config.task == "causal-lm" else 1 :]  # fmt: skip
        alone.append(tokenizer.decode(written, skip_special_tokens=True).strip())
    assert [line["generation"] for line in shown] == alone[:5]
    references = [SENTENCES[int(number)][::-1] for number in ROWS.held_out[:6]]
    assert metrics["eval_bleu"] == pytest.approx(sacrebleu.corpus_bleu(alone, [references]).score)
    assert 0 < metrics["eval_generated_tokens"] <= 4 and metrics["eval_generation_s"] > 0


def test_processes_share_the_rows_and_a_stop_between_batches_ends_it_without_a_score(
    tokenizers: Tokenizers, tmp_path: Path
) -> None:
    config = text_config("t5-chat-tiny", evaluation__generation_length=2, batch__eval_micro_batch_size=4)
    generator, model, _ = made(tokenizers, config, tmp_path)
    shares = [generator._own_share(trainer_of(model, rank=rank, processes=2)) for rank in (0, 1)]
    assert [len(share) for share in shares] == [6, 6]
    assert dict([*shares[0], *shares[1]]) == dict(generator._own_share(trainer_of(model)))
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) > 1

    assert generator.metrics(trainer_of(model, stops=stopped), "eval") == {}
    assert len(asked) == 2 and not (tmp_path / "generations.jsonl").exists()


def test_how_text_is_cut_into_words() -> None:
    assert word_cutter(None, CHINESE) == "zh"
    assert word_cutter(None, ["plain English", "with one 词"]) == "13a"
    assert word_cutter(None, []) == "13a"
    assert word_cutter("char", CHINESE) == "char"
    score = make_bleu("zh").corpus_score([CHINESE[1]], [[CHINESE[1]]]).score
    assert score == pytest.approx(100)


@each(("asked", "prompt", "answer"), [(None, 24, 24), (16, 32, 16), (40, 24, 24)])
def test_a_causal_prompt_and_its_answer_fit_the_sequence(
    asked: int | None, prompt: int, answer: int, tokenizers: Tokenizers, tmp_path: Path
) -> None:
    """GPT-2 has no position beyond its table: a longer text would end the run."""
    config = text_config("gpt2-tiny", evaluation__generation_length=asked)
    config.model.architecture = {**(config.model.architecture or {}), "n_positions": 48}
    assert prompt_room(config) == prompt
    generator, model, tokenizer = made(tokenizers, config, tmp_path)
    generator._writer._search.eos_token_id = None
    long = text_rows(["red fox " * 40] * 2, ["x"] * 2, held_out=1)
    generator._numbers, generator._sources = long.held_out, long.texts
    generator._encode = partial(CausalEncoder(tokenizer, 48).prompt, room=prompt)
    assert {written.tokens for _, written in generator._own_share(trainer_of(model))} == {answer}


def test_what_is_kept_of_hostile_rows_cannot_move_a_terminal(tokenizers: Tokenizers, tmp_path: Path) -> None:
    hostile = ["\x9b2J clear", "\x7f\u202eback", "\x1b]0;title\x07"] * 8
    config = text_config("t5-chat-tiny", evaluation__generation_length=2)
    _, model, tokenizer = made(tokenizers, config, tmp_path)
    rows = text_rows(hostile, hostile, held_out=6)
    Generator(config, tmp_path, rows, tokenizer, PairEncoder(tokenizer, 24, 24).source).metrics(
        trainer_of(model), "eval"
    )
    kept = (tmp_path / "generations.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(line.isprintable() for line in kept)
    assert [json.loads(line)["reference"] for line in kept] == [hostile[number] for number in rows.held_out[:5]]
