import os
import subprocess
import sys

import pytest
from trainwiz.core.processes import WAITING, wait_briefly


def test_what_was_chosen_stays() -> None:
    policy, spins = {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}
    for environment in (policy, spins):
        wait_briefly(environment)
    assert policy == {"OMP_WAIT_POLICY": "ACTIVE"}
    assert spins == {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "7"}


@pytest.mark.all
@pytest.mark.skipif(sys.platform != "linux", reason="torch comes with GNU's OpenMP on Linux only")
def test_the_openmp_of_torch_takes_both() -> None:
    code = (
        "import os; from trainwiz.core.processes import wait_briefly; wait_briefly(os.environ);"
        "import torch; print(torch.__config__.parallel_info())"
    )
    clean = {name: value for name, value in os.environ.items() if name not in WAITING}
    environment = clean | {"OMP_DISPLAY_ENV": "VERBOSE"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if "OpenMP not found" in done.stdout or "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("this torch has another OpenMP than GNU's")
    assert f"GOMP_SPINCOUNT = '{WAITING['GOMP_SPINCOUNT']}'" in done.stderr
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
