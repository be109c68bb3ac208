"""Models, rows, losses and numbers without a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError
from trainwiz.core.training.evaluation import StepLoss
from trainwiz.core.training.metrics import StepMeter, json_number
from trainwiz.core.training.model import build_model
from trainwiz.core.training.process import write_failure

from tests.core.training.runs import tiny_config
from tests.each import each


def test_a_model_built_from_a_checkpoint_is_the_same_in_every_tensor(tmp_path: Path) -> None:
    config = tiny_config()
    model = build_model(config, None, Path(), None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path)
    again = build_model(config, tmp_path, Path(), None)
    assert [n for n, p in again.state_dict().items() if not torch.equal(p, model.state_dict()[n])] == []


class Opens:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def test_pretrained_weights_from_a_folder_and_from_a_pickle_that_runs_nothing(tmp_path: Path) -> None:
    model = build_model(tiny_config(), None, Path(), None)
    model.save_pretrained(tmp_path)
    config = tiny_config(model__name=str(tmp_path), model__init="pretrained", model__architecture_overrides={})
    loaded = build_model(config, None, Path(), None)
    assert torch.equal(loaded.lm_head.bias, model.lm_head.bias)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert torch.equal(build_model(config, None, Path(), None).lm_head.bias, model.lm_head.bias)
    ran = tmp_path / "ran"
    torch.save({**model.state_dict(), "more": Opens(ran)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match="hold more than tensors"):
        build_model(config, None, Path(), None)
    assert not ran.exists()


def test_code_that_comes_with_a_model_is_not_run_and_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "of-its-own",
                "architectures": ["OwnForMaskedLM"],
                "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForMaskedLM": "own.OwnForMaskedLM"},
            }
        )
    )
    ran = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(ran)!r}, 'w').close()")
    config = tiny_config(model__name=str(tmp_path), model__init="pretrained", model__architecture_overrides={})
    started = time.monotonic()
    with pytest.raises(UsageError, match="cannot be loaded"):
        build_model(config, None, Path(), None)
    assert time.monotonic() - started < 10
    assert not ran.exists()
    config.model.trust_remote_code = True
    with pytest.raises(Exception, match="OwnConfig"):
        build_model(config, None, Path(), None)
    assert ran.exists()


def test_other_models_and_alphabets_are_refused(tmp_path: Path) -> None:
    config = tiny_config()
    config.model.architecture = {"model_type": "bert", "vocab_size": 33}
    with pytest.raises(UsageError, match="'bert'"):
        build_model(config, None, Path(), None)
    config.model.architecture = {**tiny_config().model.architecture, "vocab_size": 40}  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="vocab_size is 40, not 33"):
        build_model(config, None, Path(), None)


def test_rows_are_cut_and_split(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["M" * 5, "M" * 500] * 20))
    config = tiny_config(data__sources=[{"name": str(path)}], data__validation_rows=10)
    rows = load_text_rows(config, tmp_path)
    assert set(rows.texts.lengths.tolist()) == {5, 46}
    assert (len(rows.train), len(rows.held_out)) == (30, 10)
    assert not set(rows.train.tolist()) & set(rows.held_out.tolist())


@each("unlabelled", [0.0, 0.2, 0.8, 1.0])
@each("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_over_labelled_tokens(unlabelled: float, smoothing: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 20, 33, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 33, (3, 20))
    labels[torch.rand(3, 20) < unlabelled] = -100
    expected = torch.nn.functional.cross_entropy(
        logits.float().view(-1, 33), labels.view(-1), reduction="sum", label_smoothing=smoothing
    )
    ours = StepLoss(smoothing, None).summed(logits, labels)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-5)
    gradients = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (ours, expected)]
    assert torch.allclose(*gradients, atol=1e-5)


def test_a_window_counts_when_its_step_is_done() -> None:
    meter = StepMeter()
    batch = {"input_ids": torch.zeros(2, 5), "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])}
    list(meter.timed(iter([batch, batch])))
    assert meter.counts() == {"tokens": 0, "real_tokens": 0}
    meter.step_done()
    assert meter.counts() == {"tokens": 20, "real_tokens": 14}
    pace = meter.read_pace()
    assert pace.steps == 1 and 0 <= pace.data_wait_s <= pace.step_s


def test_failure_file_names_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    try:
        raise MemoryError("no room for 7 GiB")
    except MemoryError as error:
        write_failure(tmp_path, error)
    failure = json.loads((tmp_path / "failure-rank3.json").read_text())
    assert (failure["type"], failure["message"], failure["rank"]) == ("MemoryError", "no room for 7 GiB", 3)
    assert "raise MemoryError" in failure["traceback"] and failure["time_s"] > 1e9


def test_numbers_that_json_does_not_have() -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1.5, 3, None, torch.tensor(2.0)]
    assert [json_number(value) for value in values] == ["NaN", "Infinity", "-Infinity", 1.5, 3, None, 2.0]
