"""What differs between two resolved runs."""

from __future__ import annotations

from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import config_differences


def found(theirs: dict[str, object], yours: dict[str, object]) -> dict[str, tuple[object, object, str]]:
    base = RunConfig()
    pairs = config_differences(
        base.with_values(theirs, "profile"), base.with_values(theirs, "profile").with_values(yours, "you")
    )
    return {one.key: (one.theirs, one.yours, one.chosen_by.origin) for one in pairs}


def test_of_sources_and_mappings_only_what_differs_is_named():
    assert found({"training.max_steps": 10}, {"training.max_steps": 10, "name": "mine"}) == {}
    theirs = {"data.sources": [{"name": "a.csv", "text_column": "x"}, {"name": "b.csv"}]}
    yours = {"data.sources": [{"name": "a.csv", "text_column": "y"}, {"name": "b.csv"}]}
    assert found(theirs, yours) == {"data.sources.0.text_column": ("x", "y", "you")}
    more = {"data.sources": [{"name": "a.csv", "text_column": "x"}]}
    assert list(found(theirs, more)) == ["data.sources"]
    theirs = {"engine.environment": {"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1"}}
    assert found(theirs, {"engine.environment": {"NCCL_DEBUG": "WARN"}}) == {
        "engine.environment.NCCL_DEBUG": ("INFO", "WARN", "you"),
        "engine.environment.NCCL_P2P_DISABLE": ("1", None, "you"),
    }
