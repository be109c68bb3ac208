"""`--lang`, taken from the command line before any command reads it."""

from __future__ import annotations

from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.language import LANGUAGES, tr
from trainwiz.core.plain import plain_text

FLAG = "--lang"


def take_lang(arguments: list[str]) -> tuple[str | None, list[str]]:
    """(the language, the arguments without it); the last of several counts, as for any option.

    What follows "--" is no option. Raises UsageError for a language that there is not, or none.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    chosen: str | None = None
    rest: list[str] = []
    position = 0
    while position < end:
        flag, equals, value = arguments[position].partition("=")
        position += 1
        if flag != FLAG:
            rest.append(arguments[position - 1])
            continue
        if not equals:
            value = arguments[position] if position < end else ""
            position += 1
        if value not in LANGUAGES:
            raise no_language(value)
        chosen = value
    return chosen, [*rest, *arguments[end:]]


def no_language(value: str) -> UsageError:
    """What there is instead of this language."""
    choice = tr(" or ").join(LANGUAGES)
    if not value or value.startswith("-"):
        return usage_error("usage", FLAG, tr("--lang: name a language: {names}.", names=choice))
    shown = plain_text(value, 40)
    return usage_error(
        "usage", FLAG, tr("{place}: there is no {text}, choose {values}.", place=FLAG, text=repr(shown), values=choice)
    )
