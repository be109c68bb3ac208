"""The fixtures of the fake driver; import both names into the conftest.py of the folder that uses them."""

from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml, build_library


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the built libnvidia-ml.so.1."""
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(fake_nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """A driver of this test's own, without cards until `write` gives it some."""
    fake = FakeNvml(fake_nvml_library, tmp_path / "gpus.txt")
    fake.write()
    return fake


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """The same, loaded in this process."""
    fake_nvml.load_here(monkeypatch)
    return fake_nvml
