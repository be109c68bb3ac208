"""Real runs of classifiers and of masked language models through accelerate, each with its own tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from trainwiz.core.config import RunConfig
from trainwiz.core.data.formats import sample_path
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.training.classes import entities
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    ModernBertConfig,
    ModernBertForMaskedLM,
    pipeline,
)

from tests.core.training.runs import different_tensors, metrics, text_config, train, write_run
from tests.core.training.test_classes import NAMES, REVIEWS

pytestmark = pytest.mark.real

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TEXT = [{"name": "sample-text", "text_column": "text", "max_rows": 200}]
TASKS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "sequence-classification": ("bert", [{**REVIEWS[0], "max_rows": 600}]),
    "token-classification": ("modernbert", [{**NAMES[0], "max_rows": 300}]),
    "masked-lm": ("bert", TEXT),
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model folders as they are published: a masked language model with a WordPiece tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    import gzip

    texts = [
        line
        for name in ("sample-reviews", "sample-names", "sample-text")
        for line in gzip.decompress(sample_path(name).read_bytes()).decode().splitlines()[:800]  # type: ignore[union-attr]
    ]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made = {}
    torch.manual_seed(5)
    ids = {
        "vocab_size": 400,
        "pad_token_id": 0,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    for kind, model in (
        ("bert", BertForMaskedLM(BertConfig(vocab_size=400, pad_token_id=0, **SIZES))),
        ("modernbert", ModernBertForMaskedLM(ModernBertConfig(**SIZES, **ids, mlp_dropout=0.1))),
    ):
        made[kind] = tmp_path_factory.mktemp("models") / f"{kind}-small"
        model.save_pretrained(made[kind])
        BertTokenizer(tokenizer_object=tokenizer).save_pretrained(made[kind])
    return made


def config_of(task: str, bases: dict[str, Path], **changes: Any) -> RunConfig:
    kind, rows = TASKS[task]
    values = {
        "task": task,
        "model__name": str(bases[kind]),
        "model__init": "pretrained",
        "model__architecture": json.loads((bases[kind] / "config.json").read_text()),
        "data__sources": rows,
        "data__validation_rows": 60,
        "batch__target_length": None,
        "batch__sequence_length": 64,
        "batch__micro_batch_size": 16,
        "training__max_steps": 60,
        "training__learning_rate": 3e-3,
        "evaluation__every_steps": 30,
        "checkpoint__every_steps": 30,
        "logging__every_steps": 10,
        **changes,
    }
    return text_config("bert-tiny", **values)


Whole = Callable[[str], Path]


@pytest.fixture(scope="module")
def whole(bases: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A run of each task that nothing interrupts."""
    made: dict[str, Path] = {}

    def run(task: str) -> Path:
        if task not in made:
            config = config_of(task, bases)
            made[task] = write_run(tmp_path_factory.mktemp("runs") / task, config)
            assert train(made[task], config)["outcome"] == "finished"
        return made[task]

    return run


def last_evaluation(folder: Path) -> dict[str, Any]:
    return [line for line in metrics(folder) if "eval_loss" in line][-1]


def test_a_classifier_learns_and_its_figures_are_those_of_its_pipeline(bases: dict[str, Path], whole: Whole) -> None:
    folder = whole("sequence-classification")
    rows = load_text_rows(config_of("sequence-classification", bases), folder)
    assert rows.targets is not None
    texts, meant = ([store[int(number)] for number in rows.held_out] for store in (rows.texts, rows.targets))
    model = AutoModelForSequenceClassification.from_pretrained(folder / "final_model")
    assert model.config.id2label == {0: "negative", 1: "neutral", 2: "positive"}
    classify: Any = pipeline("text-classification", model=str(folder / "final_model"))
    said = [one["label"] for one in classify(texts)]
    last = last_evaluation(folder)
    assert last["eval_accuracy"] == pytest.approx(float(np.mean(np.array(said) == np.array(meant))))
    assert last["eval_f1"] == pytest.approx(f1_score(meant, said, average="macro")) and last["eval_f1"] > 0.5
    assert "eval_perplexity" not in last


def test_words_are_tagged_and_the_figures_are_those_of_the_model(bases: dict[str, Path], whole: Whole) -> None:
    folder = whole("token-classification")
    rows = load_text_rows(config_of("token-classification", bases), folder)
    assert rows.targets is not None
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "final_model")
    model: Any = AutoModelForTokenClassification.from_pretrained(folder / "final_model").eval()
    counts = np.zeros(3)
    for number in map(int, rows.held_out):
        words, tags = json.loads(rows.texts[number]), json.loads(rows.targets[number])
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            guesses = model(**encoded).logits[0].argmax(-1).tolist()
        ids = encoded.word_ids()
        said = [model.config.id2label[guesses[ids.index(word)]] for word in range(len(words))]
        counts += len(entities(said) & entities(tags)), len(entities(said)), len(entities(tags))
    last = last_evaluation(folder)
    precision, recall = counts[0] / counts[1], counts[0] / counts[2]
    assert (last["eval_precision"], last["eval_recall"]) == (pytest.approx(precision), pytest.approx(recall))
    assert last["eval_f1"] == pytest.approx(2 * precision * recall / (precision + recall)) and last["eval_f1"] > 0.8


def test_a_masked_model_learns_with_its_own_tokenizer(whole: Whole) -> None:
    folder = whole("masked-lm")
    first, *_, last = [line for line in metrics(folder) if "eval_loss" in line]
    assert last["eval_loss"] < first["eval_loss"] and last["eval_hidden_loss"] < 2
    tokenizer = AutoTokenizer.from_pretrained(folder / "final_model")
    assert tokenizer.mask_token == "[MASK]" and len(tokenizer) == 400
    assert AutoModelForMaskedLM.from_pretrained(folder / "final_model").config.model_type == "bert"


@pytest.mark.parametrize("task", list(TASKS))
def test_a_resumed_run_is_the_uninterrupted_one(
    task: str, bases: dict[str, Path], whole: Whole, tmp_path: Path
) -> None:
    """With dropout, streamed rows and loader workers where the first run had none."""
    config = config_of(task, bases, data__streaming=True, data__workers=2)
    folder = write_run(tmp_path / "resumed", config)
    shutil.copytree(whole(task) / "checkpoint-30", folder / "checkpoint-30")
    assert train(folder, config, "--resume", "checkpoint-30")["outcome"] == "finished"
    assert different_tensors(whole(task) / "checkpoint-60", folder / "checkpoint-60") == []
    scores = [{k: v for k, v in last_evaluation(run).items() if k in SCORES} for run in (whole(task), folder)]
    assert scores[0] == scores[1]


SCORES = ("eval_loss", "eval_accuracy", "eval_f1", "eval_precision", "eval_hidden_loss")


def test_adapters_train_the_head_whole_and_are_merged(bases: dict[str, Path], tmp_path: Path) -> None:
    config = config_of(
        "sequence-classification", bases, peft__method="lora", peft__merge=True, training__max_steps=20,
        evaluation__every_steps=10, checkpoint__every_steps=10,
    )  # fmt: skip
    folder = write_run(tmp_path / "run", config)
    assert train(folder, config)["outcome"] == "finished"
    saved = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (saved["task_type"], "classifier" in saved["modules_to_save"]) == ("SEQ_CLS", True)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder / "final_model")
    base: Any = AutoModelForMaskedLM.from_pretrained(bases["bert"])
    assert model.config.id2label[2] == "positive"
    query = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(model.bert.get_parameter(query), base.bert.get_parameter(query))
    assert last_evaluation(folder)["eval_accuracy"] > 0.4
