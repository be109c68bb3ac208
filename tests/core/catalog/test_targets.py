"""LoRA targets against the modules that transformers really builds."""

from __future__ import annotations

from typing import Any

from trainwiz.core.catalog.model_config import known_targets, unknown_targets
from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.families import read_architecture

from tests.core.catalog.test_models import TINY, meta_model
from tests.each import each


def adaptable(model: Any) -> list[str]:
    """Paths of the modules that peft can adapt."""
    import torch
    from transformers.pytorch_utils import Conv1D

    kinds = (torch.nn.Linear, Conv1D)
    return [path for path, module in model.named_modules() if isinstance(module, kinds)]


@each("name", TINY)
def test_known_targets_are_modules_of_the_real_model(name: str) -> None:
    paths, architecture = adaptable(meta_model(name)), load_models()[name].architecture
    targets = known_targets(architecture)
    assert targets
    for target in targets:
        assert any(path.endswith(f".{target}") for path in paths), target
    assert unknown_targets(architecture, targets) == ()
    # As the estimator reads it, the answer is the same.
    planned, _ = read_architecture(architecture)
    assert planned is not None and known_targets(planned) == targets


@each("name", TINY)
def test_every_module_of_the_real_model_is_a_target(name: str) -> None:
    architecture = load_models()[name].architecture
    paths = [path for path in adaptable(meta_model(name)) if "contact_head" not in path]
    assert unknown_targets(architecture, paths) == ()
    assert unknown_targets(architecture, [path.rpartition(".")[2] for path in paths]) == ()


def test_names_of_another_family_are_unknown() -> None:
    qwen, gpt2 = load_models()["qwen2.5-7b"].architecture, load_models()["gpt2-medium"].architecture
    assert unknown_targets(qwen, ["q_proj", "c_attn", "qproj", "lm_head"]) == ("c_attn", "qproj")
    assert unknown_targets(gpt2, ["c_attn", "q_proj"]) == ("q_proj",)
    assert unknown_targets({"model_type": "mamba"}, ["anything"]) == () == known_targets({"model_type": "mamba"})
