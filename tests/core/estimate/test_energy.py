"""Energy by hand."""

import pytest
from trainwiz.core.estimate.host import power_of
from trainwiz.core.estimate.time import Range


def test_power_and_energy_by_hand() -> None:
    power, idle = (power_of([320.0, 320.0], 1, idle=idle) for idle in (False, True))
    three = power_of([320.0, 320.0], 3, idle=False)
    assert power is not None and idle is not None and three is not None
    assert power.low_w == pytest.approx((320 + 50) / 0.95)
    assert power.high_w == pytest.approx((640 + 200) / 0.85)
    assert power.energy_kwh(Range(3600.0, 7200.0)) == pytest.approx((power.low_w / 1000, 2 * power.high_w / 1000))
    assert idle.low_w < power.low_w and idle.high_w < power.high_w, "waiting cards draw less"
    assert (three.low_w, three.high_w) == pytest.approx((3 * power.low_w, 3 * power.high_w))
    assert [power_of(limits, 1, idle=False) for limits in ([], [None], [300.0, None])] == [None] * 3
