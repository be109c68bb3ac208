"""Against the OpenMP that torch brought, in processes of their own: how long threads wait is read once."""

import os
import subprocess
import sys

import pytest
import torch
from trainwiz.core.run.openmp import AWAKE, POLICY, SPINS
from trainwiz.core.training.thread_rest import openmp_libraries

pytestmark = pytest.mark.skipif(
    not openmp_libraries(), reason=f"torch {torch.__version__} has another OpenMP than GNU's"
)

REGIONS = """
import os, threading, time
import torch
from trainwiz.core.training.thread_rest import ThreadRest

values = torch.ones(1 << 17)

def waiting_s():
    "Processor time of threads that have nothing to do, over fifty operations with a moment between."
    before = time.process_time()
    for _ in range(50):
        values.sum()
        time.sleep(0.01)
    return time.process_time() - before

def threads():
    return len(os.listdir("/proc/self/task"))

waiting_s()
first = threads()
awake, rest = waiting_s(), ThreadRest()
rest.hold()
rest.hold()
assert rest.held
more, asleep, sums = threads() - first, waiting_s(), values.sum().item()
rest.release()
rest.release()
again = waiting_s()
print(awake, asleep, again, more, threads() - first, sums == (1 << 17))
"""


def test_threads_wait_asleep_while_it_is_held() -> None:
    environment = {**os.environ, POLICY: "PASSIVE", SPINS: AWAKE, "OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", REGIONS], env=environment, capture_output=True, text=True, check=True)
    awake, asleep, again, more, left, same = done.stdout.split()
    assert float(asleep) < 0.5 * min(float(awake), float(again))
    assert int(more) > len(os.sched_getaffinity(0)), "more threads than cores, which is what makes them sleep"
    assert (int(left), same) == (0, "True")


REFUSED = """
import os, threading
import torch
from trainwiz.core.training.thread_rest import ThreadRest

start, left = threading.Thread.start, [3]

def limited(thread):
    left[0] -= 1
    if left[0] < 0:
        raise RuntimeError("can't start new thread")
    start(thread)

before = len(os.listdir("/proc/self/task"))
threading.Thread.start = limited
rest = ThreadRest()
rest.hold()
print(rest.held, len(os.listdir("/proc/self/task")) - before)
rest.release()
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_where_the_system_refuses_threads_openmp_is_not_asked_for_any() -> None:
    """It would end the process."""
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1", "0"]
