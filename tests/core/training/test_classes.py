"""Accuracy, F1, precision and recall as scikit-learn and seqeval have them; rows with classes and masks as tokens."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from sklearn.utils.class_weight import compute_class_weight
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.formats import sample_path
from trainwiz.core.data.labels import labels_of
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.errors import UsageError
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.evaluation import Scores, StepLoss, class_weights, entities, scores_of
from trainwiz.core.training.tasks import build_task
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    pipeline,
)

from tests.core.model.test_merge import merged_of
from tests.core.training.runs import evaluations, text_config, train, write_run
from tests.each import each

REVIEWS = [{"name": "sample-reviews", "text_column": "text", "target_column": "label", "max_rows": 200}]
NAMES = [{"name": "sample-names", "text_column": "tokens", "target_column": "ner_tags", "max_rows": 200}]
SMALL = {"model__architecture": {**load_models()["bert-tiny"].architecture, "vocab_size": 300}}
"""Its tokenizer cuts most words."""


def config_of(task: str, **changes: Any) -> Any:
    rows = REVIEWS if task == "sequence-classification" else NAMES
    return text_config("bert-tiny", task=task, data__sources=rows, **changes)


def batches(numbers: np.ndarray, classes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logits that predict `numbers[0]` (n,) where `numbers[1]` is right, in batches, with filled up rows among them."""
    found = []
    for part in np.array_split(numbers, 4, axis=1):
        logits = torch.nn.functional.one_hot(torch.tensor(part[0]), classes).float()
        labels = torch.tensor(part[1])[:, None]
        found.append((torch.cat([logits, logits[:1]]), torch.cat([labels, torch.tensor([[IGNORED]])])))
    return found


@each("classes", [2, 3, 7])
def test_accuracy_and_f1_are_those_of_scikit_learn(classes: int) -> None:
    generator = np.random.default_rng(classes)
    # The last class is neither predicted nor meant, the one before is predicted alone.
    numbers = np.stack([generator.integers(0, max(2, classes - 1), 60), generator.integers(0, max(2, classes - 2), 60)])
    scores = Scores([str(number) for number in range(classes)], of_entities=False)
    sums = sum((scores.sums(*batch) for batch in batches(numbers, classes)), torch.zeros(scores.size).double())
    metrics = scores.metrics(sums, "eval")
    assert metrics["eval_accuracy"] == pytest.approx(accuracy_score(numbers[1], numbers[0]))
    assert metrics["eval_f1"] == pytest.approx(f1_score(numbers[1], numbers[0], average="macro"))
    assert metrics["eval_labelled_tokens"] == 60


@each(
    ("tags", "expected"),
    [
        (["B-PER", "I-PER", "I-LOC", "O", "I-LOC"], {("PER", 0, 1), ("LOC", 2, 2), ("LOC", 4, 4)}),
        (["I-PER", "E-PER", "I-PER", "S-PER", "I-PER"], {("PER", 0, 1), ("PER", 2, 2), ("PER", 3, 3), ("PER", 4, 4)}),
    ],
)
def test_entities_are_those_of_seqeval(tags: list[str], expected: set[Any]) -> None:
    """Figures of seqeval 1.2.2."""
    assert entities(tags) == expected


def test_balanced_weights_are_those_of_scikit_learn_and_enter_the_loss() -> None:
    config = config_of("sequence-classification", training__class_weights="balanced")
    labels = labels_of(config, Counter({"a": 90, "b": 10, "c": 20}), None)
    weights: Any = class_weights(labels, config)
    y = ["a"] * 90 + ["b"] * 10 + ["c"] * 20
    assert weights.tolist() == pytest.approx(compute_class_weight("balanced", classes=np.array(["a", "b", "c"]), y=y))
    logits, targets = torch.randn(6, 3), torch.tensor([[0], [1], [2], [0], [IGNORED], [1]])
    loss = StepLoss.of(config, weights)(type("Outputs", (), {"logits": logits}), targets)
    counted = targets[:, 0] != IGNORED
    each_loss = torch.nn.functional.cross_entropy(logits[counted], targets[counted, 0], reduction="none")
    assert loss.item() == pytest.approx((each_loss * weights[targets[counted, 0]]).sum().item() / 5, rel=1e-5)
    assert class_weights(labels, config_of("sequence-classification")) is None


def test_the_first_token_of_each_word_has_its_tag(tmp_path: Path) -> None:
    parts: Any = build_task(config_of("token-classification", **SMALL), tmp_path, None, 1)
    assert parts.labels.names == ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")
    assert scores_of(config_of("token-classification"), parts.labels).size == 6, "of entities"
    several = 0
    for index in range(40):
        tokens, labels = parts.train[(0, index)]
        # Words apart begin with the blank of byte-level BPE.
        begins = [word.startswith("\u0120") for word in parts.tokenizer.convert_ids_to_tokens(tokens.tolist())]
        assert [label != IGNORED for label in labels.tolist()] == begins
        several += sum(not begin for begin in begins[1:-1])
    assert several > 100


def test_masks_hide_whole_words_and_follow_from_seed_epoch_and_row(tmp_path: Path) -> None:
    text = [{"name": "sample-text", "text_column": "text", "max_rows": 120}]
    split = {False: 0, True: 0}
    hidden = labelled = inside = 0
    for whole in split:
        (tmp_path / str(whole)).mkdir()
        settings = {"training__whole_words": whole, "batch__sequence_length": 64, **SMALL}
        parts = build_task(text_config("bert-tiny", data__sources=text, **settings), tmp_path / str(whole), None, 1)
        mask, special = parts.tokenizer.mask_token_id, set(parts.tokenizer.all_special_ids)
        rows: Any = parts.train
        for index in range(60):
            tokens, labels = rows[(1, index)]
            again, same = rows[(1, index)]
            assert (tokens == again).all() and (labels == same).all()
            assert (labels != rows[(2, index)][1]).any()
            original = np.where(labels == IGNORED, tokens, labels)
            assert original[0] in special and not ({*original[1:-1].tolist()} & special)
            labelled += int((labels != IGNORED).sum())
            hidden += int((tokens[labels != IGNORED] == mask).sum())
            inside += len(tokens) - 2
            pieces, chosen = parts.tokenizer.convert_ids_to_tokens(original.tolist()), (labels != IGNORED).tolist()
            goes_on = [n for n in range(2, len(tokens) - 1) if pieces[n].isalpha() and pieces[n][0] != "\u0120"]
            split[whole] += sum(chosen[n] != chosen[n - 1] for n in goes_on)
    assert labelled / inside == pytest.approx(0.15, abs=0.03) and hidden / labelled == pytest.approx(0.8, abs=0.05)
    assert split[False] > 100 and split[True] == 0


@each(
    ("rows", "code"),
    [
        ("text,label\n" + "".join(f"fine {n},id{n}\n" for n in range(40)), "labels_are_ids"),
        ("text,label\n" + "".join(f"fine {n},{n / 7:.3f}\n" for n in range(40)), "labels_are_ids"),
    ],
)
def test_columns_that_hold_no_classes(rows: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(rows)
    source = [{"name": "rows.csv", "text_column": "text", "target_column": "label"}]
    with pytest.raises(UsageError) as refused:
        build_task(text_config("bert-tiny", task="sequence-classification", data__sources=source), tmp_path, None, 1)
    assert [finding.code for finding in refused.value.findings] == [code]


def test_a_model_keeps_the_classes_that_it_has() -> None:
    own = {
        "id2label": {"0": "positive", "1": "neutral", "2": "negative"},
        "architectures": ["BertForSequenceClassification"],
    }

    def labels(found: dict[str, int], own: dict[str, Any] = own, **changes: Any) -> Any:
        made = config_of("sequence-classification", model__init="pretrained", model__architecture=own, **changes)
        return labels_of(made, Counter(found), None)

    moods = {"negative": 3, "neutral": 1, "positive": 4}
    assert labels(moods).names == ("positive", "neutral", "negative")
    by_number = labels({"0": 3, "2": 1})
    assert by_number.train == {"positive": 3, "neutral": 0, "negative": 1} and by_number.note
    assert by_number.numbers == {"0": 0, "1": 1, "2": 2}, "rows are encoded as the data writes them"
    for other in ({"angry": 2, "calm": 3}, {"0": 3, "3": 1}):
        assert "trained on different classes" in labels(other).problem
    twice = own | {"id2label": {"0": "mood", "1": "mood", "2": "none"}}
    assert labels({"0": 3, "2": 1}, twice).numbers == {"0": 0, "1": 1, "2": 2}
    assert "trained on different classes" in labels({"mood": 3, "none": 1}, twice).problem, "a mood may be 0 or 1"
    fresh = labels({"angry": 2, "calm": 3}, model__new_head=True)
    assert fresh.names == ("angry", "calm") and not fresh.problem
    numbers = labels_of(config_of("sequence-classification"), Counter({"10": 1, "9": 1, "1": 2}), None)
    assert numbers.names == ("1", "9", "10")


# Real runs of classifiers and of masked language models through accelerate, each with its own tokenizer.

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TASKS: dict[str, list[dict[str, Any]]] = {
    "sequence-classification": [{**REVIEWS[0], "max_rows": 600}],
    "token-classification": [{**NAMES[0], "max_rows": 300}],
    "masked-lm": [{"name": "sample-text", "text_column": "text", "max_rows": 200}],
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as it is published: a masked language model with a WordPiece tokenizer.

    Made by hand: the trainer of WordPiece breaks ties in another way each time.
    """
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    paths = [sample_path(name) for name in ("sample-reviews", "sample-names", "sample-text")]
    texts = [line for path in paths if path for line in gzip.decompress(path.read_bytes()).decode().splitlines()[:800]]
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    letters = sorted(set("".join(words)))
    whole = sorted(words, key=lambda word: (-words[word], word))
    begun = sorted({word[:size] for word in words for size in (2, 3, 4)})
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *whole, *begun])
    vocabulary = {piece: number for number, piece in enumerate([*pieces][:400])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    torch.manual_seed(5)
    made = tmp_path_factory.mktemp("models") / "bert-small"
    BertForMaskedLM(BertConfig(vocab_size=400, pad_token_id=0, **SIZES)).save_pretrained(made)
    BertTokenizer(tokenizer_object=tokenizer).save_pretrained(made)
    return made


def trained(task: str, bases: Path, place: Path, **changes: Any) -> tuple[Path, RunConfig]:
    """A run that nothing interrupts."""
    values = {
        "task": task, "model__name": str(bases), "model__init": "pretrained",
        "model__architecture": json.loads((bases / "config.json").read_text()), "data__sources": TASKS[task],
        "data__validation_rows": 60, "batch__target_length": None, "batch__sequence_length": 64,
        "batch__micro_batch_size": 16, "training__max_steps": 60, "training__learning_rate": 3e-3,
        "evaluation__every_steps": 30, "checkpoint__every_steps": 60, **changes,
    }  # fmt: skip
    config = text_config("bert-tiny", **values)
    folder = write_run(place / "run", config)
    assert train(folder, config)["outcome"] == "finished"
    return folder, config


def held_out(config: RunConfig, folder: Path) -> tuple[list[str], list[str]]:
    """Texts and targets that evaluate."""
    rows = load_text_rows(config, folder)
    assert rows.targets is not None
    texts, targets = ([store[int(number)] for number in rows.held_out] for store in (rows.texts, rows.targets))
    return texts, targets


@pytest.mark.real
def test_a_classifier_learns_and_its_figures_are_those_of_its_pipeline(bases: Path, tmp_path: Path) -> None:
    """By adapters beside a head that is trained whole; they are merged into the base."""
    adapters = {"peft__method": "lora", "peft__merge": True}
    folder, config = trained("sequence-classification", bases, tmp_path, **adapters)
    texts, meant = held_out(config, folder)
    saved = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (saved["task_type"], "classifier" in saved["modules_to_save"]) == ("SEQ_CLS", True)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder / "final_model")
    base: Any = AutoModelForMaskedLM.from_pretrained(bases)
    query = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(model.bert.get_parameter(query), base.bert.get_parameter(query))
    assert model.config.id2label == {0: "negative", 1: "neutral", 2: "positive"}
    classify: Any = pipeline("text-classification", model=str(folder / "final_model"))
    said = [one["label"] for one in classify(texts)]
    last = evaluations(folder)[-1]
    assert last["eval_accuracy"] == pytest.approx(float(np.mean(np.array(said) == np.array(meant))))
    assert last["eval_f1"] == pytest.approx(f1_score(meant, said, average="macro")) and last["eval_f1"] > 0.4
    assert "eval_perplexity" not in last
    merged_of(folder / "adapter", tmp_path / "again", base=bases)
    again: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "again")
    assert again.config.id2label == model.config.id2label
    assert all(torch.allclose(one, model.get_parameter(name), atol=1e-6) for name, one in again.named_parameters())


@pytest.mark.real
def test_words_are_tagged_and_the_figures_are_those_of_the_model(bases: Path, tmp_path: Path) -> None:
    folder, config = trained("token-classification", bases, tmp_path)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "final_model")
    model: Any = AutoModelForTokenClassification.from_pretrained(folder / "final_model").eval()
    counts = np.zeros(3)
    for text, target in zip(*held_out(config, folder), strict=True):
        words, tags = json.loads(text), json.loads(target)
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            guesses = model(**encoded).logits[0].argmax(-1).tolist()
        ids = encoded.word_ids()
        said = [model.config.id2label[guesses[ids.index(word)]] for word in range(len(words))]
        counts += len(entities(said) & entities(tags)), len(entities(said)), len(entities(tags))
    last = evaluations(folder)[-1]
    precision, recall = counts[0] / counts[1], counts[0] / counts[2]
    assert (last["eval_precision"], last["eval_recall"]) == (pytest.approx(precision), pytest.approx(recall))
    assert last["eval_f1"] == pytest.approx(2 * precision * recall / (precision + recall)) and last["eval_f1"] > 0.8


@pytest.mark.real
def test_a_masked_model_learns_with_its_own_tokenizer(bases: Path, tmp_path: Path) -> None:
    folder, _ = trained("masked-lm", bases, tmp_path, training__max_steps=20, evaluation__every_steps=10)
    first, last = evaluations(folder)
    assert last["eval_loss"] < first["eval_loss"] < 6
    tokenizer = AutoTokenizer.from_pretrained(folder / "final_model")
    assert tokenizer.mask_token == "[MASK]" and len(tokenizer) == 400
    assert AutoModelForMaskedLM.from_pretrained(folder / "final_model").config.model_type == "bert"
