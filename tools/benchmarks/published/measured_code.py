"""The code that was measured, where it is not today's: traced in a child of its own, never a part of the product.

Each change is what the sources of a version say, and where they say it; none is a constant. Which versions the pages of
T1 to T14 and of M114 and M119 ran is not stated there: these changes were looked for after the errors were seen.
A request and a list of changes come as JSON on standard input, the trace leaves as JSON:
python -m tools.benchmarks.published.measured_code
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from trainwiz.core.tracing.request import TraceCache, TraceRequest, TraceResult, trace_versions, user_cache_folder

REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True)
class Change:
    """What was different in the code that ran."""

    name: str
    because: str
    """Where the source says so."""


CHANGES = {
    change.name: change
    for change in (
        Change(
            "kept gradients",
            "torch 1: Optimizer.zero_grad(set_to_none=False) was the default, and the Trainer's own call of it filled "
            "gradients with zeros, so that they also exist during the forward pass",
        ),
        Change(
            "kept softmax input",
            "torch 1.10: SoftmaxBackward0 saves self_ in addition to result_ "
            "(torch/include/torch/csrc/autograd/generated/Functions.h of its wheel), so that each layer keeps its scores twice",
        ),
        Change(
            "always a mask",
            "transformers 4.17.0, models/bert/modeling_bert.py: attention_scores + attention_mask for every batch, in the format "
            "of the weights, so that scores are fp32 from there on under autocast; today's code leaves out a mask that masks nothing",
        ),
        Change(
            "loss in bf16",
            "transformers 4.48.1, models/gpt_bigcode/modeling_gpt_bigcode.py 1181-1187: the logits are shifted with "
            ".contiguous() and go into CrossEntropyLoss unchanged, in bf16; no .float()",
        ),
        Change(
            "kept cache",
            "transformers 4.48.1, the same file 849, 314-328, 972-1006: use_cache stays on while checkpointing, so that the "
            "outputs hold the keys and values of all layers until the loss is there, as views of the whole c_attn output",
        ),
        Change(
            "head in chunks",
            "litgpt 0.5.12, finetune/lora.py 352-355, model.py 179, utils.py chunked_cross_entropy: the head is called on 128 "
            "positions at a time, each with a cross entropy of its own in bf16",
        ),
        Change(
            "joint product",
            "litgpt 0.5.12, model.py CausalSelfAttention.forward: queries, keys and values are one product, of which the values "
            "are a view, so that attention keeps all of it in addition to the rotated queries and keys",
        ),
        Change("adapters' dropout", "litgpt 0.5.12, finetune/lora.py setup: lora_dropout = 0.05"),
        Change(
            "fused gelu",
            "litgpt 0.5.12, model.py GptNeoxMLP: torch.nn.functional.gelu(approximate='tanh'), where transformers runs "
            "gelu_new of phi as eight operations",
        ),
        Change(
            "kept inputs in 4 bits",
            "bitsandbytes 0.41.0 to 0.43.1, autograd/_functions.py MatMul4Bit.forward: ctx.tensors = (A, B), so that each packed layer keeps "
            "its input, which no gradient needs; later versions keep None",
        ),
        Change(
            "emptied cache",
            "peft, method_comparison/MetaMathQA/run.py: torch.cuda.empty_cache() every 10 steps, so that an order of lengths is 10 long",
        ),
        Change(
            "single quantisation",
            "litgpt of October 2023 (8641822), finetune/lora.py setup: bnb.nf4, not bnb.nf4-dq, so that the scales are in fp32",
        ),
    )
}  # fmt: skip
PAGE_CONTEXT_MIB = 1343
"""What nvidia-smi showed on the page of rows T1 to T7 before anything was loaded, in its own words."""
OLD = ("kept gradients", "kept softmax input", "always a mask")
LITGPT = ("head in chunks", "joint product", "adapters' dropout")
OF_ROWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("T1", "T2", "T3", "T4", "T5", "T7", "M114", "M119"), OLD),
    **dict.fromkeys(("T8", "T10"), LITGPT),
    **dict.fromkeys(("T14a", "T14b"), (*LITGPT, "fused gelu")),
    **dict.fromkeys(("M001", "M002", "M003", "M004"), ("loss in bf16", "kept cache")),
    "M005": ("loss in bf16", "kept cache"),
    **dict.fromkeys(("M027", "M029"), ("emptied cache",)),
    "M079": ("head in chunks", "adapters' dropout", "kept inputs in 4 bits", "single quantisation"),
}


def request_of_code(request: TraceRequest, changes: Sequence[str]) -> TraceRequest:
    """`request` with those of the changes that a request can say."""
    if "kept gradients" in changes:
        # In the second micro-batch of a step the gradients of the first one stand during the forward pass.
        request = replace(request, accumulation=2)
    if "always a mask" in changes:
        # The trace makes one for several rows, as for padded ones.
        request = replace(request, padded=True)
    if "adapters' dropout" in changes:
        request = replace(request, lora_dropout=True)
    if "fused gelu" in changes:
        values = {**json.loads(request.model_config), "hidden_act": "gelu_pytorch_tanh"}
        request = replace(request, model_config=json.dumps(values, sort_keys=True))
    return request


@cache
def trace_as_measured(request: TraceRequest, changes: tuple[str, ...]) -> TraceResult | str:
    """The full trace with the changes, or why there is none. Kept in the user's cache folder, as other traces are."""
    versions = {**trace_versions(), "changes": ", ".join(changes), "measured code": _digest()}
    kept = TraceCache(user_cache_folder().with_name("measured-code"), versions=versions)
    known = kept.get(request)
    if known is not None:
        return known
    asked = json.dumps({"request": request_of_code(request, changes).to_json(), "changes": changes})
    command = [sys.executable, "-m", "tools.benchmarks.published.measured_code"]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, text=True, cwd=REPOSITORY, timeout=400)
    except subprocess.TimeoutExpired:
        return "not traced in 400 s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    result = TraceResult.from_json(json.loads(done.stdout))
    kept.put(request, result)
    return result


def _digest() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def _trace(values: dict[str, Any]) -> TraceResult:
    import torch
    from torch.nn.functional import cross_entropy
    from trainwiz.core.estimate.trace import emulation, replay
    from trainwiz.core.estimate.trace import step as training_step
    from trainwiz.core.estimate.trace.replay import trace_full
    from trainwiz.core.estimate.trace.step import model_inputs

    request, changes = TraceRequest.from_json(values["request"]), values["changes"]

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, output: torch.Tensor, *kept: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(*kept)
            return output.view_as(output)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
            return gradient, *(None for _ in ctx.saved_tensors)

    todays_softmax = emulation._softmax

    def softmax_1_10(input: torch.Tensor, *args: Any, **keywords: Any) -> torch.Tensor:
        output = todays_softmax(input, *args, **keywords)
        return Keep.apply(output, input.detach()) if output.requires_grad else output  # type: ignore[no-untyped-call]

    def shifted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = logits[..., :-1, :].contiguous()
        return cross_entropy(rows.view(-1, rows.size(-1)), labels[..., 1:].contiguous().view(-1))

    def loss_4_48(model: Any, request: TraceRequest, between: Callable[[], None] = lambda: None) -> torch.Tensor:
        inputs = model_inputs(request, request.micro_batch, model)
        labels = inputs.pop("labels")
        # The outputs hold the logits until compute_loss returns.
        held: list[torch.Tensor] = []
        hooks = [
            module.register_forward_hook(lambda module, args, output: held.append(output.detach()))
            for name, module in model.named_modules()
            if "kept cache" in changes and name.endswith(".c_attn")
        ]
        outputs = model(**inputs)
        for hook in hooks:
            hook.remove()
        between()
        return shifted(outputs.logits, labels)

    def join_products(base: Any) -> None:
        """The values of each layer keep the queries and keys as they came out of the product."""
        parts: list[torch.Tensor] = []

        def after(module: Any, args: Any, output: torch.Tensor, last: bool) -> torch.Tensor | None:
            parts.append(output.detach())
            if not last:
                return None
            result: torch.Tensor = Keep.apply(output, *parts)  # type: ignore[no-untyped-call]
            parts.clear()
            return result

        for name, module in base.named_modules() if "joint product" in changes else ():
            if name.endswith(("q_proj", "k_proj", "v_proj")):
                module.register_forward_hook(partial(after, last=name.endswith("v_proj")))

    def old_bitsandbytes(base: Any) -> None:
        packed = [module for module in base.modules() if type(module).__name__ == "Linear4bit"]
        for module in packed if "kept inputs in 4 bits" in changes else ():
            module.register_forward_hook(lambda module, args, output: Keep.apply(output, args[0].detach()))
        fp32 = packed if "single quantisation" in changes and not kept else []
        # Three bytes more for 64 weights, of which two lie in a byte.
        sizes = [3 * 2 * module.weight.numel() // 64 for module in fp32]
        kept.extend(torch.empty(size, dtype=torch.uint8, device=base.device) for size in sizes)

    def loss_litgpt(model: Any, request: TraceRequest, between: Callable[[], None] = lambda: None) -> torch.Tensor:
        inputs = model_inputs(request, request.micro_batch, model)
        targets = inputs.pop("labels")[..., 1:]
        base = model.get_base_model()
        join_products(base)
        old_bitsandbytes(base)
        hidden = base.get_decoder()(**inputs).last_hidden_state
        logits = [base.lm_head(part) for part in hidden.split(128, dim=1)]
        between()
        logits[-1] = logits[-1][..., :-1, :]
        labels = targets.split(128, dim=1)
        parts = [
            cross_entropy(chunk.reshape(-1, chunk.size(-1)), label.reshape(-1), reduction="none")
            for chunk, label in zip(logits, labels, strict=True)
        ]
        kept.append(logits)
        return torch.cat(parts).sum() / targets.numel()

    kept: list[Any] = []
    """litgpt's fit() holds `logits` until the next micro-batch."""
    if "kept softmax input" in changes:
        emulation._softmax = softmax_1_10
    if "loss in bf16" in changes:
        training_step.training_loss = loss_4_48
    if "emptied cache" in changes:
        replay.DRAWS = 10
    if "head in chunks" in changes:
        training_step.training_loss = loss_litgpt
    return trace_full(request)


def main() -> None:
    print(json.dumps(_trace(json.load(sys.stdin)).to_json()))


if __name__ == "__main__":
    main()
