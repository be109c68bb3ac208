"""Energy by hand."""

import pytest
from trainwiz.core.estimate.host import power_of
from trainwiz.core.estimate.time import Range

from tests.each import each


def test_power_and_energy_by_hand() -> None:
    power = power_of([320.0, 320.0], 1, idle=False)
    assert power is not None
    assert power.low_w == pytest.approx((320 + 50) / 0.95)
    assert power.high_w == pytest.approx((640 + 200) / 0.85)
    low, high = power.energy_kwh(Range(3600.0, 7200.0))
    assert low == pytest.approx(power.low_w / 1000)
    assert high == pytest.approx(2 * power.high_w / 1000)


def test_waiting_cards_draw_less_and_more_machines_more() -> None:
    busy, idle = (power_of([300.0], 1, idle=idle) for idle in (False, True))
    several = power_of([300.0], 3, idle=False)
    assert busy is not None and idle is not None and several is not None
    assert idle.low_w < busy.low_w and idle.high_w < busy.high_w
    assert several.high_w == pytest.approx(3 * busy.high_w) and several.low_w == pytest.approx(3 * busy.low_w)


@each("limits", [[], [None], [300.0, None]])
def test_nothing_is_invented(limits: list[float | None]) -> None:
    assert power_of(limits, 1, idle=False) is None
