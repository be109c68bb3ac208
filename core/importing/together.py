"""All texts of one import, and what they name, as one checked import."""

from __future__ import annotations

from collections.abc import Sequence

from trainwiz.core.importing.checks import checked
from trainwiz.core.importing.gather import Text, gather
from trainwiz.core.importing.merge import Merged, merge


def import_together(texts: Sequence[Text]) -> Merged:
    """There must be a text. Raises NotImportable with a sentence for each that cannot be imported."""
    gathered = gather(texts)
    return checked(merge(gathered.imports, gathered.findings))
