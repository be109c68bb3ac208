"""Comparing runs: where their settings differ, and what came out."""

from __future__ import annotations

from itertools import chain
from typing import Any

import yaml
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.errors import os_reason, usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.listing import summarize_run
from trainwiz.core.run.recovery import changes_now
from trainwiz.core.run.state import read_state
from trainwiz.core.small_file import read_small

LEFT_OUT = ("origins", "name", "schema_version")
ABSENT = None

RESULTS: tuple[tuple[str, str], ...] = (
    ("status", mark("status")),
    ("step", mark("step")),
    ("max_steps", mark("of steps")),
    ("first_loss", mark("first loss")),
    ("last_loss", mark("last loss")),
    ("eval_loss", mark("evaluation loss")),
    ("eval_perplexity", mark("perplexity")),
    ("eval_bleu", "BLEU"),
    ("duration_s", mark("seconds")),
    ("engine", mark("engine")),
    ("attempts", mark("attempts")),
)


def compare_runs(folders: list[RunFolder]) -> dict[str, Any]:
    """{runs: [names], settings: {key path: [value of each]} where they differ, planned: {key path: [value of each]}
    where recovery changed one, results: {name: [value of each]}}.

    The settings are those of the newest attempt, as core.config.effective has them. Raises UsageError for fewer than two runs and for a run.yaml that cannot be read.
    """
    if len(folders) < 2:
        raise usage_error("too_few_runs", "runs", tr("Name two runs or more to compare."))
    planned = [_settings(folder) for folder in folders]
    changes = [changes_now(folder) for folder in folders]
    # Key paths as they stand: a run.yaml of another version, which no RunConfig takes, can be compared too.
    settings = [one | changed for one, changed in zip(planned, changes, strict=True)]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    rows = {key: [one.get(key, ABSENT) for one in settings] for key in keys}
    results = [_results(folder) for folder in folders]
    return {
        "runs": [folder.path.name for folder in folders],
        "settings": {key: values for key, values in rows.items() if any(value != values[0] for value in values[1:])},
        "planned": {key: [one.get(key, ABSENT) for one in planned] for key in dict.fromkeys(chain(*changes))},
        "results": {key: [one[key] for one in results] for key, _ in RESULTS},
    }


def _settings(folder: RunFolder) -> dict[str, Any]:
    try:
        document = load_yaml(read_small(folder.run_yaml).decode())
    except OSError as error:
        message = tr("{path} cannot be read: {reason}.", path=folder.run_yaml, reason=os_reason(error))
        raise usage_error("broken_run_yaml", str(folder.run_yaml), message) from None
    except (UnicodeDecodeError, yaml.YAMLError):
        document = None
    if not isinstance(document, dict):
        message = tr("{path} cannot be read as YAML.", path=folder.run_yaml)
        raise usage_error("broken_run_yaml", str(folder.run_yaml), message)
    return _flat({key: value for key, value in document.items() if key not in LEFT_OUT}, "")


def _flat(node: Any, path: str) -> dict[str, Any]:
    children: list[tuple[str, Any]]
    if isinstance(node, dict) and node:
        children = [(str(key), value) for key, value in node.items()]
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        children = [(str(number), value) for number, value in enumerate(node)]
    else:
        return {path: node}
    found: dict[str, Any] = {}
    for key, value in children:
        found |= _flat(value, f"{path}.{key}" if path else key)
    return found


def _results(folder: RunFolder) -> dict[str, Any]:
    state, summary = read_state(folder), summarize_run(folder)
    outcome = state.outcome or read_json(folder.file("outcome.json")) or {}
    duration_s = None
    if state.started_s is not None and state.ended_s is not None:
        duration_s = round(sum((a.ended_s or a.started_s) - a.started_s for a in state.attempts), 1)
    return {
        "status": state.status,
        "step": summary.step,
        "max_steps": summary.max_steps,
        "first_loss": outcome.get("first_loss"),
        "last_loss": outcome.get("last_loss", summary.loss),
        "eval_loss": outcome.get("eval_loss"),
        "eval_perplexity": outcome.get("eval_perplexity"),
        "eval_bleu": outcome.get("eval_bleu"),
        "duration_s": duration_s,
        "engine": state.engine.get("actual"),
        "attempts": len(state.attempts),
    }
