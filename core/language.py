"""Translations: texts are English in the code, other languages come from one gettext catalogue.

What programs read has no language: states, causes, keys of JSON, names of the parts of a step, reasons of a slowed
clock. Nor have the lines that a training and a keeper log (train.log, supervisor.log): programs find steps, attempts
and causes in them again, so they are English. The sentences that a process leaves in a run folder (endings, findings,
notes, why something was not read) are in the language of that process, and are shown as they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gettext import NullTranslations

LANGUAGES = ("en", "zh")
LANGUAGE_VARIABLE = "TRAINWIZ_LANG"
"""Set for child processes too, so that a run speaks the language of the one who started it."""
CATALOGUE = Path(__file__).parent / "locale"


_catalogue: NullTranslations | None = None
"""None is English: nothing is loaded and nothing looked up."""
_language = "en"


def tr(text: str, /, **values: object) -> str:
    """`text` in the chosen language, with `values` put in for its {names}.

    The first argument is one literal, which is what `scripts/catalogue.py` collects; a text from a table
    was marked there by `mark`.
    """
    return _filled(text if _catalogue is None or not text else _catalogue.gettext(text), text, values)


def tr_as(meaning: str, text: str, /) -> str:
    """`text` as this `meaning` of it, where English has one word and another language has two.

    The catalogue holds it as "text [meaning]".
    """
    named = f"{text} [{meaning}]"
    translated = named if _catalogue is None else _catalogue.gettext(named)
    return text if translated == named else translated


def trn(one: str, many: str, n: int, /, **values: object) -> str:
    """The form of a text that fits the number `n`, which is {n} in it unless `values` says how it is written."""
    english = one if n == 1 else many
    text = english if _catalogue is None else _catalogue.ngettext(one, many, n)
    return _filled(text, english, {"n": n, **values})


def _filled(text: str, english: str, values: Mapping[str, object]) -> str:
    """A translation that asks for a value that there is not must not end the program: the English text has it."""
    if not values:
        return text
    try:
        return text.format(**values)
    except (LookupError, ValueError, AttributeError):
        return english.format(**values)


def mark(text: str, /) -> str:
    """The text itself: marks a literal that is translated later, where it is drawn."""
    return text


def language() -> str:
    """The one in use: "en" or "zh"."""
    return _language


def chosen_language(option: str | None, environment: Mapping[str, str]) -> str:
    """What --lang says, else TRAINWIZ_LANG, else the locale; English for every language without a catalogue."""
    if option in LANGUAGES:
        return option
    names = (LANGUAGE_VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG")
    named = next((environment[name] for name in names if environment.get(name)), "")
    return "zh" if named.lower().replace("_", "-").partition("-")[0].partition(".")[0] == "zh" else "en"


def use_language(name: str) -> None:
    """Speak this language from now on, child processes included."""
    _speak(name)
    os.environ[LANGUAGE_VARIABLE] = _language


def _speak(name: str) -> None:
    global _catalogue, _language
    if name == _language:
        return
    if name == "en":
        _catalogue = None
    else:
        import gettext  # 3 ms that English does not need

        _catalogue = gettext.translation("trainwiz", CATALOGUE, [name], fallback=True)
    _language = name


_speak(chosen_language(None, os.environ))
"""So that a child process speaks like the one that started it, and a script that imports the core like its shell."""
