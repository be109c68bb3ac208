"""Which tokenizer a run gets: the named one, the model's own, one from the data; and what is said when none works."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from trainwiz.core.catalog.models import load_models
from trainwiz.core.errors import UsageError
from trainwiz.core.training import tokenizer as tokenizer_training
from trainwiz.core.training.tokenizer import SPECIAL_TOKENS, build_tokenizer, forced_first_token
from transformers import AutoTokenizer, NllbTokenizer, PreTrainedTokenizerFast

from tests.conftest import REPOSITORY
from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import CHINESE, SENTENCES, small_tokenizer, text_rows
from tests.each import each

T5 = text_config("t5-chat-tiny").model.architecture or {}
ROWS = text_rows(SENTENCES, CHINESE * 40, held_out=3)


def test_a_model_from_scratch_gets_one_from_its_rows_that_is_found_again(tmp_path: Path) -> None:
    config = text_config("t5-chat-tiny", model__architecture={**T5, "vocab_size": 300})
    made = build_tokenizer(config, tmp_path, ROWS)
    assert len(made) <= 300 and made.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    for text in ("the old fox", CHINESE[0], "Ünïcödé \t emoji 🙂"):
        tokens = made(text)["input_ids"]
        assert tokens[-1] == made.eos_token_id
        assert made.decode(tokens, skip_special_tokens=True) == text
    written = (tmp_path / "tokenizer" / "tokenizer.json").read_bytes()
    other = text_rows(["completely different rows"] * 50)
    again = build_tokenizer(config, tmp_path, other)
    assert again.get_vocab() == made.get_vocab()
    assert (tmp_path / "tokenizer" / "tokenizer.json").read_bytes() == written
    build_tokenizer(config, tmp_path / "elsewhere", ROWS)
    assert (tmp_path / "elsewhere" / "tokenizer" / "tokenizer.json").read_bytes() == written, "the same rows, the same"


OF_EACH_KIND = {
    (spec.architecture or {})["model_type"]: name for name, spec in load_models().items() if spec.task != "masked-lm"
}


@each("name", sorted(OF_EACH_KIND.values()))
def test_beside_its_model_it_loads_as_the_one_that_trained(name: str, tmp_path: Path) -> None:
    """Numbers, empty lines and accents: where families of models cut text in different ways."""
    config = text_config(name)
    texts = ["in 1234 and 1235 they're\n\n\nfine.\n\n  Yes!\n\n", "cafe\u0301 \u00e9t\u00e9", "你好。\n\n12345，"]
    made = build_tokenizer(config, tmp_path, text_rows(texts * 20))
    made.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": config.model.architecture["model_type"]}))
    loaded = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert [loaded(text)["input_ids"] for text in texts] == [made(text)["input_ids"] for text in texts]
    assert (loaded.eos_token_id, loaded.pad_token_id) == (made.eos_token_id, made.pad_token_id)


def test_those_that_start_together_share_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lock is on the open file, so threads wait for each other as processes do."""
    config = text_config("gpt2-tiny")
    with ThreadPoolExecutor(3) as pool:
        sizes = set(pool.map(lambda _: len(build_tokenizer(config, tmp_path, ROWS)), range(3)))
    assert len(sizes) == 1
    assert capsys.readouterr().out.count("trained on the training rows") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tokenizer.lock", "tokenizer"]


def test_the_models_own_comes_before_one_from_the_data(tmp_path: Path) -> None:
    model = tmp_path / "model"
    small_tokenizer(tmp_path, vocabulary=350).save_pretrained(model)
    (model / "config.json").write_text(json.dumps({**(text_config("gpt2-tiny").model.architecture or {})}))
    config = text_config("gpt2-tiny", model__name=str(model))
    run = tmp_path / "run"
    run.mkdir()
    assert len(build_tokenizer(config, run, ROWS)) <= 350
    assert not (run / "tokenizer").exists()
    config.model.tokenizer = "train"
    assert len(build_tokenizer(config, run, text_rows(SENTENCES * 3))) != 350
    assert (run / "tokenizer").is_dir()


@each(
    ("model", "changes", "code", "message"),
    [
        *(
            ("gpt2-tiny", {"model__tokenizer": name}, "missing_tokenizer", f"the tokenizer of {name} cannot be loaded")
            for name in ("not-here", "someone/not-here")
        ),
        (
            "gpt2-medium",
            {"model__init": "pretrained"},
            "missing_tokenizer",
            "the tokenizer of openai-community/gpt2-medium cannot be loaded",
        ),
        (
            "gpt2-tiny",
            {"model__architecture": {**T5, "vocab_size": 200}},
            "vocabulary_too_small",
            "vocabulary of 200 entries: it needs at least 261",
        ),
    ],
)
def test_a_tokenizer_that_cannot_be_had_is_one_sentence(
    model: str, changes: dict[str, Any], code: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        build_tokenizer(text_config(model, **changes), tmp_path, ROWS)
    (finding,) = error.value.findings
    assert finding.code == code and message in finding.message and "\n" not in finding.message
    assert not (tmp_path / "tokenizer").exists()


@pytest.mark.all
def test_a_tokenizer_whose_library_is_missing_names_it(tmp_path: Path) -> None:
    """In a process of its own, where sentencepiece cannot be imported whether it is here or not."""
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    script = """if True:
        import sys
        sys.modules["sentencepiece"] = None
        from pathlib import Path
        from trainwiz.core.errors import UsageError
        from trainwiz.core.training.tokenizer import build_tokenizer
        from tests.core.training.runs import text_config
        try:
            build_tokenizer(text_config("opus-mt-tiny", model__tokenizer="."), Path(sys.argv[1]), None)
        except UsageError as error:
            print(error.findings[0].code, error.findings[0].message, sep="\\n")
    """
    command = [sys.executable, "-c", script, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, cwd=REPOSITORY)
    code, message = ended.stdout.splitlines()
    assert code == "missing_package" and "requires the SentencePiece library; install it with pip" in message


def test_a_tokenizer_without_padding_pads_with_its_end_and_one_without_end_is_refused(tmp_path: Path) -> None:
    vocabulary = {"<end>": 0, "fox": 1}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="fox"))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>").save_pretrained(tmp_path / "with")
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path / "without")
    run = tmp_path / "run"
    run.mkdir()
    ready = build_tokenizer(text_config("gpt2-tiny", model__tokenizer="../with"), run, ROWS)
    assert ready.pad_token_id == ready.eos_token_id == 0
    with pytest.raises(UsageError, match="no EOS token"):
        build_tokenizer(text_config("gpt2-tiny", model__tokenizer="../without"), run, ROWS)


def test_a_multilingual_tokenizer_is_told_its_languages(tmp_path: Path) -> None:
    words = ["<s>", "<pad>", "</s>", "<unk>", "▁", "a", "b"]
    vocabulary = {word: number for number, word in enumerate(words)}
    nllb = NllbTokenizer(vocab=vocabulary, merges=[], additional_special_tokens=["zho_Hans", "eng_Latn"])  # type: ignore[no-untyped-call]
    nllb.save_pretrained(tmp_path / "nllb")
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "nllb"), NllbTokenizer)
    config = text_config("nllb-tiny", model__tokenizer="../nllb", model__target_language="xxx")
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(UsageError) as error:
        build_tokenizer(config, run, ROWS)
    assert [finding.where for finding in error.value.findings] == ["model.source_language", "model.target_language"]
    config.model.source_language, config.model.target_language = "zho_Hans", "eng_Latn"
    ready = build_tokenizer(config, run, ROWS)
    ids = {code: ready.convert_tokens_to_ids(code) for code in ("zho_Hans", "eng_Latn")}
    assert ready("a")["input_ids"][0] == ids["zho_Hans"]
    assert ready(text_target="a")["input_ids"][0] == ids["eng_Latn"]
    assert forced_first_token(ready) == ids["eng_Latn"]
    assert forced_first_token(small_tokenizer(tmp_path, ends_texts=True)) is None


def test_of_much_text_a_part_is_counted_and_a_row_of_millions_without_a_space_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted as the one word that it is, it took hours."""
    rows = text_rows(["ab" * 1_000_000, "a text"])
    counted = [len(text) for batch in tokenizer_training._texts(rows, "causal-lm") for text in batch]
    assert counted == [tokenizer_training.LONGEST_TEXT, 6]
    monkeypatch.setattr(tokenizer_training, "MOST_BYTES", 500)
    (chosen,) = tokenizer_training._texts(text_rows([f"{number:05d}" for number in range(1000)]), "causal-lm")
    assert chosen == [f"{number:05d}" for number in range(0, 1000, 10)]
