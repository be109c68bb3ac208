"""The rules of the environment and the page that tells of them say the same."""

from pathlib import Path

import pytest
from trainwiz.core.plan.environment import load_variable_rules

PAGE = Path(__file__).parents[3] / "docs" / "environment.md"


def test_a_variable_has_one_rule_for_one_machine_at_most_twice() -> None:
    rules = load_variable_rules()
    keys = [(one.variable, tuple(sorted(one.when.items()))) for one in rules]
    assert len(keys) == len(set(keys)) >= 6
    assert all(one.severity in ("error", "warning", "note") for one in rules)


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not beside the tests (an installed package)")
def test_the_page_names_every_variable_of_the_rules() -> None:
    page, rules = PAGE.read_text(encoding="utf-8"), load_variable_rules()
    for variable in {one.variable for one in rules}:
        assert f"`{variable}" in page, variable
