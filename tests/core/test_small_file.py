"""What is read whole: not what never ends, and not what fills the memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trainwiz.core.catalog.config_file import read_config
from trainwiz.core.config import RunConfig
from trainwiz.core.config.yaml_text import read_yaml
from trainwiz.core.errors import UsageError
from trainwiz.core.export.deepspeed_file import deepspeed_file_findings
from trainwiz.core.small_file import MOST_BYTES, read_small


@pytest.fixture(params=["pipe", "device", "huge"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "device":
        return Path("/dev/zero")
    path = tmp_path / "config.json"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    return path


REASON = "it is no regular file|it has more than"


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text\r\n")
    assert read_small(tmp_path / "a") == b"text\r\n"


def test_a_folder_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        read_small(tmp_path)


def test_a_name_that_no_file_has() -> None:
    with pytest.raises(OSError, match="it is no regular file"):
        read_small(Path("a\0b"))


def test_a_profile(endless: Path) -> None:
    with pytest.raises(UsageError, match=REASON):
        read_yaml(endless)


def test_the_config_of_a_model(endless: Path) -> None:
    spec, findings = read_config(endless, "mine", "config")
    assert spec is None
    assert findings[0].message.startswith(f"{endless} cannot be read: it ")


def test_a_deepspeed_file(endless: Path) -> None:
    config = RunConfig.model_validate({"engine": {"deepspeed_file": str(endless)}})
    assert "cannot be read: it " in deepspeed_file_findings(config)[0].message
