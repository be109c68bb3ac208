"""Texts as tokens and labels: what is labelled, what is cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from trainwiz.core.training.batches import IGNORED, PaddedBatch
from trainwiz.core.training.tokens import CausalEncoder, PairEncoder, cut
from transformers import PreTrainedTokenizerFast

from tests.core.training.tokenizers_for_tests import small_tokenizer
from tests.each import each


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return small_tokenizer(tmp_path_factory.mktemp("t"))


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


def test_a_tokenizer_that_begins_and_ends_texts_gives_one_begin_and_one_end(tokenizer: PreTrainedTokenizerFast) -> None:
    from copy import deepcopy

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
    prompt = long.prompt("red cat " * 50, 6)
    assert (
        len(prompt) == 6 and prompt[0] == both.bos_token_id and prompt[1:] == both("red cat " * 50)["input_ids"][-6:-1]
    )


def test_a_cut_prompt_begins_with_the_begin_token_only_where_the_whole_one_did(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    prompt, response = tokenizer("the old fox " * 9)["input_ids"], tokenizer(" sees")["input_ids"]
    tokens, _ = CausalEncoder(tokenizer, 8).row("the old fox " * 9, " sees")
    assert tokens.tolist() == [*prompt, *response, tokenizer.eos_token_id][-8:]
    assert tokens[0] != prompt[0]


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
    pair_tokenizer: PreTrainedTokenizerFast,
) -> None:
    end = pair_tokenizer.eos_token_id
    source, target = PairEncoder(pair_tokenizer, 9, 5).row("the old fox sees " * 20, "你好，世界。" * 20)
    assert (len(source), len(target)) == (9, 5)
    assert source[-1] == target[-1] == end
    assert source[:8].tolist() == pair_tokenizer("the old fox sees " * 20)["input_ids"][:8]


def test_a_target_gets_an_end_where_its_tokenizer_gives_none(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = PairEncoder(tokenizer, 9, 5)
    assert encoder.row("fox", "cat")[1].tolist() == [*tokenizer("cat")["input_ids"], tokenizer.eos_token_id]
    long = encoder.row("fox", "the old fox sees 3 stones and more")[1]
    assert len(long) == 5 and long[-1] == tokenizer.eos_token_id


def test_a_batch_pads_inputs_and_labels_each_to_its_longest() -> None:
    rows = [(np.array([5, 6, 7]), np.array([8])), (np.array([5]), np.array([8, 9]))]
    batch = PaddedBatch(2)(rows)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [5, 2, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[8, IGNORED], [8, 9]]


@pytest.mark.parametrize(("limits", "lengths"), [((None, None), (4, 4)), ((3, 2), (3, 2)), ((6, 4), (4, 4))])
def test_a_batch_is_padded_to_a_multiple_within_the_limits(
    limits: tuple[int | None, int | None], lengths: tuple[int, int]
) -> None:
    rows = [(np.array([5, 6, 7]), np.array([8])), (np.array([5]), np.array([8, 9]))]
    batch = PaddedBatch(2, 4, *limits)(rows)
    inputs, targets = lengths
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, inputs)
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 1] and batch["input_ids"][1, 1:].eq(2).all()
    assert batch["labels"].shape == (2, targets) and batch["labels"].ne(IGNORED).sum() == 3


def test_a_text_alone_is_labelled_from_its_second_token_to_its_end(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens, labels = CausalEncoder(tokenizer, 64).row("the old fox", None)
    assert tokens.tolist() == [*tokenizer("the old fox")["input_ids"], tokenizer.eos_token_id]
    assert labels.tolist() == [*tokens[1:].tolist(), IGNORED]


def test_a_huge_row_is_cut_before_it_is_read(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = CausalEncoder(tokenizer, 16)
    huge = "the red fox sees 3 stones " * 200_000
    assert encoder.row(huge, None)[0].tolist() == tokenizer(huge[:2000])["input_ids"][:16]
    tokens, labels = encoder.row(huge, "cat")
    assert len(tokens) == 16 and (labels != IGNORED).sum() == len(tokenizer("cat")["input_ids"]) + 1


def test_the_cut_is_not_saved_with_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path, ends_texts=True)
    PairEncoder(tokenizer, 6, 4).row("the old fox sees 7 stones", "the red cat sees 8 stones")
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    assert saved.truncation is None and len(saved.encode("the old fox sees 7 stones").ids) > 6
