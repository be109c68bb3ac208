"""The collector rests while modules are imported, and only then."""

import gc

from trainwiz.core.processes import heavy_imports


def test_it_rests_and_works_again() -> None:
    frozen = gc.get_freeze_count()
    with heavy_imports():
        assert not gc.isenabled()
        stays = [[number] for number in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(stays)
