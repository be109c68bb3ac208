"""What accelerate's and DeepSpeed's own estimators say, in a child: both import torch.

Model configs come as JSON on standard input: python -m tools.benchmarks.published.rivals
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.estimate.workload import Workload

REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True)
class ModelSizes:
    """What the two estimators count of a model, or why accelerate builds none."""

    accelerate_bytes: int = 0
    """calculate_maximum_sizes of the empty fp32 model that `accelerate estimate-memory` builds, without a head."""
    accelerate_fp32: int = 0
    """Its "Training using Adam" in the line of float32."""
    accelerate_fp16: int = 0
    """The same in the line of float16."""
    parameters: int = 0
    largest_layer: int = 0
    """Parameters of the largest module, as DeepSpeed's model_to_params counts."""
    problem: str = ""


@dataclass(frozen=True)
class Rivals:
    """Bytes for one row; None where an estimator has no answer."""

    accelerate: int | None
    deepspeed: int | None
    deepspeed_words: str


def sizes_of(configs: Iterable[str]) -> dict[str, ModelSizes]:
    """Config as JSON -> its sizes; asks one child for all."""
    unique = list(dict.fromkeys(configs))
    command = [sys.executable, "-m", "tools.benchmarks.published.rivals"]
    done = subprocess.run(
        command, input=json.dumps(unique), capture_output=True, text=True, cwd=REPOSITORY, timeout=600
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return {config: ModelSizes(problem=last) for config in unique}
    answers = json.loads(done.stdout.splitlines()[-1])
    return {config: ModelSizes(**answer) for config, answer in zip(unique, answers, strict=True)}


def rivals_of(work: Workload, sizes: ModelSizes) -> Rivals:
    """accelerate: what its command prints for Adam, which knows neither batch, adapters nor strategy.

    DeepSpeed: its functions for model states, zero3 where states are sharded, else zero2 on one GPU without offload,
    which know neither batch nor adapters (deepspeed.runtime.zero.stage_1_and_2 and .stage3).
    """
    accelerate: int | None = sizes.accelerate_fp32 if work.precision == "fp32" else sizes.accelerate_fp16
    parameters = sizes.parameters or work.architecture.parameters
    if sizes.problem:
        accelerate = None
    if work.strategy in ("fsdp", "zero3"):
        return Rivals(
            accelerate, _zero3(parameters, sizes.largest_layer, work.world_size), f"ZeRO-3 on {work.world_size}"
        )
    return Rivals(accelerate, _zero2(parameters, work.world_size), f"ZeRO-2 on {work.world_size}")


def _zero2(parameters: int, gpus: int) -> int:
    """estimate_zero2_model_states_mem_needs(cpu_offload=False): 2 P + 18 P / N; checked against it by a test."""
    return 2 * parameters + int(18 * parameters / gpus)


def _zero3(parameters: int, largest_layer: int, gpus: int) -> int:
    """estimate_zero3_model_states_mem_needs(cpu_offload=False); checked against it by a test."""
    return 4 * largest_layer + int(18 * parameters / gpus)


def _sizes(values: dict[str, Any]) -> dict[str, Any]:
    import torch
    import transformers
    from accelerate import init_empty_weights
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    kind = values.pop("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        return {"problem": "remote code"}
    config = transformers.AutoConfig.for_model(kind, **values)
    heads = {"encoder": transformers.AutoModelForMaskedLM}
    with init_empty_weights():
        # As accelerate.commands.estimate.create_empty_model does.
        model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        whole = (
            transformers.AutoModelForSeq2SeqLM
            if config.is_encoder_decoder
            else heads.get("encoder" if "bert" in kind or kind == "esm" else "", transformers.AutoModelForCausalLM)
        ).from_config(config, dtype=torch.float32)
    whole.tie_weights()
    total, _ = calculate_maximum_sizes(model)
    modules = [sum(p.numel() for p in m.parameters(recurse=False)) for m in whole.modules()]
    return {
        "accelerate_bytes": int(total),
        "accelerate_fp32": int(max(estimate_training_usage(total, "float32").values())),
        "accelerate_fp16": int(max(estimate_training_usage(total, "float16").values())),
        "parameters": sum(p.numel() for p in whole.parameters()),
        "largest_layer": max(modules),
    }


def main() -> None:
    answers = []
    for text in json.load(sys.stdin):
        try:
            answers.append(_sizes(json.loads(text)))
        except Exception as error:  # noqa: BLE001 - whatever a foreign estimator fails with is its answer
            answers.append({"problem": (str(error).splitlines() or [type(error).__name__])[0]})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
