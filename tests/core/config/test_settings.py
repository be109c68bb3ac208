"""A setting is declared once: one entry is the field with its checks, the option, the help, the row and the schema."""

import json
import subprocess
import sys
from typing import get_args

import pytest
from pydantic import ValidationError
from trainwiz.core.config import RunConfig
from trainwiz.core.config.setting import GROUPS, STEPS, When
from trainwiz.core.config.settings import SETTINGS, all_settings, in_order_of_rows
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.importing.names import CANONICAL
from trainwiz.core.importing.trainer import is_known
from trainwiz.core.run.identity import COMPARED
from trainwiz.tui.screens.plan_fields import CONDITIONS

from tests.core.training.runs import tiny_config

MADE_UP = """
import json
import sys

from trainwiz.core.config import settings_training
from trainwiz.core.config.setting import setting

settings_training.TrainingSection.__annotations__["made_up"] = int | None
settings_training.TrainingSection.made_up = setting(
    None, "What nobody needs.", "For a test.", "Empty.", "Time.",
    ge=2, label="Made up", group="Goals", unit="steps", empty="off", option="--made-up N", says="Of a test.",
)

from trainwiz.tui.subcommands import help_of
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, TRAINING, fields_of, parse_field, shown_value

light = sorted(name for name in ("pydantic", "typer", "yaml", "torch") if name in sys.modules)
row = FIELD_BY_ID["made_up"]
from trainwiz.core.config.build import build_config
from trainwiz.core.profile.read import profile_schema
from trainwiz.tui.choices import parse_choices

config = build_config(None, parse_choices({"made_up": "4"}).request.overrides)
print(json.dumps({
    "light": light,
    "help": [line.split() for line in help_of("").splitlines() if "--made-up" in line],
    "row": [row.label, row.cost, row in fields_of(TRAINING, rare=False), parse_field(row, "3 steps", None)],
    "config": [config.training.made_up, config.origin("training.made_up").origin, shown_value(row, config)],
    "schema": profile_schema()["$defs"]["TrainingSection"]["properties"]["made_up"],
}))
"""


def test_a_new_setting_is_one_entry() -> None:
    done = subprocess.run([sys.executable, "-c", MADE_UP], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["light"] == [], "the help and the rows of the wizard need no model of the settings"
    assert found["help"] == [["--made-up", "N", "Of", "a", "test."]]
    assert found["row"] == ["Made up", "Time.", True, {"training.made_up": 3}]
    assert found["config"] == [4, "you", "4 steps"]
    assert found["schema"]["description"] == "What nobody needs." and found["schema"]["default"] is None


def test_entries_are_whole() -> None:
    rows = in_order_of_rows(list(all_settings()))
    assert len({row.id for row in rows}) == len(rows)
    for entry in all_settings():
        assert entry.step < len(STEPS) and entry.group in GROUPS, entry.key
        assert not entry.label or (entry.what and entry.why and entry.safe), entry.key
        assert not entry.option or entry.says, entry.key
        for text in (entry.what, entry.why, entry.safe, entry.cost):
            assert not text or text.endswith("."), f"{entry.key}: {text}"
            assert text not in ("Nothing.", "Nothing by itself.", "Nothing to speak of."), entry.key
        for key in (entry.after, entry.beside):
            assert not key or key in {other.key for other in all_settings()}, entry.key
    assert set(CONDITIONS) == set(get_args(When))


def test_the_model_has_the_entries_and_nothing_else() -> None:
    config = RunConfig()
    assert [key for key, entry in SETTINGS.items() if entry.default != config.value(key) and "sources" not in key] == []
    with pytest.raises(ValidationError):
        config.training.learning_rate = 0.0
    with pytest.raises(ValidationError):
        RunConfig.model_validate({"training": {"learning_rat": 1.0}})
    config.model.architecture_overrides["n_layer"] = 2
    assert RunConfig().model.architecture_overrides == {}, "each run has values of its own"


def test_a_setting_of_the_trainer_is_exported_imported_and_compared_by_its_entry() -> None:
    off, on = (training_arguments(tiny_config(**more)) for more in ({}, {"training__neftune_noise_alpha": 5.0}))
    assert "neftune_noise_alpha" not in off and on["neftune_noise_alpha"] == 5.0
    assert is_known("neftune_noise_alpha") and CANONICAL["neftune_alpha"] == "neftune_noise_alpha"
    assert "training.neftune_noise_alpha" in COMPARED["training"]
