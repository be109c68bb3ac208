"""Fixtures for all tests. Tests never need a network, a GPU or the shared data folder to be green."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import site
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site import with_site

# Started in the background of a script, the suite inherits an ignored interrupt, and so would every command it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Started by nohup the same of a hang-up; with a handler of its own the suite goes on, and its commands have the default.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Two tests run at once: a second thread of each would only wait for a core, turning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Traces start a process with torch: the tests of tracing ask for them.
os.environ["TRAINWIZ_TIER"] = "analytic"
# Hundreds of commands and trainings start here; without kept bytecode each of them compiles all of trainwiz anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Whatever the developer's locale: tests compare English texts, and those of the languages say which one.
os.environ["TRAINWIZ_LANG"] = "en"
REPOSITORY = Path(__file__).resolve().parent.parent
# What tests do inside the processes of a run (failures on purpose, a clock that jumps) comes in by this folder.
os.environ["PYTHONPATH"] = with_site(os.environ)
# What DeepSpeed compiles takes more than a minute: kept for the next test run.
os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(REPOSITORY / ".cache" / "torch_extensions"))


def user_folders(home: Path) -> dict[str, str]:
    """The variables that make `home` a user's home folder, with all that a user keeps in it."""
    kinds = ("CONFIG", "CACHE", "STATE", "DATA")
    return {"HOME": str(home), **{f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in kinds}}


# What was installed for the user alone is still found from there.
os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())
# Before any module of the tests is read: profiles are listed as cases while they are collected.
_COLLECTION_HOME = tempfile.TemporaryDirectory(prefix="trainwiz-tests-", ignore_cleanup_errors=True)
os.environ.update(user_folders(Path(_COLLECTION_HOME.name)))
# The same where the user has said it otherwise.
for _variable in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE", "HF_TOKEN", "HF_TOKEN_PATH"):
    os.environ.pop(_variable, None)
COSTLY = {
    "tests.test_wheel": "installed",
    "tests.engines.test_runs": "start",
    "tests.core.tracing.test_tracer": "worker",
    "tests.core.training.test_classes": "bases",
    "tests.core.training.test_real": "run_of",
}
"""Module -> its fixture that installs, trains or starts a process, for seconds."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests that ask for the same costly thing run in one worker, so that it is made once."""
    for item in items:
        module = item.getparent(pytest.Module)
        name = module.obj.__name__ if module is not None else ""
        if COSTLY.get(name) in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(name))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Python's garbage collector leaves the tests alone, which takes a third off those that start nothing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; the test is skipped where it is absent."""
    path = REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the shared data folder (../shared/data) is not beside this checkout")
    return path


@pytest.fixture(autouse=True, scope="session")
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What killed processes cannot clear up (torchrun's and multiprocessing's folders) goes away with pytest's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))
        yield


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders for tests. pytest's mktemp looks at all folders that it made, and so costs more at every test."""
    place = tmp_path_factory.mktemp("homes")
    return (place / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_interrupts() -> Iterator[None]:
    """A command that is called here may leave its handler behind."""
    yield
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_user_folders(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes what another has left at home."""
    home = next(_homes)
    home.mkdir()
    for variable, value in user_folders(home).items():
        monkeypatch.setenv(variable, value)


@pytest.fixture
def chinese() -> Iterator[None]:
    from trainwiz.core.language import use_language

    use_language("zh")
    yield
    use_language("en")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
