"""Which reader a text is for, what is pasted, and one sentence for all that is none of the kinds."""

from pathlib import Path

import pytest
from trainwiz.core.importing import gather
from trainwiz.core.importing.gather import (
    COMMAND,
    Text,
    decoded,
    import_together,
    name_after,
    pasted_text,
    texts_of_pasted,
)
from trainwiz.core.importing.report import Imported, NotImportable
from trainwiz.core.language import use_language

from tests.each import each

ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"

ALIASES = "\n".join(
    ["a: &a [x, x]", *(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in ("ab", "bc", "cd", "de", "ef", "fg"))]
)
REFUSED = [
    ("a.yaml", "", "is empty"), ("a.yaml", "hello world", "expected `key: value`"), ("a.yaml", "[1, 2]", "expected `key: value`"),
    ("a.yaml", 'distributed_type: NO\nx: !!python/object/apply:os.system ["exit 1"]\n', "line 2"),
    ("a.yaml", ALIASES, "aliases"), ("a.yaml", "color: red\n", "cannot be imported"), ("a.yaml", "a: [1", "line 1, column 6: not valid YAML"),
    ("a.yaml", "name: x\nvalues:\n  task: causal-lm\n", "cannot be imported"),
    ("a.yaml", "num_machines: 1\nnum_processes: 2\n", "no valid `distributed_type`"),
    ("a.yaml", "distributed_type: HOROVOD\n", "no valid `distributed_type`"),
    ("a.json", '{"name": "left-pad", "version": "1.0.0"}', "cannot be imported"),
    ("a.json", '{"log_history": [], "global_step": 4}', "cannot be imported"),
    ("a.json", '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}', "cannot be imported"),
    ("ds.json", '{"zero_optimization": {"stage": 2', "line 1, column 34"),
    ("ds.json", '{\n// "a" {\n"zero_optimization": {"stage": ]}\n}', "line 3, column 32"),
    ("a.yaml", "learning_rate: 1\nlearning_rate: 2\n", "duplicate key"),
    ("ds.json", '{"a":' * 5_000, "nested too deeply"),
    ("x.py", "print('hello')", "cannot be imported"), ("x.py", "def f(:\n", "line 1: this is not valid"),
    ("x.py", "p = HfArgumentParser((A, B))\n", "from the command line (line 1)"),
    ("x.py", "x = " + "(" * 5000, "too many nested"), ("x.py", "x = " + "-" * 100_000 + "1", "not valid Python"),
    ("pasted", "args = TrainingArguments(learning_rate=1e-4, num_tr", "not valid Python"),
    *((COMMAND, command, "no command that starts a training") for command in (
        "python -c 'print(1)'", "python --version", "echo python", "torchrun",
        "python -m pip install x", "llamafactory-cli chat a.yaml", "axolotl preprocess a.yml",
    )),
    (COMMAND, "accelerate launch --config_file x.yaml", "line 1 contains no script"),
    *((COMMAND, command, "cannot be imported") for command in ("ls -l", "pip install torch", "accelerate config")),
    # What only holds or names a command.
    ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.9"\ndeepspeed = "*"\n', "cannot be imported. Supported kinds"),
    ("requirements.txt", "torch>=2.1\naccelerate\ndeepspeed\ntrl\n", "no command that starts a training"),
    ("sub/Makefile", "train:\n\ttorchrun --nproc_per_node=2 train.py\n", "cannot be imported"),
    ("README.md", "Start it:\n\n```bash\ntorchrun train.py --learning_rate 1e-4\n```\n", "cannot be imported"),
    ("run.sh", "cat <<EOF > ds.json\n{}\nEOF\ndeepspeed train.py\n", "among other text"),
]  # fmt: skip


@each(("file", "text", "said"), REFUSED)
def test_what_cannot_be_imported_is_refused_in_one_sentence(file: str, text: str, said: str) -> None:
    with pytest.raises(NotImportable) as caught:
        gather.read(text, file)
    (finding,) = caught.value.findings
    assert said in finding.message and "\n" not in finding.message
    assert finding.message.startswith(file)


def test_files_as_windows_writes_them_and_what_is_no_text() -> None:
    assert decoded(ACCELERATE.encode("utf-16"), "a.yaml") == ACCELERATE
    assert decoded(ACCELERATE.encode("utf-8-sig"), "a.yaml") == ACCELERATE
    for data in (b"\xff\x00\x80", b"a\0b", b"x" * (2**20 + 1)):
        with pytest.raises(NotImportable, match=r"^a\.yaml "):
            decoded(data, "a.yaml")


@each("argument", ["", " ", "no-such-file.yaml", "/dev/zero", "a\0b", "x" * 5000, "~nobody-of-that-name/a.yaml"])
def test_arguments_that_are_neither_file_nor_command(argument: str) -> None:
    with pytest.raises(NotImportable) as caught:
        gather.text_of(argument)
    assert len(caught.value.findings) == 1


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(ACCELERATE)
    Path("two words.json").write_text('{"zero_optimization": {"stage": 2}}')


@pytest.mark.usefixtures("here")
def test_lines_that_name_files() -> None:
    for line, name in (("  a.yaml ", "a.yaml"), ("'a.yaml'", "a.yaml"), ("two words.json", "two words.json")):
        assert [text.text for text in texts_of_pasted(line)] == [Path(name).read_text()]
    for nothing in ("", " \n\t\n", "\x07\x1b[31m"):
        assert texts_of_pasted(pasted_text(nothing)) == []
    # Those of a terminal end in carriage returns, and what hides goes.
    assert pasted_text("a: 1\rb: 2\r\nc: 3\n\td") == "a: 1\nb: 2\nc: 3\n\td"
    assert pasted_text("\ufeffa\u202eb\x9b31mc\x07") == "abc"


@pytest.mark.usefixtures("here")
def test_a_command_gives_its_script_as_a_name_and_a_pasted_file_has_none() -> None:
    for line in ("torchrun --nproc_per_node 2 fine_tune.py", "accelerate launch \\\n  fine_tune.py"):
        texts = texts_of_pasted(line)
        assert texts[-1].name in (COMMAND, gather.PASTED) and name_after(import_together(texts)) == "fine_tune"
    use_language("zh")
    try:
        merged = import_together(texts_of_pasted(ACCELERATE))
        assert merged.place_of("engine.processes") == "粘贴的文本:3"
        assert name_after(merged) == gather.FALLBACK
    finally:
        use_language("en")


# Several files and commands together: who wins, and a finding for what they say differently.


LAUNCHED = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
ZERO = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_processes: 4\n"
DEEPSPEED = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}'
SOURCE = """from transformers import TrainingArguments
args = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=8, fp16=True)
"""


def together(folder: Path, *texts: tuple[str, str]) -> Imported:
    return import_together([Text(name, text, folder) for name, text in texts])


def found(merged: Imported, code: str) -> list[tuple[str, str]]:
    return [(one.severity, one.message) for one in merged.findings if one.code == code]


def test_the_command_overrides_the_file_that_it_names_and_its_machines_share_the_processes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LAUNCHED)
    merged = together(tmp_path, ("command", "accelerate launch --config_file a.yaml --num_processes 4 x.py"))
    assert [part.kind for part in merged.parts] == ["launch_command", "accelerate"]
    assert merged.values["engine.processes"] == 4
    assert merged.values["engine.precision"] == "bf16"
    ((_, message),) = found(merged, "contradiction")
    assert "a.yaml:4" in message and "8" in message
    assert ("num_processes", 8) in [(one.name, one.value) for one in merged.dropped]
    merged = together(tmp_path, ("a.yaml", LAUNCHED), ("command", "accelerate launch --num_machines 2 x.py"))
    assert (merged.values["engine.processes"], merged.values["engine.nodes"]) == (4, 2)
    assert ("num_processes", 4) in [(one.name, one.set_to) for one in merged.mapped]


def test_the_trainer_decides_the_batch_and_deepspeed_the_stage(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    merged = together(tmp_path, ("a.yaml", ZERO), ("x.py", SOURCE))
    assert merged.values["engine.strategy"] == "zero3"
    assert merged.values["batch.gradient_accumulation_steps"] == 8
    assert merged.values["batch.target_samples"] == 4 * 8 * 4
    assert len(found(merged, "contradiction")) == 1
    merged = together(tmp_path, ("a.yaml", LAUNCHED), ("x.py", SOURCE))
    ((severity, message),) = found(merged, "contradiction")
    assert (merged.values["engine.precision"], severity) == ("fp16", "warning") and "x.py:2" in message
    merged = together(tmp_path, ("command", "python x.py --fsdp full_shard --deepspeed ds.json"))
    assert merged.values["engine.strategy"] == "zero3"
    # A launcher that names no stage says nothing against the file.
    launcher = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\n"
    stage = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    merged = together(tmp_path, ("a.yaml", launcher), ("ds.json", stage))
    assert merged.values["engine.strategy"] == "zero3" and found(merged, "contradiction") == []


def test_the_batch_of_deepspeed_must_be_that_of_the_processes(tmp_path: Path) -> None:
    for total in (64, 128):
        text = DEEPSPEED.replace("}, ", f'}}, "train_batch_size": {total}, ', 1)
        (tmp_path / "ds.json").write_text(text)
        merged = together(tmp_path, ("a.yaml", ZERO.replace("4", "8")))
        assert merged.values["batch.target_samples"] == 64
        assert bool(found(merged, "contradiction")) is (total != 64)
    # Alone it says how many there are.
    assert together(tmp_path, ("ds.json", text)).values["engine.processes"] == 16


def test_files_that_are_named_and_are_not_here_broken_or_read_already(tmp_path: Path) -> None:
    merged = together(tmp_path, ("a.yaml", ZERO))
    assert "engine.strategy" not in merged.values and found(merged, "missing_file")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {')
    merged = together(tmp_path, ("a.yaml", ZERO))
    assert merged.values["engine.processes"] == 4
    assert "ds.json" in found(merged, "broken_yaml")[0][1]
    (tmp_path / "a.yaml").write_text(ZERO.replace("ds.json", "a.yaml"))
    assert len(together(tmp_path, ("a.yaml", (tmp_path / "a.yaml").read_text())).parts) == 1
