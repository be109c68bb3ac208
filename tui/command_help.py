"""The help of commands with few options of their own, in the reader's language; typer's own is English only."""

from __future__ import annotations

from typing import Any

import typer
from trainwiz.core.language import tr
from trainwiz.tui.help import COMMON, help_lines


class HelpfulCommand(typer.core.TyperCommand):
    """A command whose docstring and parameters are its help."""

    def get_help(self, ctx: Any) -> str:
        return command_help(ctx)


class HelpfulGroup(typer.core.TyperGroup):
    """A group of commands; each gives the first line of its docstring."""

    def get_help(self, ctx: Any) -> str:
        return group_help(ctx)


def command_help(ctx: Any) -> str:
    """Usage, what it does, its arguments and options. `ctx` is the context of a command."""
    parameters = ctx.command.params
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option" and "--help" not in one.opts]
    names = [one.metavar if one.required else f"[{one.metavar}]" for one in arguments]
    lines = [tr("Usage: {command}", command=" ".join([ctx.command_path, tr("[CHOICES]"), *names]))]
    lines += ["", tr(said(ctx.command)), ""]
    lines += [line for one in arguments for line in help_lines(one.metavar, tr(one.help or ""))]
    lines += [line for one in options for line in help_lines(synopsis(one), tr(one.help or ""))]
    return "\n".join([*lines, *common_lines()])


def group_help(ctx: Any) -> str:
    """Usage, what the commands are about, and each in a line."""
    group = ctx.command
    commands = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
    lines = [tr("Usage: {command}", command=f"{ctx.command_path} {tr('COMMAND')} ..."), "", tr(said(group)), ""]
    lines += [line for name, command in commands for line in help_lines(name, tr(said(command)))]
    return "\n".join([*lines, "", *common_lines()])


def said(command: Any) -> str:
    """What a command says of itself: the first paragraph of its docstring."""
    return str(command.help or "").partition("\n\n")[0].replace("\n", " ").strip()


def synopsis(option: Any) -> str:
    """How an option is written: "--every S"."""
    return option.opts[0] if option.is_flag else f"{option.opts[0]} {option.metavar or 'N'}"


def common_lines() -> list[str]:
    """What every command takes."""
    return [line for left, right in COMMON for line in help_lines(left, tr(right))]
