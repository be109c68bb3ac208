"""Fixtures of the core's tests that the front ends need too."""

from tests.core.supervise.conftest import start  # noqa: F401
from tests.fakes.nvml.fixtures import fake_nvml, fake_nvml_library  # noqa: F401
