"""Profile + overrides -> RunConfig: who wins, what yields, and every mistake named at once."""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.errors import UsageError
from trainwiz.core.profile import load_profile

from tests.each import each


def mistakes(overrides: dict[str, Any], profile: str | None = None) -> list[str]:
    with pytest.raises(UsageError) as caught:
        build_config(load_profile(profile) if profile else None, overrides)
    return [finding.message for finding in caught.value.findings]


def test_profile_then_user_each_with_its_origin() -> None:
    config = build_config(load_profile("2080super"), {"training.max_steps": 100})
    assert (config.name, config.profile) == ("2080super", "2080super")
    assert config.training.max_steps == 100 and config.origin("training.max_steps").origin == "you"
    assert config.engine.precision == "fp16" and config.origin("engine.precision").origin == "profile"
    assert "bf16" in config.origin("engine.precision").reason
    assert config.origin("engine.attention").origin == "solved"


@each(("key", "text", "value"), [
    ("training.learning_rate", "4e-4", 4e-4), ("training.learning_rate", "1e-3", 1e-3),
    ("training.max_steps", "100", 100), ("engine.checkpointing", "true", True), ("engine.checkpointing", "no", False),
    ("engine.precision", "null", None), ("batch.micro_batch_size", "null", None), ("model.name", "123", "123"),
    ("model.name", "true", "true"), ("model.name", "null", "null"), ("engine.gpus", "0,1", ["0", "1"]),
    ("engine.gpus", "[0, 1]", ["0", "1"]), ("engine.gpus", "null", None),
    ("logging.report_to", "tensorboard", ["tensorboard"]), ("data.sources.0.text_column", "sequence", "sequence"),
    ("data.sources.0.text_column", "1", 1), ("data.sources.0.text_column", "no", "no"),
    ("model.architecture_overrides.num_hidden_layers", "3", 3), ("data.validation_rows", "1_000", 1000),
])  # fmt: skip
def test_text_is_read_as_its_field_wants_it(key: str, text: str, value: Any) -> None:
    config = build_config(None, {key: text})
    assert config.value(key) == value
    assert type(config.value(key)) is type(value)
    assert config.origin(key).origin == "you"


def test_all_mistakes_at_once_with_what_would_be_right() -> None:
    found = mistakes(
        {
            "engine.precison": "fp16",
            "learning_rate": "1",
            "engine.precision": "fp17",
            "batch.micro_batch_size": "0",
            "training.learning_rate": "nan",
            "training.epochs": "ten",
            "data.sources.7.name": "x",
            "engine.strategy": 5,
            "data.sources.0.text_column": [1],
            "logging.report_to": [[]],
        }
    )
    assert len(found) == 10
    above = mistakes({"training.learning_rate": 1e-5, "training.final_learning_rate": 1e-4})
    assert "above the peak" in above[0]
    together = "\n".join(found)
    assert "'engine.precison' is not a setting. Did you mean engine.precision or engine.base_precision?" in together
    assert "training.learning_rate" in found[1]
    assert (
        "engine.precision: invalid value 'fp17'; must be one of fp32, tf32, fp16, bf16, bf16-true. Did you mean fp16?"
        in together
    )
    assert "batch.micro_batch_size: invalid value '0'; must be at least 1." in together
    assert "training.learning_rate: invalid value 'nan'; must be a finite number." in together
    assert "training.epochs: invalid value 'ten'; must be a number." in together
    assert "data.sources.0.text_column: invalid value [1]; must be text." in together
    assert "data.sources.7.name: invalid value 'x'; this entry does not exist." in together


@each("key", ["origins", "model.architecture", "forced", "", ".", "engine"])
def test_what_trainwiz_fills_in_cannot_be_set(key: str) -> None:
    assert mistakes({key: "x"})[0].startswith(repr(key))


ACCUMULATION, FINAL = "batch.gradient_accumulation_steps", "training.final_learning_rate"
PEAK = {"training.learning_rate": 1e-4}


@each(("profile", "yours", "expected"), [
    ("2080super", {"batch.micro_batch_size": 4}, {ACCUMULATION: None}),
    ("2080super", {"batch.sequence_length": 256}, {ACCUMULATION: None}),
    ("2080super", {"training.max_steps": 5}, {ACCUMULATION: 651}),
    ("2080super", {"batch.micro_batch_size": 4, ACCUMULATION: 9}, {ACCUMULATION: 9}),
    ("2080super", {"batch.target_samples": 64}, {"batch.target_tokens": None, ACCUMULATION: None}),
    ("cpu-demo", {"training.epochs": 2}, {"training.max_steps": None}),
    ("cpu-demo", {"training.epochs": 2, "training.max_steps": 7}, {"training.max_steps": 7}),
    ("2080super", PEAK, {FINAL: 1e-5}),
    ("2080super", {**PEAK, FINAL: 0}, {FINAL: 0}),
    ("2080super", {"engine.strategy": "single"}, {"engine.offload": "none"}),
    ("3080-10g-guide", {"engine.offload": "optimizer"}, {"engine.strategy": None}),
    # The columns of another source are its own.
    ("2080super", {"data.sources.0.name": "mine.parquet"}, {"data.sources.0.text_column": None}),
])  # fmt: skip
def test_what_yields_to_a_value_of_the_users(profile: str, yours: dict[str, Any], expected: dict[str, Any]) -> None:
    config = build_config(load_profile(profile), yours)
    for key, value in {**yours, **expected}.items():
        assert config.value(key) == (pytest.approx(value) if isinstance(value, float) else value), key
        assert (config.origin(key).origin == "you") is (key in yours)
        assert value is not None or key not in config.origins or config.origins[key].reason


@each("name", ["..", "-rf", "a/b", "a\\b", "a\nb", "a b", "\u202ea", "a\x1b[m", ""])
def test_a_run_name_stays_one_plain_folder_name(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        RunConfig(name=name)


def test_bytes_that_are_no_text_are_refused_wherever_they_stand() -> None:
    """A header of a CSV in latin-1 brings them, or the name of a file: no run.yaml could hold them."""
    assert "must be text" in mistakes({"data.sources.0.text_column": "caf\udce9"})[0]
    assert "must be text" in mistakes({"engine.environment": {"A": "\udce9"}})[0]
