"""prepare_run: from a plan to a run folder with every file in it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError, os_reason
from trainwiz.core.export.files import export_files
from trainwiz.core.findings import Finding
from trainwiz.core.history.planned import planned_fields
from trainwiz.core.history.run import PLANNED
from trainwiz.core.json_text import finite
from trainwiz.core.language import tr
from trainwiz.core.launch.portable import needed, relative_to_folder
from trainwiz.core.launch.target import claim_folder, release_folder
from trainwiz.core.plan.draft import choices_of
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.folder import LAUNCH_SH, PLAN_JSON, RunFolder, write_atomic
from trainwiz.core.run.names import DEFAULT_ROOT, check_name, check_text, new_run_folder
from trainwiz.core.run.state import RunState, write_state
from trainwiz.core.run.stop_window import StopWindow, window_of


def prepare_run(plan: Plan, folder: Path | None = None) -> RunFolder:
    """Write run.yaml, plan.json, the exported files and the state `prepared`; starts nothing.

    `folder` None makes `runs/<time>-<name>`. Raises UsageError when the folder is not empty and
    CannotRunError when it cannot be written or its disk is too small; nothing is written then. The folder of a run
    on another machine is carried there: this disk need not hold its checkpoints.
    """
    check_name(plan.config.name)
    path = folder if folder is not None else new_run_folder(DEFAULT_ROOT, plan.config.name)
    check_text(path)
    run = RunFolder(path)
    needed_bytes = 0 if plan.machine.hypothetical else plan.memory.disk_bytes
    made = claim_folder(path, needed_bytes, forced=plan.config.forced)
    written: list[Path] = []
    try:
        config = relative_to_folder(plan.config, path)
        for name, text in planned_texts(plan, config, path).items():
            written.append(run.file(name))
            write_atomic(run.file(name), text)
        run.file(LAUNCH_SH).chmod(0o755)
        written.append(run.state_json)
        write_state(run, _first_state(plan, config, run))
        # Last: a folder with a run.yaml is a run, and this one is whole now.
        written.append(run.run_yaml)
        write_atomic(run.run_yaml, run_yaml_text(config))
    except OSError as error:
        release_folder(path, written, made)
        message = tr("The run folder {path} could not be written: {reason}.", path=path, reason=os_reason(error))
        raise CannotRunError(Finding("output_not_writable", "error", str(path), message)) from error
    except BaseException:
        release_folder(path, written, made)
        raise
    return run


def planned_texts(plan: Plan, config: RunConfig, path: Path) -> dict[str, str]:
    """File name -> text of all that follows from a plan but run.yaml; `config` is its own, relative to `path`."""
    plan_text = json.dumps(finite(_plan_json(plan, config)), ensure_ascii=False, indent=1, default=str) + "\n"
    paths = [(one.key, one.name) for one in needed(config, path) if one.kind == "path"]
    return {**export_files(plan.config, paths), PLAN_JSON: plan_text}


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
    window = planned_window(plan, config)
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
        engine={"planned": engine_word(config), "actual": None, "planned_values": planned_engine(plan)},
    )


def engine_word(config: RunConfig) -> str:
    """The engine in one word: "single", "ddp", "zero2+offload", ..."""
    strategy = config.engine.strategy or "single"
    return strategy if config.engine.offload == "none" else f"{strategy}+offload"


def planned_engine(plan: Plan) -> dict[str, Any]:
    engine = plan.config.engine
    return {
        "device": engine.device,
        "precision": "tf32" if engine.precision == "fp32" and engine.tf32 else engine.precision,
        "optimizer": engine.optimizer,
        "attention": engine.attention,
        "world_size": plan.batch.world_size,
        "compile": engine.compile,
        "adapter": plan.config.peft.method,
    }


def planned_window(plan: Plan, config: RunConfig) -> StopWindow:
    """How long a graceful stop may take by the plan; measured steps and saves take its place while the run goes on."""
    time_plan, every = plan.time, config.checkpoint.every_steps
    saves = max(1, (time_plan.steps or 1) // every) if every else 1
    save_s = None if time_plan.saving_s is None else time_plan.saving_s / saves
    batch = plan.batch
    return window_of(
        time_plan.step_high_s,
        save_s,
        accumulation=batch.accumulation,
        processes=batch.world_size,
        measured=False,
    )
