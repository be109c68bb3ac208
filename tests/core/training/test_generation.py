"""Generated texts: the search, BLEU, and who writes what."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import prompt_room
from trainwiz.core.training.evaluation import GenerationRequest, Generator, make_bleu, word_cutter
from trainwiz.core.training.model import build_model
from trainwiz.core.training.tokens import CausalEncoder, PairEncoder

from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import CHINESE, SENTENCES, small_tokenizer, text_rows
from tests.each import each

SOURCES = [text if number % 3 else " ".join(text.split()[: 2 + number % 4]) for number, text in enumerate(SENTENCES)]
"""Of several lengths, so that batches are padded."""
ROWS = text_rows(SOURCES, [text[::-1] for text in SENTENCES], held_out=12)


def request(model: Any, *, stopped: bool = False, rank: int = 0, processes: int = 1) -> GenerationRequest:
    accelerator: Any = SimpleNamespace(
        process_index=rank, num_processes=processes, is_main_process=rank == 0, device=torch.device("cpu")
    )
    return GenerationRequest(model, accelerator, contextlib.nullcontext, 40, lambda: stopped)


def made(config: RunConfig, folder: Path) -> tuple[Generator, Any, Any]:
    tokenizer = small_tokenizer(folder, ends_texts=config.task == "seq2seq")
    torch.manual_seed(3)
    model = build_model(config, None, folder, tokenizer).eval()
    encode = (
        PairEncoder(tokenizer, 24, 24).source
        if config.task == "seq2seq"
        else partial(CausalEncoder(tokenizer, 48).prompt, room=24)
    )
    return Generator(config, folder, ROWS, tokenizer, encode), model, tokenizer


@each("beams", [1, 3])
@each("name", ["t5-chat-tiny", "nllb-tiny", "opus-mt-tiny", "qwen2-tiny"])
def test_texts_do_not_depend_on_their_batch_and_bleu_is_sacrebleus(name: str, beams: int, tmp_path: Path) -> None:
    config = text_config(
        name,
        evaluation__beams=beams,
        evaluation__generation_length=6,
        evaluation__generation_rows=7,
        batch__eval_micro_batch_size=3,
    )
    generator, model, tokenizer = made(config, tmp_path)
    metrics = generator.metrics(request(model), "eval")
    shown = [json.loads(line) for line in (tmp_path / "generations.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["row"] for line in shown] == ROWS.held_out[:5].tolist() and {line["step"] for line in shown} == {40}
    alone = []
    for number in ROWS.held_out[:7]:
        source = SOURCES[int(number)]
        tokens = torch.tensor([tokenizer(source)["input_ids"]])
        with torch.no_grad():
            written = model.generate(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), num_beams=beams, max_new_tokens=6,
                do_sample=False, use_cache=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
            )[0, tokens.shape[1] if config.task == "causal-lm" else 1 :]  # fmt: skip
        alone.append(tokenizer.decode(written, skip_special_tokens=True).strip())
    assert [line["generation"] for line in shown] == alone[:5]
    references = [SENTENCES[int(number)][::-1] for number in ROWS.held_out[:7]]
    assert metrics["eval_bleu"] == pytest.approx(sacrebleu.corpus_bleu(alone, [references]).score)
    assert 0 < metrics["eval_generated_tokens"] <= 6 and metrics["eval_generation_s"] > 0


def test_processes_share_the_rows(tmp_path: Path) -> None:
    generator, model, _ = made(text_config("t5-chat-tiny", evaluation__generation_length=4), tmp_path)
    shares = [generator._own_share(request(model, rank=rank, processes=2)) for rank in (0, 1)]
    assert [len(share) for share in shares] == [6, 6]
    assert sorted([*shares[0], *shares[1]]) == sorted(generator._own_share(request(model)))


def test_a_stop_between_batches_ends_it_without_a_score(tmp_path: Path) -> None:
    config = text_config("t5-chat-tiny", evaluation__generation_length=4, batch__eval_micro_batch_size=4)
    generator, model, _ = made(config, tmp_path)
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) > 1

    assert generator.metrics(replace(request(model), stopped=stopped), "eval") == {}
    assert len(asked) == 2 and not (tmp_path / "generations.jsonl").exists()


def test_how_text_is_cut_into_words() -> None:
    assert word_cutter(None, CHINESE) == "zh"
    assert word_cutter(None, ["plain English", "with one 词"]) == "13a"
    assert word_cutter(None, ["日本語のテキストです"]) == "13a"
    assert word_cutter(None, []) == "13a"
    assert word_cutter("char", CHINESE) == "char"
    score = make_bleu("zh").corpus_score([CHINESE[1]], [[CHINESE[1]]]).score
    assert score == pytest.approx(100)


@pytest.mark.parametrize(("asked", "prompt", "answer"), [(None, 24, 24), (16, 32, 16), (40, 24, 24), (100, 24, 24)])
def test_a_causal_prompt_and_its_answer_fit_the_sequence(
    asked: int | None, prompt: int, answer: int, tmp_path: Path
) -> None:
    """GPT-2 has no position beyond its table: a longer text would end the run."""
    config = text_config("gpt2-tiny", evaluation__generation_length=asked)
    config.model.architecture = {**(config.model.architecture or {}), "n_positions": 48}
    assert prompt_room(config) == prompt
    generator, model, tokenizer = made(config, tmp_path)
    generator._search.eos_token_id = None
    long = text_rows(["red fox " * 40] * 3, ["x"] * 3, held_out=2)
    generator._numbers, generator._sources = long.held_out, long.texts
    generator._encode = partial(CausalEncoder(tokenizer, 48).prompt, room=prompt)
    assert {length for *_, length in generator._own_share(request(model))} == {answer}


def test_what_is_kept_of_hostile_rows_cannot_move_a_terminal(tmp_path: Path) -> None:
    hostile = ["\x9b2J clear", "\x7f\u202eback", "\x1b]0;title\x07"] * 8
    config = text_config("t5-chat-tiny", evaluation__generation_length=4)
    _, model, tokenizer = made(config, tmp_path)
    rows = text_rows(hostile, hostile, held_out=6)
    Generator(config, tmp_path, rows, tokenizer, PairEncoder(tokenizer, 24, 24).source).metrics(request(model), "eval")
    kept = (tmp_path / "generations.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(line.isprintable() for line in kept)
    assert [json.loads(line)["reference"] for line in kept] == [hostile[number] for number in rows.held_out[:5]]
