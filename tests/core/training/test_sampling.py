"""The order of rows, and evaluation rows that count once."""

from __future__ import annotations

from trainwiz.core.training.sampling import FILLER, EpochSampler, EvaluationSampler


def test_every_epoch_sees_every_row_in_its_own_order() -> None:
    sampler = EpochSampler(50, seed=1)
    orders = []
    for epoch in (0, 1):
        sampler.start_epoch(epoch)
        keys = list(sampler)
        assert {key[0] for key in keys} == {epoch}
        orders.append([key[1] for key in keys])
        assert sorted(orders[-1]) == list(range(50))
    assert orders[0] != orders[1]
    sampler.start_epoch(0)
    assert [row for _, row in sampler] == orders[0]


def test_overfitting_repeats_the_first_epoch() -> None:
    sampler = EpochSampler(8, seed=1, repeat_first_epoch=True)
    first = list(sampler)
    sampler.start_epoch(5)
    assert list(sampler) == first


def test_evaluation_is_filled_up_to_whole_batches_of_all_processes() -> None:
    keys = [row for _, row in EvaluationSampler(13, 8)]
    assert keys == [*range(13), FILLER, FILLER, FILLER]
    assert len(EvaluationSampler(16, 8)) == 16
