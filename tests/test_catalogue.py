"""The catalogue of texts: complete, compiled, and nothing that people read goes past it."""

from __future__ import annotations

import ast
import gettext
import io
from functools import cache

import pytest

pytest.importorskip("babel", reason="Babel is in the test extra; without it the catalogue cannot be read")

from scripts import catalogue
from scripts.unmarked import unmarked_texts

NOT_TRANSLATED: dict[str, str] = {
    "tui/commands/agent_docs.py": "read by agents, with the English keys of the JSON",
    "core/estimate/trace/emulation.py": "names of torch's operations",
    "core/training/__main__.py": "help of a program that only launch.sh starts",
    "core/diagnosis/patterns.py": "patterns of what frameworks say",
    "core/tracing/request.py": "what is wrong in the answer of a process of ours; the reader of it has a sentence",
}
"""Whole files whose texts nobody reads on a screen -> the reason."""

LOG = "a line of train.log, which is English as torch's around it and is searched for causes by core.diagnose"
LOG_LINES = {
    "core/supervise/by_hand.py": ("state.json could not be written",),
    "core/supervise/keeper.py": ("could not be written", "could not be replaced", "could not be added to the history"),
    "core/supervise/recorder.py": ("could not be sampled",),
    "core/supervise/watch.py": ("could not be watched",),
    "core/supervise/attempt.py": ("resumes from", "starts from the beginning"),
    "core/telemetry/advice.py": ("GPU is lost",),
    "core/training/best.py": ("could not be removed",),
    "core/training/callbacks.py": ("was moved or replaced", "is disabled", "to the run folder", "written in"),
    "core/training/saving.py": (
        "disk space is available again", "to free space for the next", "without a new checkpoint",
        "could not be written", "the incomplete folder was removed",
        "could not be synced to disk", "older checkpoints are kept",
    ),
    "core/training/process.py": ("cannot write the failure file",),
    "core/training/session.py": ("could not be written", "it can be resumed", "at step"),
    "core/training/model.py": ("model saved in", "the best by"),
    "core/training/generation.py": ("answered", "BLEU of"),
    "core/training/tokenizer.py": ("trained on the training rows",),
    "core/training/trainer.py": ("saved in",),
    "core/training/weights.py": ("initialized from scratch",),
}  # fmt: skip
ENGLISH_TEXTS: dict[tuple[str, str], str] = {
    ("core/config/yaml_text.py", "Value error, "): "taken off pydantic's message",
    ("core/data/text_store.py", "text"): "an IndexError of ours, which people do not meet",
    ("core/estimate/architecture.py", "is too large"): "caught where the config is read, which has a sentence",
    ("core/hardware/doctor.py", "docker run"): "a command",
    ("core/estimate/trace/step.py", "Unrecognized configuration"): "a pattern of transformers' messages",
    ("core/estimate/trace/emulation.py", "does not support"): "stands for transformers' message",
    ("core/model/export.py", "{{ if not $last }}"): "Ollama's language of templates",
    ("core/export/training_arguments.py", "is not solved yet"): "a mistake of the caller, which people do not meet",
    ("core/diagnosis/scan.py", "Traceback"): "a pattern of the log",
    ("core/telemetry/log.py", "died with"): "a pattern of the log",
    ("core/telemetry/log.py", "Traceback"): "a pattern of the log",
    ("core/training/chats.py", "for message in messages"): "a template",
    ("core/training/probe.py", "out of memory"): "a pattern of torch's messages",
    ("tui/commands/completion.py", "schema WHAT"): "a command and its argument",
    ("tui/commands/mcp_server.py", "Plans, starts and watches"): "read by an agent, with the English keys of the JSON",
    ("core/training/session.py", "The Quick brown fox"): "a text that shows how a tokenizer cuts",
    **{(file, part): LOG for file, parts in LOG_LINES.items() for part in parts},
}
"""(file, a part of the text) -> why this one stays English."""


@cache
def texts_past_it(place: str) -> list[tuple[int, str]]:
    return list(unmarked_texts((catalogue.ROOT / place).read_text(encoding="utf-8")))


def translations(mo: bytes) -> dict[str, str]:
    """Without the header, which names the version of Babel that wrote it."""
    read: dict[str, str] = vars(gettext.GNUTranslations(io.BytesIO(mo)))["_catalog"]
    return {key: text for key, text in read.items() if key}


@pytest.mark.parametrize("language", catalogue.LANGUAGES)
def test_the_catalogue_holds_the_texts_of_the_code_translated_and_compiled(language: str) -> None:
    read = catalogue.read_language(language)
    compiled = translations(catalogue.po_path(language).with_suffix(".mo").read_bytes())
    assert compiled == translations(catalogue.mo_bytes(read)), "run: python scripts/catalogue.py compile"
    there = {catalogue.key_of(message.id): catalogue.translation_of(message) for message in read if message.id}
    wanted = {catalogue.key_of(message.id) for message in catalogue.template() if message.id}
    assert there.keys() == wanted, "run: python scripts/catalogue.py merge"
    for key, translation in there.items():
        text = key.partition("\0")[0]
        assert translation and catalogue.same_placeholders(key, translation), text
        # Indents and gaps are layout, which a translation has no say in; a separator may become "，".
        if any(map(str.isalpha, text)):
            assert len(text) - len(text.lstrip()) == len(translation) - len(translation.lstrip()), text
            assert text.endswith(" ") == translation.endswith(" "), text
        options = set(catalogue.re.findall(r"(?<!\S)--[a-z][a-z-]+", text))
        assert options <= set(catalogue.re.findall(r"--[a-z][a-z-]+", translation)), text


OTHER_WORDS = {
    "批次大小": "批量", "批大小": "批量", "微批次": "微批", "梯度累计": "梯度累积", "主机内存": "内存",
    "梯度检查点": "激活重算", "断点": "检查点", "训练任务": "运行", "冒烟任务": "冒烟运行", "热身": "预热",
    "权重衰退": "权重衰减", "词元": "token", "验证集": "留出数据", "全参数微调": "全量微调", "全参微调": "全量微调",
    "从零": "从头训练", "聊天模板": "对话模板", "补齐": "填充", "截短": "截断", "守护进程": "监督进程", "加载器": "数据加载进程",
    "配置方案": "预设", "本计划": "本方案", "该计划": "该方案", "计划针对": "方案针对", "运行目录": "运行文件夹",
    "修复方法": "修复办法", "探测提前": "预取", "您": "你",
}  # fmt: skip
"""Words that the glossary has another one for -> that one."""


def test_chinese_has_the_same_word_for_the_same_thing_and_stands_apart_from_latin_letters() -> None:
    texts = [catalogue.translation_of(message) for message in catalogue.read_language("zh") if message.id]
    assert not [(word, text) for text in texts for word in OTHER_WORDS if word in text]
    han, latin = "[\u4e00-\u9fff]", "[A-Za-z0-9`%]"
    wrong = catalogue.re.compile(f"{han}{latin}|{latin}{han}|[0-9}}] %")
    assert not [text for text in texts if wrong.search(text)], "a blank between them; 35% has none"


def test_only_literals_are_translated_and_each_placeholder_has_its_value() -> None:
    """An f-string or a sum is another text each time: no catalogue has it."""
    wrong = []
    for path in catalogue.source_files():
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.suffix == ".py" else ()
        for call in (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            name = call.func.id  # type: ignore[attr-defined]
            wanted = catalogue.FUNCTIONS.get(name, 0)
            if any(isinstance(one, ast.JoinedStr | ast.BinOp) for one in call.args[:wanted]):
                wrong.append(f"{path}:{call.lineno}: no literal")
            texts = [str(one.value) for one in call.args[:wanted] if isinstance(one, ast.Constant)]
            given = {keyword.arg for keyword in call.keywords}
            if name == "mark" or not texts or None in given:
                continue
            named = set().union(*map(catalogue.placeholders, texts)) if given or wanted == 2 else set()
            if named - given - ({"n"} if wanted == 2 else set()) or given - named:
                wrong.append(f"{path}:{call.lineno}: {sorted(named)} and {sorted(map(str, given))}")
    assert not wrong


def test_no_text_goes_past_the_catalogue_and_no_exception_is_left_over() -> None:
    found = []
    for path in catalogue.source_files():
        place = path.relative_to(catalogue.ROOT).as_posix()
        if path.suffix == ".py" and place not in NOT_TRANSLATED:
            english = [part for file, part in ENGLISH_TEXTS if file == place]
            texts = [(line, text) for line, text in texts_past_it(place) if not any(part in text for part in english)]
            found += [f"{place}:{line}: {text!r}" for line, text in texts]
    assert not found, "put these into tr, trn or mark, or list them above with the reason:\n" + "\n".join(found)
    assert not [name for name in NOT_TRANSLATED if not texts_past_it(name)]
    assert not [one for one in ENGLISH_TEXTS if not any(one[1] in text for _, text in texts_past_it(one[0]))]
    assert list(unmarked_texts('say(tr("{a}", a="the other one"))')), "what is put into a text is one too"
