"""Texts as tokens: what is labelled, what is cut, how long rows are, and joined texts in memory and in a file."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from trainwiz.core.catalog.models import load_models
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.training import tokenizer as tokenizer_training
from trainwiz.core.training.batches import IGNORED, PaddedBatch
from trainwiz.core.training.tasks import Rows, blocks, text_row
from trainwiz.core.training.tokenizer import SPECIAL_TOKENS, build_tokenizer, forced_first_token
from trainwiz.core.training.tokens import CausalEncoder, PairEncoder, TokenStore, cut, join_tokens, row_lengths
from transformers import AutoTokenizer, NllbTokenizer, PreTrainedTokenizerFast

from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import CHINESE, SENTENCES, small_tokenizer, text_rows
from tests.each import each

ALL = np.arange(len(SENTENCES))


@pytest.fixture(scope="module")
def pair_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return small_tokenizer(tmp_path_factory.mktemp("t"), ends_texts=True)


def test_of_a_prompt_with_a_response_only_the_response_and_its_end_are_labelled(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    prompt, response = tokenizer("the old fox")["input_ids"], tokenizer(" sees 3 stones")["input_ids"]
    tokens, labels = CausalEncoder(tokenizer, 64).row("the old fox", " sees 3 stones")
    assert tokens.tolist() == [*prompt, *response, tokenizer.eos_token_id]
    # The last token of the prompt predicts the first of the response.
    wanted = [IGNORED] * (len(prompt) - 1) + [*response, tokenizer.eos_token_id] + [IGNORED]
    assert labels.tolist() == wanted
    # A cut prompt begins with a begin token only where the whole one did.
    tokens, _ = CausalEncoder(tokenizer, 8).row("the old fox " * 9, " sees")
    whole = [*tokenizer("the old fox " * 9)["input_ids"], *tokenizer(" sees")["input_ids"], tokenizer.eos_token_id]
    assert tokens.tolist() == whole[-8:] and tokens[0] != prompt[0]


def test_a_tokenizer_that_begins_and_ends_texts_gives_one_begin_and_one_end(tokenizer: PreTrainedTokenizerFast) -> None:
    both = deepcopy(tokenizer)
    both.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", both.bos_token_id), ("</s>", both.eos_token_id)]
    )
    tokens, _ = CausalEncoder(both, 64).row("red cat", " sees")
    assert tokens.tolist().count(both.bos_token_id) == 1 == tokens.tolist().count(both.eos_token_id)
    assert tokens[0] == both.bos_token_id and tokens[-1] == both.eos_token_id
    long = CausalEncoder(both, 8)
    tokens, _ = long.row("red cat " * 50, " sees")
    assert len(tokens) == 8 and tokens[0] == both.bos_token_id
    assert long.prompt("red cat " * 50, 6) == [both.bos_token_id, *both("red cat " * 50)["input_ids"][-6:-1]]


@each(
    ("prompt", "response", "length", "kept"),
    [(4, 3, 10, (4, 3)), (9, 3, 10, (7, 3)), (3, 20, 10, (3, 7)), (20, 20, 10, (5, 5)), (20, 20, 9, (5, 4)), (0, 20, 6, (0, 6))],
)  # fmt: skip
def test_what_is_too_long_keeps_the_begin_of_the_response_and_the_end_of_the_prompt(
    prompt: int, response: int, length: int, kept: tuple[int, int]
) -> None:
    tokens, unlabelled = cut(np.concatenate([np.arange(prompt), 100 + np.arange(response)]), prompt, length)
    assert (unlabelled, len(tokens) - unlabelled) == kept
    assert tokens.tolist() == [*range(prompt - kept[0], prompt), *range(100, 100 + kept[1])]


def test_source_and_target_are_cut_to_their_own_lengths_and_keep_their_end(
    tokenizer: PreTrainedTokenizerFast, pair_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    end = pair_tokenizer.eos_token_id
    source, target = PairEncoder(pair_tokenizer, 9, 5).row("the old fox sees " * 20, "你好，世界。" * 20)
    assert (len(source), len(target)) == (9, 5)
    assert source[-1] == target[-1] == end
    assert source[:8].tolist() == pair_tokenizer("the old fox sees " * 20)["input_ids"][:8]
    # A target gets an end where its tokenizer gives none.
    encoder = PairEncoder(tokenizer, 9, 5)
    assert encoder.row("fox", "cat")[1].tolist() == [*tokenizer("cat")["input_ids"], tokenizer.eos_token_id]
    long = encoder.row("fox", "the old fox sees 3 stones and more")[1]
    assert len(long) == 5 and long[-1] == tokenizer.eos_token_id
    # The cut is not saved with the tokenizer.
    pair_tokenizer.save_pretrained(tmp_path / "saved")
    assert Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json")).truncation is None


@each(
    ("multiple", "limits", "lengths"),
    [(1, (None, None), (3, 2)), (4, (None, None), (4, 4)), (4, (3, 2), (3, 2)), (4, (6, 4), (4, 4))],
)
def test_a_batch_is_padded_to_a_multiple_within_the_limits(
    multiple: int, limits: tuple[int | None, int | None], lengths: tuple[int, int]
) -> None:
    rows = [(np.array([5, 6, 7]), np.array([8])), (np.array([5]), np.array([8, 9]))]
    batch = PaddedBatch(2, multiple, *limits)(rows)
    inputs, targets = lengths
    assert batch["input_ids"].tolist() == [[5, 6, 7, 2][:inputs], [5, 2, 2, 2][:inputs]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0][:inputs], [1, 0, 0, 0][:inputs]]
    assert batch["labels"].tolist() == [[8, *[IGNORED] * 3][:targets], [8, 9, IGNORED, IGNORED][:targets]]


def test_a_text_alone_is_labelled_to_its_end_and_a_huge_row_is_cut_before_it_is_read(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokens, labels = CausalEncoder(tokenizer, 64).row("the old fox", None)
    assert tokens.tolist() == [*tokenizer("the old fox")["input_ids"], tokenizer.eos_token_id]
    assert labels.tolist() == [*tokens[1:].tolist(), IGNORED]
    encoder = CausalEncoder(tokenizer, 16)
    huge = "the red fox sees 3 stones " * 100_000
    assert encoder.row(huge, None)[0].tolist() == tokenizer(huge[:2000])["input_ids"][:16]
    tokens, labels = encoder.row(huge, "cat")
    assert len(tokens) == 16 and (labels != IGNORED).sum() == len(tokenizer("cat")["input_ids"]) + 1


@each(("model", "sizes"), [("gpt2-tiny", (24, 0)), ("t5-chat-tiny", (24, 16)), ("t5-chat-tiny", (8, 20))])
def test_lengths_are_those_of_the_rows(
    model: str, sizes: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the tokenizer cut other texts: it must not remember that."""
    config = text_config(model, batch__sequence_length=sizes[0])
    rows, task = load_text_rows(config, tmp_path), config.task
    tokenizer = build_tokenizer(config, tmp_path, rows)
    encoder: Any = CausalEncoder(tokenizer, sizes[0]) if task == "causal-lm" else PairEncoder(tokenizer, *sizes)
    made = Rows(rows.train, partial(text_row, rows, encoder.row))
    in_memory = row_lengths(rows, task, encoder.lengths, 24, rows.train)
    assert in_memory.tolist() == [max(map(len, made[(0, row)])) for row in range(len(made))]
    assert len({*in_memory.tolist()}) >= 4
    # A run that streams is the one in memory, bit for bit; where counting takes long, bytes stand for tokens.
    streamed: Any = load_text_rows(text_config(model, data__streaming=True), tmp_path)
    assert np.array_equal(row_lengths(streamed, task, encoder.lengths, 24, streamed.train), in_memory)
    monkeypatch.setattr("trainwiz.core.training.tokens.MOST_BYTES", 1000)
    assert np.array_equal(row_lengths(rows, task, encoder.lengths, 24, rows.train), rows.lengths_of(task, rows.train))


def test_texts_follow_each_other_with_their_ends_and_prompts_stay_unlabelled(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    def numbers(*texts: str) -> list[int]:
        return [token for text in texts for token in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]]

    read, labelled = join_tokens(text_rows(SENTENCES), ALL[:3], CausalEncoder(tokenizer, 8), tokenizer).read(0, 1000)
    assert read.tolist() == numbers(*SENTENCES[:3]) and labelled.all()
    rows = text_rows(["fox", "cat"], ["red", "tall"])
    read, labelled = join_tokens(rows, ALL[:2], CausalEncoder(tokenizer, 8), tokenizer).read(0, 100)
    assert read[labelled].tolist() == numbers("red", "tall")
    assert read[~labelled].tolist() == [*tokenizer("fox")["input_ids"], *tokenizer("cat")["input_ids"]]


def test_of_long_texts_a_few_are_in_memory(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 books were read, and made into tokens, at once."""
    rows = text_rows(SENTENCES, [text[::-1] for text in SENTENCES])
    whole = join_tokens(rows, ALL, CausalEncoder(tokenizer, 8), tokenizer)
    encoder = CausalEncoder(tokenizer, 8)
    at_once: list[int] = []
    encode = encoder.whole
    monkeypatch.setattr(encoder, "whole", lambda texts, other: (at_once.append(len(texts)), encode(texts, other))[1])
    monkeypatch.setattr("trainwiz.core.training.tokens.BATCH_CHARACTERS", 100)
    few = join_tokens(rows, ALL, encoder, tokenizer)
    assert max(at_once) * min(map(len, SENTENCES)) < 200 and sum(at_once) == len(ALL)
    for one, other in zip(whole.read(0, 10_000), few.read(0, 10_000), strict=True):
        assert one.tolist() == other.tolist()


def test_streamed_tokens_are_the_same_and_are_written_once(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    encoder = CausalEncoder(tokenizer, 32)
    sets = []
    for streaming in (False, True):
        rows = load_text_rows(text_config("gpt2-tiny", data__streaming=streaming), tmp_path)
        sets.append([join_tokens(rows, numbers, encoder, tokenizer) for numbers in (rows.train, rows.held_out)])
    for held, streamed in zip(*sets, strict=True):
        assert len(held) == len(streamed) > 100
        for one, other in zip(held.read(0, len(held)), streamed.read(0, len(held)), strict=True):
            assert (one == other).all()
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("tokens-*")}
    assert len(files) == 2
    rows = load_text_rows(text_config("gpt2-tiny", data__streaming=True), tmp_path)
    again = join_tokens(rows, rows.train, encoder, tokenizer)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("tokens-*")} == files
    spawned = pickle.loads(pickle.dumps(again))
    assert len(pickle.dumps(again)) < 1000 and (spawned.read(5, 9)[0] == again.read(5, 9)[0]).all()
    other_tokenizer = small_tokenizer(tmp_path / "other", vocabulary=280)
    join_tokens(rows, rows.train, CausalEncoder(other_tokenizer, 32), other_tokenizer)
    assert len(list(tmp_path.rglob("tokens-*"))) == 3


def test_tokens_that_cannot_be_kept_are_one_sentence(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    rows = load_text_rows(text_config("gpt2-tiny", data__streaming=True), tmp_path)
    # A folder in the place of the lock: refused for every user, root too.
    (rows.folder / ".tokens.lock").mkdir()
    with pytest.raises(CannotRunError, match=r"cannot be stored in .*data\.streaming: false"):
        join_tokens(rows, rows.train, CausalEncoder(tokenizer, 8), tokenizer)


def test_blocks_are_full_and_the_rest_is_dropped() -> None:
    made = blocks(TokenStore(np.arange(10, 33, dtype=np.int32)), 5)
    assert len(made) == 4
    tokens, labels = made[(0, 3)]
    assert tokens.tolist() == [25, 26, 27, 28, 29] and labels.tolist() == [26, 27, 28, 29, IGNORED]
    assert made[(7, 3)][0].tolist() == tokens.tolist()
    assert (made[(0, -1)][1] == IGNORED).all()
    # Of less than one sequence a short one is made, where there is something to predict.
    assert [len(blocks(TokenStore(np.arange(count, dtype=np.int32)), 5)) for count in (1, 2, 4)] == [0, 1, 1]
    # Token 0 is a token with or without a label.
    tokens, labelled = TokenStore(np.array([0, -1, 5, -6], np.int32)).read(0, 4)
    assert tokens.tolist() == [0, 0, 5, 5] and labelled.tolist() == [True, False, True, False]


# Which tokenizer a run gets: the named one, the model's own, one from the data; and what is said when none works.

T5 = text_config("t5-chat-tiny").model.architecture or {}
ROWS = text_rows(SENTENCES, CHINESE * 40, held_out=3)


def test_a_model_from_scratch_gets_one_from_its_rows_that_is_found_again(tmp_path: Path) -> None:
    config = text_config("t5-chat-tiny", model__architecture={**T5, "vocab_size": 300})
    made = build_tokenizer(config, tmp_path, ROWS)
    assert len(made) <= 300 and made.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    for text in ("the old fox", CHINESE[0], "Ünïcödé \t emoji 🙂"):
        tokens = made(text)["input_ids"]
        assert tokens[-1] == made.eos_token_id and made.decode(tokens, skip_special_tokens=True) == text
    again = build_tokenizer(config, tmp_path, text_rows(["completely different rows"] * 50))
    assert again.get_vocab() == made.get_vocab()
    build_tokenizer(config, tmp_path / "elsewhere", ROWS)
    first, same = (place / "tokenizer" / "tokenizer.json" for place in (tmp_path, tmp_path / "elsewhere"))
    assert first.read_bytes() == same.read_bytes(), "the same rows, the same"


OF_EACH_KIND = {
    (spec.architecture or {})["model_type"]: name for name, spec in load_models().items() if spec.task != "masked-lm"
}


@each("name", sorted(OF_EACH_KIND.values()))
def test_beside_its_model_it_loads_as_the_one_that_trained(name: str, tmp_path: Path) -> None:
    """Numbers, empty lines and accents: where families of models cut text in different ways."""
    config = text_config(name)
    texts = ["in 1234 and 1235 they're\n\n\nfine.\n\n  Yes!\n\n", "cafe\u0301 \u00e9t\u00e9", "你好。\n\n12345，"]
    made = build_tokenizer(config, tmp_path, text_rows(texts * 20))
    made.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": config.model.architecture["model_type"]}))
    loaded = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert [loaded(text)["input_ids"] for text in texts] == [made(text)["input_ids"] for text in texts]
    assert (loaded.eos_token_id, loaded.pad_token_id) == (made.eos_token_id, made.pad_token_id)


def test_those_that_start_together_share_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lock is on the open file, so threads wait for each other as processes do."""
    config = text_config("gpt2-tiny")
    with ThreadPoolExecutor(3) as pool:
        sizes = set(pool.map(lambda _: len(build_tokenizer(config, tmp_path, ROWS)), range(3)))
    assert len(sizes) == 1
    assert capsys.readouterr().out.count("trained on the training rows") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tokenizer.lock", "tokenizer"]


def test_the_models_own_comes_before_one_from_the_data(tmp_path: Path) -> None:
    model = tmp_path / "model"
    small_tokenizer(tmp_path, vocabulary=350).save_pretrained(model)
    (model / "config.json").write_text(json.dumps({**(text_config("gpt2-tiny").model.architecture or {})}))
    config = text_config("gpt2-tiny", model__name=str(model))
    run = tmp_path / "run"
    run.mkdir()
    assert len(build_tokenizer(config, run, ROWS)) <= 350
    assert not (run / "tokenizer").exists()
    config.model.tokenizer = "train"
    assert len(build_tokenizer(config, run, text_rows(SENTENCES * 3))) != 350
    assert (run / "tokenizer").is_dir()


@each(("model", "changes", "code", "words"), [
    ("gpt2-tiny", {"model__tokenizer": "not-here"}, "missing_tokenizer", "of not-here cannot be loaded"),
    ("gpt2-tiny", {"model__tokenizer": "someone/not-here"}, "missing_tokenizer", "of someone/not-here cannot be loaded"),
    ("gpt2-medium", {"model__init": "pretrained"}, "missing_tokenizer", "of openai-community/gpt2-medium cannot be loaded"),
    ("gpt2-tiny", {"model__architecture": {**T5, "vocab_size": 200}}, "vocabulary_too_small", "of 200 entries: it needs at least 261"),
])  # fmt: skip
def test_a_tokenizer_that_cannot_be_had_is_one_sentence(
    model: str, changes: dict[str, Any], code: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        build_tokenizer(text_config(model, **changes), tmp_path, ROWS)
    (finding,) = error.value.findings
    assert finding.code == code and words in finding.message and "\n" not in finding.message
    assert not (tmp_path / "tokenizer").exists()


def test_a_tokenizer_without_padding_pads_with_its_end_and_one_without_end_is_refused(tmp_path: Path) -> None:
    vocabulary = {"<end>": 0, "fox": 1}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="fox"))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>").save_pretrained(tmp_path / "with")
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path / "without")
    run = tmp_path / "run"
    run.mkdir()
    ready = build_tokenizer(text_config("gpt2-tiny", model__tokenizer="../with"), run, ROWS)
    assert ready.pad_token_id == ready.eos_token_id == 0
    with pytest.raises(UsageError, match="no EOS token"):
        build_tokenizer(text_config("gpt2-tiny", model__tokenizer="../without"), run, ROWS)


def test_a_multilingual_tokenizer_is_told_its_languages(tmp_path: Path) -> None:
    vocabulary = {word: number for number, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", "▁", "a", "b"])}
    nllb = NllbTokenizer(vocab=vocabulary, merges=[], additional_special_tokens=["zho_Hans", "eng_Latn"])  # type: ignore[no-untyped-call]
    nllb.save_pretrained(tmp_path / "nllb")
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "nllb"), NllbTokenizer)
    config = text_config("nllb-tiny", model__tokenizer="../nllb", model__target_language="xxx")
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(UsageError) as error:
        build_tokenizer(config, run, ROWS)
    assert [finding.where for finding in error.value.findings] == ["model.source_language", "model.target_language"]
    config.model.source_language, config.model.target_language = "zho_Hans", "eng_Latn"
    ready = build_tokenizer(config, run, ROWS)
    chinese, english = ready.convert_tokens_to_ids(["zho_Hans", "eng_Latn"])
    assert ready("a")["input_ids"][0] == chinese
    assert ready(text_target="a")["input_ids"][0] == english == forced_first_token(ready)
    assert forced_first_token(small_tokenizer(tmp_path, ends_texts=True)) is None


def test_of_much_text_a_part_is_counted_and_a_row_of_millions_without_a_space_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted as the one word that it is, it took hours."""
    rows = text_rows(["ab" * 1_000_000, "a text"])
    counted = [len(text) for batch in tokenizer_training._texts(rows, "causal-lm") for text in batch]
    assert counted == [tokenizer_training.LONGEST_TEXT, 6]
    monkeypatch.setattr(tokenizer_training, "MOST_BYTES", 500)
    (chosen,) = tokenizer_training._texts(text_rows([f"{number:05d}" for number in range(1000)]), "causal-lm")
    assert chosen == [f"{number:05d}" for number in range(0, 1000, 10)]
