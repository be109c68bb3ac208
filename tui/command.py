"""The typer application behind `trainwiz`, made of the table of commands. What a command needs is loaded when it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import typer
from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.core.language import tr
from trainwiz.tui.cli import resume_without_value
from trainwiz.tui.options import OPTIONS, Option
from trainwiz.tui.subcommands import COMMANDS, GROUPS, Own, Subcommand, command_help, group_help, root_help

# The parameters of typer. Values of choices stay text here, so that all wrong ones can be reported together.


def choice_parameter(option: Option) -> inspect.Parameter:
    """The typer parameter of one choice; absent values are None."""
    if option.kind == "switch":
        default = typer.Option(None, f"{option.flag}/--no-{option.flag.removeprefix('--')}")
        return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=bool | None)
    synopsis = option.flag if option.kind == "flag" else f"{option.flag} VALUE"
    return own_parameter(Own(synopsis, "", repeated=option.kind == "repeated"))


def own_parameter(own: Own) -> inspect.Parameter:
    several = own.repeated or own.metavar.endswith("...")
    required = own.default is ... or not (own.is_option or own.synopsis.startswith("["))
    annotation: Any = list[str] if several else own.kind if required else own.kind | None
    value: Any = ... if required else [] if several else own.default
    if own.is_flag:
        value, annotation = False, bool
    place = [own.flag] if own.is_option else []
    default = (typer.Option if own.is_option else typer.Argument)(
        value, *place, metavar=own.metavar or None, min=own.least, max=own.most
    )
    return inspect.Parameter(own.parameter, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def taking(function: Callable[..., int], parameters: Sequence[inspect.Parameter]) -> Callable[..., int]:

    def command(**given: Any) -> int:
        return function(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def call(command: Subcommand, **given: Any) -> int:
    """Its exit code; a command that returns none has finished."""
    module, _, function = command.calls.partition(":")
    choices = {option.name: given.pop(option.name) for option in command.choices}
    run = getattr(import_module(f"trainwiz.tui.commands.{module}"), function)
    return int((run(choices, **given) if command.choices else run(**given)) or EXIT_FINISHED)


def kind_of(command: Subcommand) -> type[typer.core.TyperCommand]:
    class Kind(typer.core.TyperCommand):
        def get_help(self, ctx: Any) -> str:
            return command_help(command, ctx.command_path)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, command.rewritten(args))

    return Kind


class Group(typer.core.TyperGroup):
    def get_help(self, ctx: Any) -> str:
        return group_help(str(self.name), ctx.command_path)


class RootGroup(typer.core.TyperGroup):
    """`trainwiz` itself: help in groups, and `--resume` with or without a value."""

    def get_help(self, ctx: Any) -> str:
        return root_help()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, resume_without_value(args))


def root(ctx: typer.Context, version: bool, **choices: Any) -> int:
    if version:
        from trainwiz.core import product_version

        print(f"trainwiz {product_version()}")
        return 0
    if ctx.invoked_subcommand is None:
        from trainwiz.tui.choices import start

        return start(choices)
    given = [option.flag for option in OPTIONS if choices[option.name] and option.flag not in ("--debug", "--lang")]
    if given:
        from trainwiz.core.errors import usage_error

        command = ctx.invoked_subcommand
        raise usage_error(
            "usage",
            given[0],
            tr("Put {flag} after the command: trainwiz {command} {flag} ...", flag=given[0], command=command),
        )
    return 0


def made() -> typer.Typer:
    settings: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "no_args_is_help": False}
    whole = typer.Typer(name="trainwiz", cls=RootGroup, invoke_without_command=True, **settings)
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    version = Own("--version", "")
    whole.callback()(taking(root, [context, own_parameter(version), *map(choice_parameter, OPTIONS)]))
    groups = {name: typer.Typer(name=name, cls=Group, help=says, **settings) for name, says in GROUPS.items()}
    for command in COMMANDS:
        group, _, name = command.words.rpartition(" ")
        parameters = [*map(own_parameter, command.own), *map(choice_parameter, command.choices)]
        within = groups[group] if group else whole
        within.command(name, cls=kind_of(command), help=command.says)(taking(partial(call, command), parameters))
    for group_app in groups.values():
        whole.add_typer(group_app)
    return whole


app = made()
