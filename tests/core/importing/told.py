"""What a report says, for the tests of all its readers."""

from typing import Any

from trainwiz.core.importing.gather import merge
from trainwiz.core.importing.report import Imported


def names(entries: Any) -> set[str]:
    return {entry.name for entry in entries}


def codes(imported: Imported, *severities: str) -> list[str]:
    return [one.code for one in imported.findings if not severities or one.severity in severities]


def unknown(imported: Imported) -> dict[str, Any]:
    return {one.name: one.value for one in imported.unknown}


def whole(imported: Imported) -> dict[str, Any]:
    """The values of one text, its launcher's too, as a profile of it has them."""
    return merge([imported, *imported.inner]).values
