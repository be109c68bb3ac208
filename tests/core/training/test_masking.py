"""Masks are a function of (seed, epoch, sample), by the 80/10/10 rule."""

from __future__ import annotations

import numpy as np
import pytest
from trainwiz.core.data.proteins import CLS, EOS, ESM_VOCABULARY, MASK, PAD
from trainwiz.core.training.batches import IGNORED, mask_sequence, sample_generator

from tests.core.training.tokenizers_for_tests import store


def _masked(length: int = 200, seed: int = 1, epoch: int = 0, sample: int = 0) -> tuple[np.ndarray, np.ndarray]:
    letters = (np.arange(length) % 20 + 4).astype(np.uint8)
    return mask_sequence(letters, 0.15, sample_generator(seed, epoch, sample))


def test_the_same_numbers_give_the_same_mask_and_others_another() -> None:
    tokens, labels = _masked()
    again = _masked()
    assert (tokens == again[0]).all() and (labels == again[1]).all()
    for change in ({"seed": 2}, {"epoch": 1}, {"sample": 1}):
        assert (_masked(**change)[1] != labels).any()


def test_shares_of_masked_swapped_and_kept() -> None:
    letters = np.full(1_000_000, 4, dtype=np.uint8)
    tokens, labels = mask_sequence(letters, 0.15, sample_generator(0, 0, 0))
    chosen = labels != IGNORED
    assert chosen.mean() == pytest.approx(0.15, abs=0.002)
    inputs = tokens[chosen]
    assert (inputs == MASK).mean() == pytest.approx(0.8, abs=0.005)
    # One swap in twenty draws the letter that was there.
    assert (inputs == 4).mean() == pytest.approx(0.1 + 0.1 / 20, abs=0.005)
    others = inputs[(inputs != MASK) & (inputs != 4)]
    assert others.min() >= 4 and others.max() <= 23
    assert (tokens[~chosen][1:-1] == 4).all()


def test_masks_do_not_depend_on_workers_or_order() -> None:
    from torch.utils.data import DataLoader
    from trainwiz.core.data.proteins import ProteinStore
    from trainwiz.core.training.batches import EpochSampler, PaddedBatch
    from trainwiz.core.training.tasks import MaskedProteins

    proteins = ProteinStore(store(["MKTAYIAKQR" * 3, "GAVLIMFWP", "STCYNQDEKRH"] * 5), 100)
    data = MaskedProteins(proteins, np.arange(15), 0.15, seed=7)
    sampler = EpochSampler(15, seed=7)

    def labels(epoch: int, workers: int) -> list[list[int]]:
        sampler.start_epoch(epoch)
        loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=workers, collate_fn=PaddedBatch(PAD))
        return [row for batch in loader for row in batch["labels"].tolist()]

    first = labels(3, 0)
    assert labels(3, 2) == first
    assert labels(4, 0) != first
    assert labels(3, 0) == first


def test_the_vocabulary_is_esm2s() -> None:
    assert len(ESM_VOCABULARY) == 33
    assert "".join(ESM_VOCABULARY[4:31]) == "LAGVSERTIDPKQNFYMHWCXBUZO.-"
    assert ESM_VOCABULARY[:4] == ("<cls>", "<pad>", "<eos>", "<unk>")
    assert ESM_VOCABULARY[31:] == ("<null_1>", "<mask>")


def test_built_in_encoding_equals_the_real_tokenizer() -> None:
    import pyarrow as pa
    from trainwiz.core.data.proteins import encode_proteins
    from trainwiz.core.training.weights import esm_tokenizer

    text = "LAGVSERTIDPKQNFYMHWCXBUZO.-J"
    ours = encode_proteins(pa.array([text, text.lower()], pa.large_string()))
    expected = esm_tokenizer()(text, add_special_tokens=False)["input_ids"]
    assert ours.tokens.tolist() == expected * 2


def test_ends_are_special_tokens_and_never_labelled() -> None:
    tokens, labels = _masked(length=1)
    assert (tokens[0], tokens[-1]) == (CLS, EOS)
    assert (labels[0], labels[-1]) == (IGNORED, IGNORED)
    # Even a single letter is labelled: a batch without labels has no loss.
    assert labels[1] == 4
