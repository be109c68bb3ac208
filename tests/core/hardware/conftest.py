"""The fake driver for the tests of this folder."""

from __future__ import annotations

from tests.fakes.nvml.fixtures import fake_nvml, fake_nvml_library  # noqa: F401
