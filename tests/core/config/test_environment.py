"""engine.environment: which variables a run may carry, set one by one or as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import is_settable
from trainwiz.core.errors import UsageError
from trainwiz.core.profile.read import read_profile_file

from tests.each import each


def test_one_variable_from_the_command_line_is_text() -> None:
    may = ("NCCL_P2P_DISABLE", "NCCL_DEBUG", "HF_HUB_OFFLINE", "NCCL_TOPO_FILE", "TOKENIZERS_PARALLELISM")
    config = build_config(None, {f"engine.environment.{name}": "1e3" for name in may})
    assert config.engine.environment == dict.fromkeys(may, "1e3")
    assert config.origin("engine.environment.NCCL_DEBUG").origin == "you"
    assert is_settable("engine.environment.NCCL_DEBUG") and not is_settable("engine.environment.A.B")


@each(("name", "why"), [
    ("PATH", "a run cannot set PATH"), ("LD_PRELOAD", "code may be loaded from"),
    ("PYTHONPATH", "a run cannot set PYTHONPATH"), ("NCCL_NET_PLUGIN", "code may be loaded from"),
    ("NCCL_CONF_FILE", "code may be loaded from"), ("CUDA_INJECTION64_PATH", "code may be loaded from"),
    ("TORCH_EXTENSIONS_DIR", "code may be loaded from"),
    ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "code may be loaded from"),
    ("TRITON_CACHE_MANAGER", "code may be loaded from"), ("HF_MODULES_CACHE", "code may be loaded from"),
    ("NCCL_DEBUG_FILE", "a file that would be overwritten"), ("CUBLAS_LOGDEST_DBG", "a file that would be overwritten"),
    ("HF_ENDPOINT", "which host is contacted; export"), ("HF_TOKEN", "could read it"), ("WANDB_API_KEY", "could read it"),
    ("CUDA_VISIBLE_DEVICES", "engine.gpus"), ("OMP_NUM_THREADS", "engine.cpu_threads"),
    ("NCCL DEBUG", "not a valid environment variable name"), ("NCCL_X=1;touch", "not a valid environment variable name"),
    ("$(NCCL_X)", "not a valid environment variable name"), ("1NCCL", "not a valid environment variable name"),
])  # fmt: skip
def test_variables_that_a_run_may_not_set(name: str, why: str) -> None:
    with pytest.raises(UsageError) as refusal:
        build_config(None, {f"engine.environment.{name}": "hush-hush"})
    [finding] = refusal.value.findings
    assert why in finding.message and finding.where == f"engine.environment.{name}"
    assert "hush-hush" not in finding.message


@each("value", ["a\nexport PATH=x", "a\0b", "\x1b[2J", "x" * 5000])
def test_values_are_one_printable_line(value: str) -> None:
    with pytest.raises(UsageError):
        build_config(None, {"engine.environment.NCCL_DEBUG": value})
    # A run.yaml that was changed by hand is checked too.
    with pytest.raises(ValueError, match="NCCL_DEBUG"):
        RunConfig.model_validate({"engine": {"environment": {"NCCL_DEBUG": value}}})


def test_a_profile_names_line_and_variable(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "description: x\nvalues:\n  engine:\n    environment:\n      NCCL_P2P_DISABLE: 1\n      LD_PRELOAD: /x.so\n"
        "      NCCL_DEBUG: true\nreasons:\n  engine:\n    environment:\n      NCCL_P2P_DISABLE: no NVLink\n"
    )
    with pytest.raises(UsageError) as refusal:
        read_profile_file(path, "user")
    assert [finding.where for finding in refusal.value.findings] == [f"{path}:6", f"{path}:7"]
    path.write_text(path.read_text().replace("      LD_PRELOAD: /x.so\n      NCCL_DEBUG: true\n", ""))
    file = read_profile_file(path, "user")
    assert file.values == {"engine.environment.NCCL_P2P_DISABLE": "1"}
    assert file.reasons == {"engine.environment.NCCL_P2P_DISABLE": "no NVLink"}
