"""Models that stand in no file: by formulas, traced, and a plain step counted by torch's own MemTracker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.tracing.request import TraceProblem, TraceRequest
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.family_traces import attention_projections

REPOSITORY = Path(__file__).parents[3]
Values = dict[str, Any]


def _llama_like(
    kind: str, hidden: int, layers: int, heads: int, kv: int, ffn: int, vocabulary: int, **more: Any
) -> Values:
    return {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": ffn, "vocab_size": vocabulary, "max_position_embeddings": 4096,
        "head_dim": hidden // heads, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **more,
    }  # fmt: skip


def _bert_like(kind: str, hidden: int, layers: int, heads: int, vocabulary: int, **more: Any) -> Values:
    return {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": hidden * 3, "vocab_size": vocabulary, "max_position_embeddings": 1026, "pad_token_id": 1, **more,
    }  # fmt: skip


MODELS: dict[str, tuple[str, Values, Values]] = {
    "llama": ("causal-lm", _llama_like("llama", 1152, 19, 18, 6, 3456, 41_000, tie_word_embeddings=True), {"precision": "bf16", "micro_batch": 5, "length": 700}),
    "qwen2": ("causal-lm", _llama_like("qwen2", 960, 21, 15, 5, 2880, 77_000), {"precision": "bf16-true", "micro_batch": 3, "length": 1300, "checkpointing": True}),
    "qwen3": ("causal-lm", _llama_like("qwen3", 1280, 14, 20, 4, 3520, 60_000), {"precision": "bf16", "micro_batch": 2, "length": 900, "lora_rank": 12, "lora_dropout": True}),
    "mistral": ("causal-lm", _llama_like("mistral", 1792, 23, 14, 7, 5120, 36_000, sliding_window=None), {"precision": "bf16", "micro_batch": 2, "length": 1500, "checkpointing": True, "optimizer": "adamw_torch"}),
    "gemma2": ("causal-lm", _llama_like("gemma2", 896, 18, 14, 7, 3072, 90_000, tie_word_embeddings=True, sliding_window=1024), {"precision": "bf16", "micro_batch": 3, "length": 640, "attention": "eager"}),
    "gpt_neox": ("causal-lm", {"model_type": "gpt_neox", "hidden_size": 1408, "num_hidden_layers": 17, "num_attention_heads": 11, "intermediate_size": 4608, "vocab_size": 45_000, "max_position_embeddings": 2048}, {"precision": "fp16", "micro_batch": 4, "length": 800}),
    "opt": ("causal-lm", {"model_type": "opt", "hidden_size": 1088, "word_embed_proj_dim": 1088, "num_hidden_layers": 15, "num_attention_heads": 17, "ffn_dim": 3840, "vocab_size": 43_000, "max_position_embeddings": 2048}, {"precision": "fp32", "micro_batch": 6, "length": 450, "accumulation": 2}),
    "gpt2": ("causal-lm", {"model_type": "gpt2", "n_embd": 832, "n_layer": 22, "n_head": 13, "vocab_size": 39_000, "n_positions": 1024}, {"precision": "bf16", "micro_batch": 7, "length": 500, "optimizer": "adafactor"}),
    "roberta": ("masked-lm", _bert_like("roberta", 704, 13, 11, 34_000), {"precision": "fp16", "micro_batch": 9, "length": 600}),
    "bert": ("masked-lm", _bert_like("bert", 864, 16, 12, 28_000), {"precision": "fp32", "micro_batch": 5, "length": 380, "attention": "eager"}),
    "esm": ("masked-lm", {**_bert_like("esm", 720, 26, 20, 33, mask_token_id=32), "position_embedding_type": "rotary", "token_dropout": True}, {"precision": "bf16", "micro_batch": 8, "length": 900, "checkpointing": True}),
    "t5": ("seq2seq", {"model_type": "t5", "d_model": 640, "d_kv": 64, "d_ff": 1920, "num_layers": 11, "num_decoder_layers": 9, "num_heads": 10, "vocab_size": 37_000, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0, "pad_token_id": 0}, {"precision": "bf16", "micro_batch": 10, "length": 320, "target_length": 210}),
    "bart": ("seq2seq", {"model_type": "bart", "d_model": 768, "encoder_layers": 7, "decoder_layers": 11, "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 2304, "decoder_ffn_dim": 2304, "vocab_size": 52_000, "max_position_embeddings": 1024}, {"precision": "fp16", "micro_batch": 6, "length": 520, "target_length": 260}),
    "m2m_100": ("seq2seq", {"model_type": "m2m_100", "d_model": 640, "encoder_layers": 8, "decoder_layers": 8, "encoder_attention_heads": 10, "decoder_attention_heads": 10, "encoder_ffn_dim": 2560, "decoder_ffn_dim": 2560, "vocab_size": 110_000, "max_position_embeddings": 1024, "tie_word_embeddings": True}, {"precision": "bf16", "micro_batch": 12, "length": 180, "target_length": 160, "checkpointing": True}),
}  # fmt: skip
"""Kind of model -> task, config with sizes that were made up here, settings."""
LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")
SMALL: Values = {"micro_batch": 8, "length": 256, "target_length": 192, "precision": "fp32", "optimizer": "sgd", "device": "cpu", "lora_rank": 0, "lora_targets": (), "lora_dropout": False, "checkpointing": False, "accumulation": 1}  # fmt: skip
"""Without optimizer states, so that the peak is among the activations."""


@dataclass(frozen=True)
class CrossCheck:
    """Bytes of one made-up model; 0 where a tier has no answer."""

    name: str
    setting: str
    parameters: int
    analytic: int
    full: int
    traced_small: int
    """Of three layers in fp32 on the CPU, by the product's trace."""
    counted: int
    """The same as a plain step on tensors without data, by torch.distributed._tools.mem_tracker.MemTracker."""
    problem: str = ""

    @property
    def words(self) -> str:
        share = f", analytic {self.analytic / self.full - 1:+.1%}" if self.full else ""
        small = f"{self.traced_small:,} traced, {self.counted:,} counted" if self.counted else "no plain step"
        return f"{self.name:<10}{self.setting:<48}full {self.full / 1e9:6.2f} GB{share}; small: {small} {self.problem}"


def cross_checks() -> Iterator[CrossCheck]:
    with TraceWorker() as worker:
        for name in MODELS:
            yield _check(name, worker)


def workload(name: str) -> Workload:
    task, config, setting = MODELS[name]
    architecture, reason = read_architecture(config)
    assert architecture is not None, reason
    values = {"target_length": setting["length"], **setting}
    if "lora_rank" in values:
        values["lora_targets"] = attention_projections(architecture)
    return Workload(architecture=architecture, task=task, model_config=json.dumps(config, sort_keys=True), **values)


def small_workload(name: str) -> Workload:
    """Three layers of it on the CPU."""
    _, config, _ = MODELS[name]
    shallow = {**config, **{key: 3 for key in LAYER_KEYS if key in config}}
    architecture, reason = read_architecture(shallow)
    assert architecture is not None, reason
    return replace(workload(name), architecture=architecture, model_config=json.dumps(shallow, sort_keys=True), **SMALL)


def _check(name: str, worker: TraceWorker) -> CrossCheck:
    work, small = workload(name), small_workload(name)
    full, problems = 0, []
    request = TraceRequest.of(work)
    assert request is not None
    answer = worker.ask(request, 120)
    if isinstance(answer, TraceProblem):
        problems.append(answer.message)
    else:
        full = estimate_memory(work, Evidence(traces={request: answer})).allocated_bytes
    request = TraceRequest.of(small)
    assert request is not None
    traced = worker.ask(request, 120)
    counted = counted_step(request)
    values = MODELS[name][2]
    words = ", ".join(
        f"{key} {value}"
        for key, value in values.items()
        if key not in ("micro_batch", "length", "target_length", "precision")
    )
    return CrossCheck(
        name=name,
        setting=f"{values['precision']} {values['micro_batch']}x{values['length']}{', ' if words else ''}{words}",
        parameters=work.architecture.parameters,
        analytic=estimate_memory(work).allocated_bytes,
        full=full,
        traced_small=0 if isinstance(traced, TraceProblem) else traced.allocated_bytes,
        counted=counted if isinstance(counted, int) else 0,
        problem="; ".join([*problems, *([] if isinstance(counted, int) else [counted])]),
    )


def counted_step(request: TraceRequest) -> int | str:
    """Peak bytes of a plain step, or why there is none."""
    command = [sys.executable, "-m", "tools.benchmarks.published.crosscheck"]
    asked = json.dumps(request.to_json())
    try:
        done = subprocess.run(command, input=asked, capture_output=True, text=True, cwd=REPOSITORY, timeout=300)
    except subprocess.TimeoutExpired:
        return "no plain step in 300 s"
    return int(done.stdout.split()[-1]) if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]


def _count(request: TraceRequest) -> int:
    """A plain step with torch's own counting: nothing of the tracer is in it but the loss that it traces."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    from trainwiz.core.estimate.trace.step import every_position
    from trainwiz.core.training.evaluation import StepLoss
    from trainwiz.core.training.model import batch_alone, decoder_only, encoder_decoder
    from trainwiz.core.training.weights import MODEL_CLASSES
    from transformers import AutoConfig
    from transformers.initialization import no_init_weights

    values = json.loads(request.model_config)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    inputs_of = {"causal-lm": decoder_only, "seq2seq": encoder_decoder}.get(request.task, batch_alone)
    loss = StepLoss(0.0, None, every_position)
    shape = request.micro_batch, request.length
    with FakeTensorMode(allow_non_fake_inputs=True):
        with no_init_weights():
            model = MODEL_CLASSES[request.task].from_config(config, attn_implementation=request.attention).train()
        model.tie_weights()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            mask = torch.ones(shape, dtype=torch.int64)
            mask[-1, -1] = 0
            batch = {"input_ids": torch.full(shape, 5), "attention_mask": mask}
            batch["labels"] = torch.full((request.micro_batch, request.target_length or request.length), 5)
            inputs = inputs_of(batch, model)
            labels = inputs.pop("labels")
            result = loss(model(**inputs), labels, labels.numel())
            result.backward()
            optimizer.step()
    return int(max(sizes["Total"] for sizes in tracker.get_tracker_snapshot("peak").values()))


if __name__ == "__main__":
    print(_count(TraceRequest.from_json(json.load(sys.stdin))))
