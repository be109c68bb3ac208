"""From a plan to a run folder with every file in it, where it may be written."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from trainwiz.core.catalog.hub import is_hub_id
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.formats import format_of, sample_path
from trainwiz.core.errors import CannotRunError, Finding, Remedy, TrainwizError, UsageError, os_reason, usage_error
from trainwiz.core.export.launch_script import export_files
from trainwiz.core.history.run import PLANNED
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.actions import StopWindow, window_of
from trainwiz.core.plan.gather import planned_fields
from trainwiz.core.plan.make import choices_of
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.tasks import names_no_data, only_a_sample
from trainwiz.core.run.folder import (
    DEEPSPEED_JSON,
    DEFAULT_ROOT,
    LAUNCH_SH,
    PLAN_JSON,
    RUN_YAML,
    STATE_JSON,
    RunFolder,
    check_name,
    check_text,
    new_run_folder,
    write_atomic,
)
from trainwiz.core.run.lost import LOCK_FILE
from trainwiz.core.run.state import RunState, write_state
from trainwiz.core.text import finite, plain_text

# Paths in a run folder are relative to it: the training runs there, and the folder may travel.

NO_PATHS: Mapping[str, tuple[str | None, ...]] = {
    "model.tokenizer": (None, "train"),
    "model.chat_template": (None, "own", "chatml"),
    "evaluation.prompts": (None, "none", "rows"),
    "peft.adapter": (None,),
}
"""Key -> its values that stand for no file; any other may be a path."""


def relative_to_folder(config: RunConfig, folder: Path) -> RunConfig:
    """A copy whose local paths, until now relative to the working folder, are relative to `folder`.

    An absolute path becomes relative too, unless it shares nothing with the folder but the root of the
    file system: such a place (another disk, a cluster's share) is no nearer to the folder than to any
    other. Names of samples, of the catalogue and of the hub stay as they are. A DeepSpeed file is
    copied into the folder, so that is where it lies.
    """
    copy = config.model_copy(deep=True)
    for key, name in _names(config):
        if key != "model.name" or name not in load_models():
            parent, _, field = key.rpartition(".")
            setattr(copy.value(parent), field, _moved(name, folder))
    if copy.engine.deepspeed_file is not None:
        copy.engine.deepspeed_file = DEEPSPEED_JSON
    return copy


def travel_notes(config: RunConfig, folder: Path) -> tuple[str, ...]:
    """Sentences for whoever carries the folder to another machine; () when it holds all that it needs. `config` is that of
    run.yaml, its paths relative to `folder`."""
    files, of_hub = list[str](), list[str]()
    for key, name in _names(config):
        if key == "model.name":
            # run.yaml holds the architecture: from scratch, only a folder can hold more (a tokenizer).
            if config.model.init != "pretrained" and not (folder / name).is_dir():
                continue
            known = load_models().get(name)
            name = known.hub_id or name if known is not None else name
        wanted = of_hub if _is_on_the_hub(name) and not (folder / name).exists() else files
        wanted.append(f"{name} ({key})")
    sentences = {
        mark("To start this folder elsewhere, also copy the files it reads from outside: {names}."): files,
        mark("The machine that starts it needs these from the Hub or in its cache: {names}."): of_hub,
    }
    return tuple(tr(sentence, names=", ".join(names)) for sentence, names in sentences.items() if names)


def _names(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Key and value of each setting that may name a local file or folder."""
    for group in ("data.sources", "data.validation_sources"):
        for number, source in enumerate(config.value(group)):
            if sample_path(source.name) is None:
                yield f"{group}.{number}.name", source.name
    yield "model.name", config.model.name
    yield from ((key, str(value)) for key, none in NO_PATHS.items() if (value := config.value(key)) not in none)


def _is_on_the_hub(name: str) -> bool:
    """A name that is not here: a hub id, or a file that is yet to come (`data/train.parquet`)?"""
    return is_hub_id(name) and format_of(Path(name)) is None


def _moved(name: str, folder: Path) -> str:
    path = Path(name).expanduser()
    if not path.is_absolute() and not path.exists() and _is_on_the_hub(name):
        return name
    # Both sides resolved: "..", taken as text, would lead elsewhere through a symbolic link.
    # Path.resolve() fails for a link that leads to itself, which is what the data's own sentence is about.
    real, start = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    shares_only_the_root = len(Path(os.path.commonpath([real, start])).parts) <= 1
    return str(path) if path.is_absolute() and shares_only_the_root else os.path.relpath(real, start)


# The folder that a run will be written to: may it be, can it be? Whether its disk has room is a finding of the plan.


def _refuse_what_is_there(folder: Path) -> None:
    try:
        entries = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:  # A name that is too long, links that go in circles, a disk that does not answer.
        raise _refusal(folder, error) from None
    if RUN_YAML in entries:
        message = tr("{path} already contains a run. Resume it: trainwiz --resume --output-dir {path}", path=folder)
        raise usage_error("output_not_empty", str(folder), message)
    if entries:
        message = tr(
            "{path} is not empty, and existing files are never overwritten. Specify a new folder.", path=folder
        )
        raise usage_error("output_not_empty", str(folder), message)


def _refusal(folder: Path, error: OSError) -> TrainwizError:
    if error.errno == errno.EEXIST:
        message = tr("Another start has just claimed {path}. Specify a new folder.", path=folder)
        return usage_error("output_taken", str(folder), message)
    if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        message = tr("{path} cannot be a folder: {reason}.", path=plain_text(folder, 100), reason=os_reason(error))
        return usage_error("output_not_a_folder", str(folder), message)
    message = tr("The run folder {path} is not writable: {reason}.", path=folder, reason=os_reason(error))
    elsewhere = Remedy(tr("Choose a folder on another disk with --output-dir."))
    return CannotRunError(Finding("output_not_writable", "error", str(folder), message, (elsewhere,)))


# prepare_run: from a plan to a run folder with every file in it.


def prepare_run(plan: Plan, folder: Path | None = None) -> RunFolder:
    """Write run.yaml, plan.json, the exported files and the state `prepared`; starts nothing.

    `folder` None makes `runs/<time>-<name>`. Raises UsageError when the folder is not empty, is a file, is taken by
    another start in the same moment, or is to be carried to another machine without data of its own, and
    CannotRunError when it cannot be written; nothing is left behind then.
    """
    check_name(plan.config.name)
    if plan.machine.hypothetical and names_no_data(plan.config):
        # A plan for another machine need not name any; a folder would train on the sample there.
        raise UsageError(only_a_sample(plan.config))
    path = folder if folder is not None else new_run_folder(DEFAULT_ROOT, plan.config.name)
    check_text(path)
    run = RunFolder(path)
    _refuse_what_is_there(path)
    with ExitStack() as undo:
        try:
            for above in reversed([above for above in (path, *path.parents) if not above.exists()]):
                with suppress(
                    FileExistsError
                ):  # By another start, in the same moment; the lock decides between the two.
                    above.mkdir()
                    undo.callback(_remove, above)
            # Two commands in the same moment: exactly one of them makes this file.
            os.close(os.open(run.file(LOCK_FILE), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            undo.callback(_remove, run.file(LOCK_FILE))
            config = relative_to_folder(plan.config, path)
            texts = planned_texts(plan, config)
            for name in (*texts, STATE_JSON, RUN_YAML):
                undo.callback(_remove, run.file(name))
            for name, text in texts.items():
                write_atomic(run.file(name), text)
            run.file(LAUNCH_SH).chmod(0o755)
            write_state(run, _first_state(plan, config, run))
            # Last: a folder with a run.yaml is a run, and this one is whole now.
            write_atomic(run.run_yaml, run_yaml_text(config))
        except OSError as error:
            raise _refusal(path, error) from error
        undo.pop_all()
    return run


def _remove(path: Path) -> None:
    """A file of this start, or a folder that it has made and that is empty again."""
    with suppress(OSError):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


def planned_texts(plan: Plan, config: RunConfig) -> dict[str, str]:
    """File name -> text of all that follows from a plan but run.yaml; `config` is its own, relative to the run folder."""
    plan_text = json.dumps(finite(_plan_json(plan, config)), ensure_ascii=False, indent=1, default=str) + "\n"
    return {**export_files(plan.config), PLAN_JSON: plan_text}


def _plan_json(plan: Plan, config: RunConfig) -> dict[str, Any]:
    """The plan with the paths of run.yaml, so that the folder says nothing of the machine that it was made on."""
    document = plan.to_json()
    document["machine"] = {**document["machine"], "disk_path": "."}
    # A few rows again and again, or a profiler beside the steps: not the pace of this plan.
    mode = config.mode
    ordinary = mode.overfit_batches is None and mode.trace_steps is None
    document[PLANNED] = planned_fields(plan) if ordinary else None
    choices = choices_of(config.model_copy(update={"origins": plan.config.origins}))
    return {**document, "choices": [asdict(choice) for choice in choices]} if plan.choices else document


def run_yaml_text(config: RunConfig) -> str:
    """The complete RunConfig as YAML, in the order of its sections."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def _first_state(plan: Plan, config: RunConfig, run: RunFolder) -> RunState:
    window, engine = planned_window(plan, config), plan.config.engine
    strategy = engine.strategy or "single"
    planned = {
        "device": engine.device,
        "precision": "tf32" if engine.precision == "fp32" and engine.tf32 else engine.precision,
        "optimizer": engine.optimizer,
        "attention": engine.attention,
        "world_size": plan.batch.world_size,
        "compile": engine.compile,
        "adapter": plan.config.peft.method,
    }
    return RunState(
        status="prepared",
        name=run.path.name,
        profile=plan.profile,
        model=config.model.name,
        task=config.task,
        max_steps=plan.time.steps or config.training.max_steps,
        created_s=time.time(),
        grace_s=window.window_s,
        window=window.to_json(),
        engine={
            "planned": strategy if engine.offload == "none" else f"{strategy}+offload",
            "actual": None,
            "planned_values": planned,
        },
    )


def planned_window(plan: Plan, config: RunConfig) -> StopWindow:
    """How long a graceful stop may take by the plan; measured steps and saves take its place while the run goes on."""
    time_plan, every = plan.time, config.checkpoint.every_steps
    saves = max(1, (time_plan.steps or 1) // every) if every else 1
    save_s = None if time_plan.saving_s is None else time_plan.saving_s / saves
    batch = plan.batch
    return window_of(
        time_plan.step_high_s, save_s, accumulation=batch.accumulation, processes=batch.world_size, measured=False
    )
