"""The key table: complete, without stolen keys, and all of it bound to actions that exist."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter

import trainwiz.tui
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.keys import KEYS, STOLEN_KEYS, bindings, keys_of
from trainwiz.tui.screens.import_card import ImportCard
from trainwiz.tui.screens.log_card import LogCard
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import AskDialog, CommandCard, GpuCard
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_card import PlanCard
from trainwiz.tui.screens.run_picker import RunPicker
from trainwiz.tui.text import cells
from trainwiz.tui.widgets.answers_panel import AnswersPanel
from trainwiz.tui.widgets.chooser import ListWindow
from trainwiz.tui.widgets.data_table import DataTable
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.field_row import FieldInput
from trainwiz.tui.widgets.file_picker import FilePicker
from trainwiz.tui.widgets.frame import HelpCard, fitting_keys
from trainwiz.tui.widgets.metric_panel import MetricPanel
from trainwiz.tui.widgets.review import CursorList

from tests.each import each

OWNERS = {
    "app": TrainwizApp,
    "plan": PlanScreen,
    "edit": FieldInput,
    "files": CursorList,
    "monitor": MonitorScreen,
    "dialog": HelpCard,
    "confirm": AskDialog,
    "list": ListWindow,
    "browse": FilePicker,
    "columns": DataTable,
    "metric": MetricPanel,
    "log": LogCard,
    "cards": DevicePanel,
    "answers": AnswersPanel,
    "gpu": GpuCard,
    "picker": RunPicker,
    "command": CommandCard,
    "document": PlanCard,
    "import": ImportCard,
}


def own_bindings() -> list[tuple[str, BindingType]]:
    """Every entry of a BINDINGS in this project, with the class that has it."""
    for module in pkgutil.walk_packages(trainwiz.tui.__path__, "trainwiz.tui."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes, found = [DOMNode], []
    for owner in classes:
        classes += [child for child in owner.__subclasses__() if child not in classes]
        if owner.__module__.startswith("trainwiz."):
            found += [(owner.__name__, binding) for binding in owner.__dict__.get("BINDINGS", [])]
    return found


def test_every_binding_of_every_class_is_a_row_of_the_table():
    """No class makes one by itself, so all of them have an id of their own, a description and a tooltip."""
    assert [name for name, times in Counter(row.id for row in KEYS).items() if times > 1] == []
    found = own_bindings()
    assert {name for name, _ in found} >= {"TrainwizApp", "PlanScreen", "MonitorScreen", "CommandCard"}
    rows = {row.id: row for row in KEYS}
    for owner, binding in found:
        assert isinstance(binding, Binding), f"{owner}: {binding}"
        row = rows.get(binding.id or "")
        assert row is not None, f"{owner}: {binding.key} is not in the table"
        assert (binding.key, binding.action) == (row.key, row.action)
        assert binding.description and binding.tooltip, row.id


@each("row", KEYS)
def test_every_binding_explains_itself(row):
    assert re.fullmatch(r"[a-z]+\.[a-z_0-9]+", row.id)
    assert row.id.startswith(f"{row.screen}.")
    assert row.words and len(row.words) <= 16
    assert row.sentence.endswith(".") and row.sentence[0].isupper()
    assert "{" not in row.words + row.sentence + row.shown_key


def test_no_key_is_taken_from_tmux_editors_or_flow_control():
    used = {key for row in KEYS for key in row.key.split(",")}
    assert not used & STOLEN_KEYS


@each("screens", [("app", "plan"), ("app", "monitor"), *((screen,) for screen in OWNERS)])
def test_one_key_does_one_thing_on_a_screen(screens):
    used = Counter(key for row in keys_of(*screens) for key in row.key.split(","))
    assert [key for key, times in used.items() if times > 1] == []


@each("row", KEYS)
def test_every_action_exists(row):
    namespace, _, name = row.action.partition("(")[0].rpartition(".")
    assert hasattr(TrainwizApp if namespace == "app" else OWNERS[row.screen], f"action_{name}")


@each("screen", sorted(OWNERS))
def test_the_keys_of_a_screen_are_those_of_the_table(screen):
    table = {(binding.key, binding.action) for binding in bindings(screen)}
    own = OWNERS[screen].__dict__.get("BINDINGS", [])
    assert {(binding.key, binding.action) for binding in own} >= table


@each("width", [20, 40, 60, 80, 120])
def test_key_bar_keeps_what_matters_most(width):
    rows = fitting_keys(keys_of("plan", "app"), width)
    kept = {row.id for row in rows}
    assert {"plan.next", "plan.back", "app.quit"} <= kept
    length = sum(cells(row.shown_key) + 1 + cells(row.words) + 3 for row in rows) - 3
    assert length <= width or all(row.rank == 0 for row in rows)
