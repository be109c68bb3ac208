"""Traces without numbers against real tensors: the same trace of them, and RunTrainer itself.

The first is byte for byte and phase for phase. Of the second nothing is the tracer's: forward pass, loss, accumulation,
clipping and step are those of a run, and torch's profiler watches the fullest point of its third step.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.step import build_traced_model, run_config, trace_model
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.training.batches import EpochSampler
from trainwiz.core.training.evaluation import EvaluationSchedule, StepLoss
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.model import batch_alone, decoder_only, encoder_decoder
from trainwiz.core.training.tasks import TaskParts
from trainwiz.core.training.trainer import RunTrainer
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainingArguments

from tests.core.estimate.trace.requests import ESM, GPT2, LLAMA, M2M, T5, request, traced
from tests.each import each

ALIGNMENT = 64
INPUTS = {"causal-lm": decoder_only, "seq2seq": encoder_decoder, "masked-lm": batch_alone}
FP32 = {"precision": "fp32", "device": "cpu"}
BF16 = {"precision": "bf16", "device": "cpu"}
LORA = {**BF16, "half_weights": True, "lora_rank": 8, "lora_targets": ("q_proj", "v_proj")}
PAIRS = {**FP32, "task": "seq2seq", "target_length": 96}
MASKED = {**FP32, "task": "masked-lm", "micro_batch": 8}
STEPS = [
    # The step is the fullest moment.
    request(LLAMA, **FP32, micro_batch=1, length=64, accumulation=2, optimizer="adamw_torch"),
    request(LLAMA, **LORA),
    request(GPT2, **BF16, attention="eager"),
    request(M2M, **PAIRS, checkpointing=True),
    request(ESM, **MASKED),
]
"""Each tensor of a step; what the Trainer does is the wider test."""
TRAINED = [request(LLAMA, **BF16), request(T5, **PAIRS, label_smoothing=True)]
MORE_TRAINED = [
    request(LLAMA, **FP32, loss_chunk=64),
    request(LLAMA, **FP32, checkpointing=True, accumulation=2, length=256),
    request(LLAMA, **LORA),
    request(GPT2, **FP32, optimizer="adafactor", attention="eager"),
    request(M2M, **PAIRS, accumulation=2),
    request(ESM, **MASKED),
]


@pytest.mark.all
@each("asked", STEPS)
@pytest.mark.timeout(1200)
def test_a_trace_without_numbers_is_that_of_a_real_step(asked: TraceRequest) -> None:
    tracker = Tracker(Ledger(ALIGNMENT))
    with emulated("cpu", tracker.ledger):
        real = trace_model(build_traced_model(asked), asked, tracker)
    assert traced(asked).training == real.training


class FullRows(Dataset[Any]):
    """Rows of the longest length; the last of each batch ends with one place of padding."""

    def __init__(self, asked: TraceRequest, rows: int) -> None:
        self.asked, self.rows = asked, rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        mask = torch.ones(self.asked.length, dtype=torch.int64)
        if (number + 1) % self.asked.micro_batch == 0:
            mask[-1] = 0
        labels = torch.full((self.asked.target_length or self.asked.length,), 5)
        return {"input_ids": torch.full((self.asked.length,), 5), "attention_mask": mask, "labels": labels}


def collated(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


class InOrder(EpochSampler):
    def __iter__(self) -> Any:
        return iter(range(len(self)))


class Watch(TrainerCallback):
    """Profiles the allocator during the third step."""

    def __init__(self) -> None:
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        self.held = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step != 2:
            return
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        states = [value for state in optimizer.state.values() for value in state.values()]
        tensors = [*model.parameters(), *model.buffers(), *(value for value in states if torch.is_tensor(value))]
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        self.held = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in storages.values())
        self.profile.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 3:
            self.profile.stop()

    def peak(self) -> int:
        kineto = self.profile.profiler.kineto_results  # type: ignore[union-attr]
        changes = sorted((event.start_ns(), event.nbytes()) for event in kineto.events() if event.name() == "[memory]")
        total = peak = 0
        for _, change in changes:
            total += change
            peak = max(peak, total)
        assert peak > 0
        return self.held + peak


def trained_peak(asked: TraceRequest, folder: Path) -> int:
    config: RunConfig = run_config(asked)
    steps, rows = 3, 3 * asked.micro_batch * asked.accumulation
    parts = TaskParts(
        model=build_traced_model(asked), rows=None, tokenizer=None, padding=0, lengths=None,
        train=FullRows(asked, rows), evaluation=None, collate=collated, sampler=InOrder(rows, 0),
        loss=StepLoss(0.1 if asked.label_smoothing else 0.0, asked.loss_chunk), schedule=EvaluationSchedule(config, int),
        inputs=INPUTS[asked.task],
    )  # fmt: skip
    args = TrainingArguments(
        output_dir=str(folder), use_cpu=True, max_steps=steps, bf16=asked.precision == "bf16", optim=asked.optimizer,
        per_device_train_batch_size=asked.micro_batch, gradient_accumulation_steps=asked.accumulation,
        activation_checkpointing=asked.checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if asked.checkpointing else None,
        remove_unused_columns=False, report_to="none", save_strategy="no", eval_strategy="no", disable_tqdm=True,
        logging_strategy="no",
    )  # fmt: skip
    trainer = RunTrainer(args, parts, StepMeter())
    watch = Watch()
    trainer.add_callback(watch)
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    trainer.train()
    return watch.peak()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("requests", [TRAINED, pytest.param(MORE_TRAINED, marks=pytest.mark.all)], ids=["", "more"])
def test_the_trace_is_what_the_trainer_does(requests: list[TraceRequest], tmp_path: Path) -> None:
    for number, asked in enumerate(requests):
        trained = trained_peak(asked, tmp_path / str(number))
        assert traced(asked).allocated_bytes == pytest.approx(trained, rel=2e-3), asked
