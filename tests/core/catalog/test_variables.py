"""The rules of the environment and the page that tells of them say the same."""

from pathlib import Path

from trainwiz.core.plan.environment import load_variable_rules

PAGE = Path(__file__).parents[3] / "docs" / "environment.md"


def test_a_variable_has_one_rule_for_one_machine_at_most_twice_and_the_page_names_it() -> None:
    rules = load_variable_rules()
    keys = [(one.variable, tuple(sorted(one.when.items()))) for one in rules]
    assert len(keys) == len(set(keys)) >= 6
    assert all(one.severity in ("error", "warning", "note") for one in rules)
    # The documentation is not beside the tests of an installed package.
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else None
    for variable in {one.variable for one in rules}:
        assert page is None or f"`{variable}" in page, variable
