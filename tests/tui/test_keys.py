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
from trainwiz.tui.keys import KEYS, bindings, keys_of
from trainwiz.tui.text import cells
from trainwiz.tui.widgets.frame import fitting_keys

from tests.each import each


def own_bindings() -> list[tuple[type[DOMNode], BindingType]]:
    """Every entry of a BINDINGS in this project, with the class that has it."""
    for module in pkgutil.walk_packages(trainwiz.tui.__path__, "trainwiz.tui."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes, found = [DOMNode], []
    for owner in classes:
        classes += [child for child in owner.__subclasses__() if child not in classes]
        if owner.__module__.startswith("trainwiz."):
            found += [(owner, binding) for binding in owner.__dict__.get("BINDINGS", [])]
    return found


FOUND = own_bindings()
OWNERS = {row.screen: {owner for owner, binding in FOUND if binding in bindings(row.screen)} for row in KEYS}
"""Screen of the table -> the classes that have its keys."""


def test_every_binding_of_every_class_is_a_row_of_the_table_which_has_no_stolen_key():
    """No class makes one by itself, so all of them have an id of their own, a description and a tooltip."""
    # tmux, flow control, shells or editors take these.
    assert not {key for row in KEYS for key in row.key.split(",")} & {f"ctrl+{letter}" for letter in "sbaojhm"}
    assert [name for name, times in Counter(row.id for row in KEYS).items() if times > 1] == []
    assert {owner.__name__ for owner, _ in FOUND} >= {"TrainwizApp", "PlanScreen", "MonitorScreen", "Chooser"}
    rows = {row.id: row for row in KEYS}
    for owner, binding in FOUND:
        assert isinstance(binding, Binding), f"{owner}: {binding}"
        row = rows.get(binding.id or "")
        assert row is not None, f"{owner}: {binding.key} is not in the table"
        assert (binding.key, binding.action) == (row.key, row.action)
        assert binding.description and binding.tooltip, row.id


@each("row", KEYS)
def test_every_row_explains_itself_and_has_its_action(row):
    assert re.fullmatch(r"[a-z]+\.[a-z_0-9]+", row.id)
    assert row.id.startswith(f"{row.screen}.")
    assert row.words and len(row.words) <= 16
    assert row.sentence.endswith(".") and row.sentence[0].isupper()
    assert "{" not in row.words + row.sentence + row.shown_key
    namespace, _, name = row.action.partition("(")[0].rpartition(".")
    assert OWNERS[row.screen], row.screen
    for owner in {TrainwizApp} if namespace == "app" else OWNERS[row.screen]:
        assert hasattr(owner, f"action_{name}"), owner


@each("screens", [("app", "plan"), ("app", "monitor"), *((screen,) for screen in OWNERS)])
def test_one_key_does_one_thing_on_a_screen(screens):
    used = Counter(key for row in keys_of(*screens) for key in row.key.split(","))
    assert [key for key, times in used.items() if times > 1] == []


@each("width", [20, 40, 60, 80, 120])
def test_key_bar_keeps_what_matters_most(width):
    rows = fitting_keys(keys_of("plan", "app"), width)
    kept = {row.id for row in rows}
    assert {"plan.next", "plan.back", "app.quit"} <= kept
    length = sum(cells(row.shown_key) + 1 + cells(row.words) + 3 for row in rows) - 3
    assert length <= width or all(row.rank == 0 for row in rows)
