"""Profile + overrides -> RunConfig: who wins, what yields, and every mistake named at once."""

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import is_settable
from trainwiz.core.config.modes import OVERFIT_STEPS, apply_mode
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.errors import UsageError
from trainwiz.core.plan.gather import gather_config
from trainwiz.core.plan.words import mode_words
from trainwiz.core.profile.store import list_profiles, load_profile

from tests.each import each


def mistakes(overrides: dict[str, Any], profile: str | None = None) -> list[str]:
    with pytest.raises(UsageError) as caught:
        build_config(load_profile(profile) if profile else None, overrides)
    return [finding.message for finding in caught.value.findings]


@each(("key", "text", "value"), [
    ("training.learning_rate", "4e-4", 4e-4), ("training.learning_rate", "1e-3", 1e-3),
    ("training.max_steps", "100", 100), ("engine.checkpointing", "true", True), ("engine.checkpointing", "no", False),
    ("engine.precision", "null", None), ("engine.precision", '"fp32"', "fp32"), ("batch.micro_batch_size", "null", None),
    ("model.name", "123", "123"), ("data.sources.0.text_column", "'1'", "1"), ("model.name", "true", "true"), ("model.name", "null", "null"), ("engine.gpus", "0,1", ["0", "1"]),
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
    wrong: dict[str, tuple[Any, str]] = {
        "engine.precison": ("fp16", "is not a setting. Did you mean engine.precision or engine.base_precision?"),
        "learning_rate": ("1", "training.learning_rate"),
        "engine.precision": ("fp17", "must be one of fp32, tf32, fp16, bf16, bf16-true. Did you mean fp16?"),
        "batch.micro_batch_size": ("0", "invalid value '0'; must be at least 1."),
        "training.learning_rate": ("nan", "invalid value 'nan'; must be a finite number."),
        "training.epochs": ("ten", "invalid value 'ten'; must be a number."),
        "data.sources.7.name": ("x", "invalid value 'x'; this entry does not exist."),
        "engine.strategy": (5, "must be"),
        "data.sources.0.text_column": ([1], "invalid value [1]; must be text."),
        "data.sources.0.chat_columns": (
            {"to": "x"},
            ".to: invalid value 'to'; must be one of context, system, history, tools.",
        ),
        "logging.report_to": ([[]], "must be"),
        # Bytes that are no text, from a header in latin-1 or the name of a file: no run.yaml could hold them.
        "data.sources.0.target_column": ("caf\udce9", "must be text"),
        "model.architecture_overrides": ({"a": "\udce9"}, "must be text"),
    }
    found = mistakes({key: value for key, (value, _) in wrong.items()})
    assert len(found) == len(wrong)
    for key, (_, words) in wrong.items():
        assert any(key in message and words in message for message in found), key
    above = mistakes({"training.learning_rate": 1e-5, "training.final_learning_rate": 1e-4})
    assert "above the peak" in above[0]


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


# engine.environment: which variables a run may carry, set one by one or as a whole.


def test_one_variable_from_the_command_line_is_text() -> None:
    may = ("NCCL_P2P_DISABLE", "NCCL_DEBUG", "HF_HUB_OFFLINE", "NCCL_TOPO_FILE", "TOKENIZERS_PARALLELISM")
    config = build_config(None, {f"engine.environment.{name}": "1e3" for name in may})
    assert config.engine.environment == dict.fromkeys(may, "1e3")
    assert config.origin("engine.environment.NCCL_DEBUG").origin == "you"
    assert is_settable("engine.environment.NCCL_DEBUG") and not is_settable("engine.environment.A.B")


UNSAFE = "a secret or name code to load, a file to overwrite or a host"


@each(("name", "why"), [
    ("PATH", "a run cannot set PATH"), ("PYTHONPATH", "a run cannot set PYTHONPATH"), ("LD_PRELOAD", UNSAFE),
    ("NCCL_NET_PLUGIN", UNSAFE), ("NCCL_CONF_FILE", UNSAFE), ("CUDA_INJECTION64_PATH", UNSAFE), ("TORCH_EXTENSIONS_DIR", UNSAFE),
    ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", UNSAFE), ("TRITON_CACHE_MANAGER", UNSAFE), ("HF_MODULES_CACHE", UNSAFE),
    ("NCCL_DEBUG_FILE", UNSAFE), ("CUBLAS_LOGDEST_DBG", UNSAFE), ("HF_ENDPOINT", UNSAFE), ("HF_TOKEN", UNSAFE),
    ("WANDB_API_KEY", UNSAFE), ("CUDA_VISIBLE_DEVICES", "engine.gpus"), ("OMP_NUM_THREADS", "engine.cpu_threads"),
    *((name, "not a valid environment variable name") for name in ("NCCL DEBUG", "NCCL_X=1;touch", "$(NCCL_X)", "1NCCL")),
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


# Smoke, dev run, overfit: what they change, what they leave, and what the user's own values keep.


def in_mode(profile: str, request: PlanRequest, overrides: dict[str, object] | None = None) -> RunConfig:
    return gather_config(replace(request, overrides=overrides or {}), load_profile(profile), online=False)[0]


EVERY = [profile.name for profile in list_profiles()]


@each("profile", EVERY)
def test_smoke_of_every_profile_keeps_what_it_is_about(profile: str) -> None:
    """Task, adapters and engine stay; model, data and sizes are small, offline and of the same kind."""
    before = build_config(load_profile(profile), {})
    config = in_mode(profile, PlanRequest(mode="smoke"))
    for key in ("task", "peft", "engine.strategy", "engine.offload", "engine.checkpointing", "engine.optimizer",
                "engine.process_timeout_s", "training.schedule", "training.label_smoothing", "evaluation.generate",
                "evaluation.metric", "checkpoint.keep", "checkpoint.keep_best"):  # fmt: skip
        assert config.value(key) == before.value(key), key
    models = load_models()
    small, full = models[config.model.name], models[before.model.name]
    assert config.model.init == "scratch" and config.model.tokenizer is None
    assert small.task == before.task or before.task in CLASSIFIES
    assert small.name == (full.smallest_sibling or full.name) and small.hub_id is None
    assert {source.name for source in config.data.sources} <= set(SAMPLES)
    assert config.data.validation_sources == [] and config.model.source_language is None
    # The rate of the profile suits its own model: 2e-5 moves nothing in a few steps.
    assert config.training.learning_rate >= 3e-3
    share = before.training.final_learning_rate / before.training.learning_rate
    assert config.training.final_learning_rate == pytest.approx(share * config.training.learning_rate)
    assert config.evaluation.beams <= 2 and (config.evaluation.generation_rows or 0) <= 4


def test_smoke_of_other_models() -> None:
    config = in_mode("cpu-demo", PlanRequest(mode="smoke"), {"model.name": "t5-chat-0.2b"})
    assert (config.task, config.model.name, config.data.sources[0].name) == ("seq2seq", "t5-chat-tiny", "sample-pairs")
    config = in_mode("2080super", PlanRequest(mode="smoke"), {"training.max_steps": 3})
    assert (config.training.max_steps, config.origin("training.max_steps").origin) == (3, "you")
    # Of a model that is not known the smallest of the task; one without a sibling is shallow.
    config = build_config(load_profile("4080s"), {"model.name": "nobody/nothing"})
    assert apply_mode(config, PlanRequest(mode="smoke"), None).model.name == "t5-chat-tiny"
    model = ModelSpec("mine", {"model_type": "gpt_neox", "num_hidden_layers": 12}, "causal-lm", source="config")
    config = apply_mode(build_config(None, {"model.name": "mine"}), PlanRequest(mode="smoke"), model)
    assert config.model.name == "mine" and config.model.architecture_overrides == {"num_hidden_layers": 2}


def test_dev_run_has_the_real_model_and_data() -> None:
    config = in_mode("2080super", PlanRequest(mode="dev-run", trace_steps=4))
    assert config.model.name == "esm2-650m" and config.data.sources[0].name == "agemagician/uniref50"
    assert config.training.max_steps == 5 and (config.batch.micro_batch_size, config.mode.trace_steps) == (6, 4)
    config = in_mode("4080s", PlanRequest(mode="dev-run"))
    assert config.evaluation.generate and config.evaluation.generation_rows == 16
    plain = build_config(load_profile("2080super"), {})
    assert apply_mode(plain, PlanRequest(), load_models()["esm2-650m"]) is plain


def test_overfit() -> None:
    modes = (("overfit", 10, ["--overfit", "10"]), ("benchmark", None, ["--benchmark", "20"]), ("train", None, []))
    assert all(mode_words(PlanRequest(mode=mode, overfit_batches=n)) == words for mode, n, words in modes)  # type: ignore[arg-type]
    config = in_mode("cpu-demo", PlanRequest(mode="overfit", overfit_batches=10))
    assert (config.mode.overfit_batches, config.mode.kind, config.batch.micro_batch_size) == (10, "overfit", 8)
    assert in_mode("2080super", PlanRequest(mode="overfit", overfit_batches=1)).batch.micro_batch_size == 6
    assert config.data.validation_rows == 0 and config.training.max_steps == OVERFIT_STEPS
    other = in_mode("3x3080-20g", PlanRequest(mode="overfit", overfit_batches=2))
    assert not (other.evaluation.generate or other.checkpoint.keep_best or other.evaluation.every_epoch)
    assert other.data.validation_sources == [] and other.training.label_smoothing == 0
    assert config.origin("training.weight_decay").reason.startswith("overfitting a few batches")
