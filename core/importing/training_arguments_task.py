"""Which task a training is for, from what its classes, scripts and arguments are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwiz.core.config.values import Task
from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.training_arguments_setting import Setting, text_value, yes_or_no
from trainwiz.core.importing.training_arguments_sheet import Sheet
from trainwiz.core.language import mark, tr

OF_CLASS: Mapping[str, Task] = {
    "Seq2SeqTrainingArguments": "seq2seq",
    "Seq2SeqTrainer": "seq2seq",
    "DataCollatorForSeq2Seq": "seq2seq",
    "AutoModelWithLMHead": "causal-lm",
    "MarianMTModel": "seq2seq",
    "SFTConfig": "causal-lm",
    "SFTTrainer": "causal-lm",
}
"""Names of transformers and TRL that are made for one task."""

OF_ENDING: Mapping[str, Task] = {
    "ForSeq2SeqLM": "seq2seq",
    "ForConditionalGeneration": "seq2seq",
    "ForMaskedLM": "masked-lm",
    "ForCausalLM": "causal-lm",
    "LMHeadModel": "causal-lm",
    "ForSequenceClassification": "sequence-classification",
}
"""Ends of the names of models: T5ForConditionalGeneration, AutoModelForCausalLM."""

OTHER_ENDINGS: Mapping[str, str] = {
    "ForTokenClassification": mark("a classifier of tokens"),
    "ForQuestionAnswering": mark("a model that marks answers"),
    "ForMultipleChoice": mark("a model that chooses answers"),
    "ForImageClassification": mark("a model of images"),
    "ForObjectDetection": mark("a model of images"),
    "ForSpeechSeq2Seq": mark("a model of speech"),
    "ForCTC": mark("a model of speech"),
    "ForAudioClassification": mark("a model of speech"),
    "ForVision2Seq": mark("a model of images"),
    "ForImageTextToText": mark("a model of images"),
}
"""Ends of the names of models that trainwiz does not train."""

OF_ADAPTER: Mapping[str, Task] = {
    "CAUSAL_LM": "causal-lm",
    "SEQ_2_SEQ_LM": "seq2seq",
    "SEQ_CLS": "sequence-classification",
}
"""peft's TaskType."""

OF_SCRIPT: Mapping[str, Task] = {
    "run_clm": "causal-lm",
    "run_clm_no_trainer": "causal-lm",
    "run_mlm": "masked-lm",
    "run_mlm_no_trainer": "masked-lm",
    "run_mlm_wwm": "masked-lm",
    "run_summarization": "seq2seq",
    "run_summarization_no_trainer": "seq2seq",
    "run_translation": "seq2seq",
    "run_translation_no_trainer": "seq2seq",
    "run_seq2seq": "seq2seq",
    "run_glue": "sequence-classification",
    "run_glue_no_trainer": "sequence-classification",
    "run_classification": "sequence-classification",
    "run_sft": "causal-lm",
    "sft": "causal-lm",
}
"""Scripts of transformers' examples and of TRL, without their ".py"."""

SEQ2SEQ_ARGUMENTS = ("max_source_length", "max_target_length", "val_max_target_length", "predict_with_generate")
OTHER_TRAININGS: Mapping[str, str] = {
    "DPOConfig": "DPO",
    "DPOTrainer": "DPO",
    "KTOConfig": "KTO",
    "ORPOConfig": "ORPO",
    "CPOConfig": "CPO",
    "PPOConfig": "PPO",
    "PPOTrainer": "PPO",
    "GRPOConfig": "GRPO",
    "GRPOTrainer": "GRPO",
    "RLOOConfig": "RLOO",
    "RewardConfig": mark("a reward model"),
    "RewardTrainer": mark("a reward model"),
    "run_dpo": "DPO",
    "dpo": "DPO",
    "train_dpo": "DPO",
    "run_orpo": "ORPO",
    "grpo": "GRPO",
    "ppo": "PPO",
    "train_ppo": "PPO",
}
"""Classes of TRL and scripts that train something else than the next, hidden or translated token."""

OF_IMAGES = frozenset({"resolution", "instance_prompt", "image_column", "instance_data_dir", "image_folder"})
"""Arguments of diffusers' examples."""
OTHER_STAGES = frozenset({"dpo", "kto", "orpo", "ppo", "rm", "simpo"})
"""LLaMA-Factory's `stage`."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A class, function or script that a text names."""

    name: str
    line: int | None = None


def place_task(sheet: Sheet, hints: Iterable[Hint]) -> None:
    """Set the task where something names it, and say where the training is none that trainwiz does."""
    collector = sheet.collector
    hints = list(hints)
    for what, task_of in (("class", task_of_class), ("script", OF_SCRIPT.get)):
        for hint in hints:
            task = task_of(hint.name)
            if task is not None and "task" not in collector.values:
                collector.map(what, hint.name, "task", task, hint.line)
    _of_arguments(sheet)
    other = next((hint for hint in hints if other_training(hint.name)), None)
    images = next((setting for setting in sheet.settings.values() if setting.name in OF_IMAGES), None)
    if other is not None:
        say_other_training(collector, tr(other_training(other.name)), other.line)
    elif images is not None:
        say_other_training(collector, tr("a model of images"), images.line)


def task_of_class(name: str) -> Task | None:
    """The task that a class is made for."""
    return OF_CLASS.get(name) or next((task for ending, task in OF_ENDING.items() if name.endswith(ending)), None)


def other_training(name: str) -> str:
    """What a class or script trains that trainwiz does not, marked for translation; "" for all others."""
    return OTHER_TRAININGS.get(name) or next(
        (what for ending, what in OTHER_ENDINGS.items() if name.endswith(ending)), ""
    )


def _of_arguments(sheet: Sheet) -> None:
    collector = sheet.collector
    for setting in sheet.settings.values():
        if "task" in collector.values:
            return
        task = _of_argument(sheet, setting)
        if task is not None:
            collector.map(setting.as_written(), setting.value, "task", task, setting.line)


def _of_argument(sheet: Sheet, setting: Setting) -> Task | None:
    name = setting.as_written()
    if name == "mlm_probability" or (name == "mlm" and sheet.read("mlm", yes_or_no)):
        return "masked-lm"
    if name == "predict_with_generate":
        return "seq2seq" if sheet.read(name, yes_or_no) else None
    if name in SEQ2SEQ_ARGUMENTS:
        return "seq2seq"
    if name in ("task_type", "lora_task_type"):
        return OF_ADAPTER.get((sheet.read(setting.name, text_value) or "").rpartition(".")[2].upper())
    return None


def place_stage(sheet: Sheet, setting: Setting) -> None:
    """LLaMA-Factory's `stage`: pt and sft are language modelling, the others are not."""
    stage = text_value(setting.value).lower()
    if stage in ("pt", "sft"):
        sheet.map(setting, "task", "causal-lm")
        return
    sheet.unknown(setting)
    if stage in OTHER_STAGES:
        say_other_training(sheet.collector, stage.upper(), setting.line)


def say_other_training(collector: Collector, what: str, line: int | None) -> None:
    message = tr(
        "This trains {what}, which trainwiz does not; the settings are kept for a plan of its size and speed.",
        what=what,
    )
    collector.find("other_training", "warning", message, line)
