"""The choices of a command line as typer parameters, so that several commands take the same ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer
from trainwiz.tui.options import Option


def takes_choices(options: Sequence[Option]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command one parameter for each choice; it receives them as keyword arguments.

    Values stay text here, so that all wrong ones can be reported together.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        choices = [choice_parameter(option) for option in options]
        command.__signature__ = inspect.Signature([*own, *choices])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in [*own, *choices]}
        return command

    return decorate


def choice_parameter(option: Option) -> inspect.Parameter:
    """The typer parameter of one choice; absent values are None."""
    default: Any
    annotation: Any
    if option.kind == "flag":
        default, annotation = typer.Option(False, option.flag), bool
    elif option.kind == "switch":
        both = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        default, annotation = typer.Option(None, both), bool | None
    elif option.kind == "repeated":
        default, annotation = typer.Option([], option.flag), list[str]
    else:
        default, annotation = typer.Option(None, option.flag), str | None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
