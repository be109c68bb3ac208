"""What other programs need to run a model: Ollama's Modelfile, and the commands of vLLM, llama.cpp and MLX."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Literal, get_args

from trainwiz.core.catalog.model_config import ADAPTER_FILE
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.model.found import CONFIG, FoundModel, find_model
from trainwiz.core.run.folder import read_json
from trainwiz.core.text import number, plain_text

Target = Literal["ollama", "vllm", "gguf", "mlx"]
TARGETS: tuple[Target, ...] = get_args(Target)
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What --max-lora-rank of vLLM takes."""
GGUF_FAMILIES = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3"}
"""Model types that trainwiz writes as GGUF itself -> architecture of the gguf package."""
GENERATION = "generation_config.json"
OLLAMA_PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repetition_penalty": "repeat_penalty",
}
"""Setting of generation_config.json -> PARAMETER of a Modelfile."""


def _text(notes: list[str], body: str) -> str:
    """A text for another program: its notes say what must hold first, as comments above it."""
    return "".join(f"# {plain_text(note)}\n" for note in notes) + body


def go_template(parts: dict[str, Any]) -> str:
    """The template in the language of Ollama: the text before the answer to the last turn.

    Ollama joins turns of one speaker that follow each other, and gives the system turns as `.System` as well.
    """
    start = _go(parts["start"])
    if parts["system"] is not None:
        before, behind = map(_go, parts["system"])
        start = "{{ if .System }}" + before + "{{ .System }}" + behind + "{{ else }}" + start + "{{ end }}"
    return (
        start + "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}"
        '{{ if eq .Role "user" }}{{ .Content }}{{ if $last }}' + _go(parts["ask"]) + "{{ end }}"
        '{{ else if eq .Role "assistant" }}' + _go(parts["answer"]) + "{{ .Content }}" + "{{ if not $last }}"
        + _go(parts["user"]) + "{{ end }}{{ end }}{{ end }}"
    )  # fmt: skip


def _go(text: str) -> str:
    """As it is; as a literal of Go's where a template, a Modelfile or a terminal would read it otherwise."""
    if not any(mark in text for mark in ("{", "}", '"""')) and text.replace("\n", "").isprintable():
        return text
    shown = (letter if letter.isprintable() and letter not in '"\\' else f"\\U{ord(letter):08x}" for letter in text)
    return '{{ "' + "".join(shown) + '" }}'


def modelfile(model: FoundModel, known: dict[str, Any], merged: Path | None) -> str:
    """`known`: what is known of the template (core/training/chats.py). `merged`: where the merged
    model will lie, for an adapter."""
    unreadable = tr(
        "If Ollama cannot read these safetensors, convert them first and put the resulting file in FROM: {command}",
        command=f"trainwiz model export {_quoted(model.path)} --gguf",
    )
    notes = [
        *_merge_first(model, merged),
        tr("Create it with: ollama create {name} -f Modelfile", name=_slug(model)),
        unreadable,
        *_template_notes(known),
    ]
    lines = [f"FROM {plain_text((merged or model.path).resolve())}"]
    if known["parts"] is not None:
        lines.append(f'TEMPLATE """{go_template(known["parts"])}"""')
    lines += [f'PARAMETER stop "{stop}"' for stop in known["stops"]]
    own = generation_settings(model)
    sampling = {name: number(own.get(name)) for name in OLLAMA_PARAMETERS if own.get("do_sample")}
    lines += [f"PARAMETER {OLLAMA_PARAMETERS[name]} {value:g}" for name, value in sampling.items() if value is not None]
    if not sampling:
        notes.append(tr("The model has no sampling settings; Ollama's defaults apply (temperature 0.8)."))
    if model.config is not None:
        limit = model.config.batch.sequence_length
        notes.append(tr("Trained on at most {n} tokens; the limit in Ollama is num_ctx.", n=limit))
    return _text(notes, "\n".join(lines) + "\n")


def _template_notes(known: dict[str, Any]) -> list[str]:
    if known["problem"] == "none":
        return [tr("The model has no chat template, so there is no TEMPLATE: Ollama passes texts on unchanged.")]
    if known["parts"] is None:
        note = tr(
            "The model's chat template does more than add text around turns, so no TEMPLATE is written: Ollama picks "
            "one of its own templates by similarity with the template in the GGUF. Compare its answers with "
            "`trainwiz model chat`."
        )
        return [note]
    notes = [tr("TEMPLATE renders {n} test conversations exactly like the tokenizer.", n=known["chats"])]
    if known["parts"]["system"] is None:
        notes.append(tr("The model's chat template does not support system turns; Ollama drops them."))
    if known["dated"]:
        notes.append(tr("The model's chat template inserts today's date; TEMPLATE keeps the date of this export."))
    left_out = tr(
        "Not included: tools, images, thinking, and the stripping of whitespace at the ends of a turn that some "
        "templates do."
    )
    return [*notes, left_out]


def generation_settings(model: FoundModel) -> dict[str, Any]:
    """generation_config.json of the model, else of its base."""
    found = (read_json(folder / GENERATION) for folder in (model.path, model.base) if folder is not None)
    return next((values for values in found if values is not None), {})


def own_stops(model: FoundModel) -> list[int]:
    """Tokens that end an answer by the generation config."""
    said = generation_settings(model).get("eos_token_id")
    return [token for token in (said if isinstance(said, list) else [said]) if isinstance(token, int)]


def command_for(target: Target, model: FoundModel, merged: Path | None, known: dict[str, Any]) -> str:
    """`merged`: where the merged model will lie, for an adapter."""
    source, name = _quoted(merged or model.path), _slug(model)
    if target == "vllm":
        return _vllm(model, merged, known)
    if target == "gguf":
        command = f"python llama.cpp/convert_hf_to_gguf.py {source} --outfile {name}.gguf --outtype auto"
        kind = model.architecture.get("model_type")
        notes = [
            tr("Needs a version of llama.cpp that supports {type} models, and the packages in its requirements.txt.", type=kind),
            tr("To make it smaller afterwards: llama-quantize FILE.gguf FILE-q4.gguf Q4_K_M"),
        ]  # fmt: skip
        if kind in GGUF_FAMILIES:
            notes.append(tr("trainwiz can write the file itself: add --to {name}.gguf", name=name))
    else:
        command = f"mlx_lm.convert --hf-path {source} --mlx-path {name}-mlx -q"
        notes = [
            tr("Needs a Mac with Apple silicon and mlx-lm: pip install mlx-lm"),
            tr("-q quantizes it to 4 bits; omit it for 16 bits."),
        ]
    return _text([*_merge_first(model, merged), *notes], command + "\n")


def _vllm(model: FoundModel, merged: Path | None, known: dict[str, Any]) -> str:
    notes = [tr("Needs vLLM: pip install vllm")]
    if known["unheard"]:
        ends = tr(
            'Send "stop": ["{token}"] with each request: no setting of the model ends an answer there.',
            token=known["unheard"],
        )
        notes.append(ends)
    adapter = read_json(model.path / ADAPTER_FILE) or {}
    rank = number(adapter.get("r")) or LORA_RANKS[-1] + 1
    if model.base is None or model.kind == "whole":
        return _text(notes, f"vllm serve {_quoted(model.path)}\n")
    if adapter.get("use_dora") or adapter.get("modules_to_save") or rank > LORA_RANKS[-1]:
        why = tr("vLLM only loads plain LoRA adapters up to rank {n}; this one must be merged.", n=LORA_RANKS[-1])
        return _text([why, *_merge_first(model, merged)], f"vllm serve {_quoted(merged or model.path)}\n")
    room = next(size for size in LORA_RANKS if size >= rank)
    words = ["vllm", "serve", str(model.base.resolve()), "--enable-lora", "--max-lora-rank", str(room)]
    words += ["--lora-modules", f"{_slug(model)}={model.path.resolve()}"]
    template = model.tokenizer / "chat_template.jinja"
    if template.is_file() and model.tokenizer != model.base:
        words += ["--tokenizer", str(model.tokenizer.resolve()), "--chat-template", str(template.resolve())]
    notes.append(tr('Select the adapter by its name in requests: "model": "{name}".', name=_slug(model)))
    return _text(notes, shlex.join(words) + "\n")


def whole_model(model: FoundModel, merged: Path | None) -> FoundModel:
    """The model, or the merged one of an adapter. Raises UsageError where it is not merged yet."""
    if missing := _merge_first(model, merged):
        raise usage_error("not_merged", str(model.path), missing[0])
    return model if merged is None else find_model(str(merged))


def _merge_first(model: FoundModel, merged: Path | None) -> list[str]:
    """An adapter is merged first, unless it is already."""
    if merged is None or (merged / CONFIG).is_file():
        return []
    command = f"trainwiz model merge {_quoted(model.path)} --to {_quoted(merged)}"
    return [tr("This is an adapter. Merge it first: {command}", command=command)]


def merged_folder(model: FoundModel) -> Path | None:
    """Where the commands look for the merged model of an adapter."""
    return None if model.kind == "whole" else Path(f"{model.name}-merged")


def check_exportable(model: FoundModel, asked: list[Target]) -> Target:
    """Raises UsageError."""
    if len(asked) != 1:
        names = ", ".join(f"--{target}" for target in TARGETS)
        raise usage_error("bad_choice", "--ollama", tr("Specify the program: one of {names}.", names=names))
    if model.task != "causal-lm":
        message = tr(
            "{name} is a {task} model; Ollama, vLLM, llama.cpp and MLX need causal language models.",
            name=model.name,
            task=model.task,
        )
        raise usage_error("wrong_task", "PATH", message)
    return asked[0]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _slug(model: FoundModel) -> str:
    """A name that every program takes."""
    return re.sub(r"[^a-z0-9._-]+", "-", model.name.lower()).strip("-.") or "model"
