"""`trainwiz model merge|card|push|export`: what becomes of a finished model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from trainwiz.core.errors import EXIT_FINISHED, usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.model.export import (
    Target,
    check_exportable,
    command_for,
    merged_folder,
    modelfile,
    own_stops,
    whole_model,
)
from trainwiz.core.model.found import FoundModel, find_model
from trainwiz.core.model.publish import check_account, model_card, plan_upload, push
from trainwiz.core.text import plain_text
from trainwiz.tui.commands.exchange import check_free, write_new
from trainwiz.tui.commands.model import harmless, load_libraries
from trainwiz.tui.output import agreed, is_terminal, say, say_json, say_rows
from trainwiz.tui.text import percent, size

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def run_merge(path: str, to: str, *, dtype: str | None, base: str | None, as_json: bool) -> int:
    model = find_model(path, base)
    if model.kind == "whole" or model.base is None:
        message = tr("{path} is already a full model; there is nothing to merge.", path=model.path)
        raise usage_error("nothing_to_merge", "PATH", message)
    dtype = dtype or DTYPES.get(model.dtype, "fp32")
    if dtype not in DTYPES.values():
        raise usage_error("bad_choice", "--dtype", tr("--dtype must be bf16, fp16 or fp32."))
    place = Path(to)
    check_free(place)

    def tell(part: str) -> None:
        if not as_json and is_terminal(sys.stderr):
            say(f"{part}…", sys.stderr)

    load_libraries()
    from trainwiz.core.training.model_loading import merge
    from trainwiz.core.training.speak import in_words

    with in_words():
        found = merge(model, place, dtype, tell)
    if as_json:
        say_json({"path": str(place), "base": str(model.base), **found})
    else:
        _say_merged(model, place, found)
    return EXIT_FINISHED


def _say_merged(model: FoundModel, place: Path, found: dict[str, Any]) -> None:
    checked = tr(
        "merged and unmerged logits differ by at most {merged_difference} on {n} prompts (largest logit "
            "{largest_logit}, in {kind})",
        n=found["prompts"], kind=found["summed_in"], merged_difference=f"{found['merged_difference']:.2g}",
        largest_logit=f"{found['largest_logit']:.2g}",
    )  # fmt: skip
    rows = [
        (tr("Merged"), f"{plain_text(place)} ({found['dtype']})"),
        (tr("Base"), plain_text(model.base_name or "")),
        (tr("Checked"), checked),
    ]
    if "trained" in found:
        rows.append((tr("{bits}-bit", bits=model.bits), _against_trained(found["trained"])))
    say_rows([*rows, (tr("Stops at"), plain_text(" ".join(found["stops"])))])


def _against_trained(trained: dict[str, Any] | None) -> str:
    """What the base in few bits, on which the adapter was trained, makes of the difference."""
    if trained is None:
        return tr(
            "the adapter was trained on this quantized base; the difference can't be measured on this machine "
            "(no bitsandbytes)"
        )
    return tr(
        "the adapter was trained on this quantized base: compared with it, logits differ by at most {difference}, "
        "and the most likely next token is the same at {share} of positions",
        difference=f"{trained['difference']:.2g}",
        share=percent(trained["same_next_token"]),
    )


def _out(text: str, to: str | None) -> int:
    if to is None:
        sys.stdout.write(harmless(text))
    else:
        write_new(Path(to), text)
    return EXIT_FINISHED


def run_card(path: str, to: str | None) -> int:
    return _out(model_card(find_model(path)), to)


def run_model_export(path: str, *, to: str | None, merged: str | None, **targets: bool) -> int:
    model = find_model(path)
    target = check_exportable(model, [cast("Target", name) for name, chosen in targets.items() if chosen])
    place = Path(merged) if merged is not None else merged_folder(model)
    if target == "gguf" and to is not None and Path(to).suffix == ".gguf":
        return _write_gguf(model, whole_model(model, place), Path(to))
    load_libraries()
    from trainwiz.core.training.chats import template_parts
    from trainwiz.core.training.model_loading import config_of, load_tokenizer

    known = template_parts(load_tokenizer(model, config_of(model)), own_stops(model))
    made = modelfile(model, known, place) if target == "ollama" else command_for(target, model, place, known)
    return _out(made, to)


def _write_gguf(named: FoundModel, model: FoundModel, place: Path) -> int:
    check_free(place)
    load_libraries()
    from trainwiz.core.training.gguf_file import write_gguf
    from trainwiz.core.training.speak import in_words

    with in_words():
        found = write_gguf(model, place, named.name)
    written = f"{plain_text(place)} ({found['dtype']}, {size(found['bytes'])})"
    say_rows([(tr("Written"), written), (tr("Stops at"), plain_text(" ".join(found["stops"])))])
    return EXIT_FINISHED


def run_push(path: str, repo: str, *, public: bool, yes: bool, base: str | None) -> int:
    model = find_model(path)
    upload = plan_upload(model, repo, public=public, base=base)
    account = check_account()
    seen = tr("public") if public else tr("private")
    rows = [(tr("To"), f"{plain_text(repo)} · {seen} · {tr('as {name}', name=plain_text(account))}")]
    rows += [("", f"{plain_text(file.name)}   {size(file.stat().st_size)}") for file in upload.files]
    made = mark("{name}   {size}, generated for the upload")
    rows += [("", tr(made, name=name, size=size(len(text.encode())))) for name, text in upload.written.items()]
    if upload.left:
        rows.append((tr("Skipped"), plain_text(", ".join(upload.left))))
    say_rows(rows)
    question = tr("Upload {amount} to {repo}? [y/N] ", amount=size(upload.size), repo=plain_text(upload.repo))
    if not yes and not agreed(question, tr("Uploading needs confirmation; add --yes.")):
        say(tr("Nothing was uploaded."))
        return EXIT_FINISHED
    say(tr("Uploaded: {address}", address=plain_text(push(upload))))
    return EXIT_FINISHED
