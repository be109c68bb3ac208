"""What an expression of Python source is worth, as far as it can be read without running anything."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.importing.python_source_names import Names
from trainwiz.core.importing.training_arguments_setting import ENUMERATIONS, Unresolved

LONGEST_TEXT = 80
DEEPEST = 40
"""Names of names and sums of sums: no script that people write has as many."""
MOST_STEPS = 5_000
"""Expressions read for one value: forty names, each twice the one before, would be a billion."""
LARGEST = 10**15
LONGEST_VALUE = 10_000

ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
CONVERSIONS: Mapping[str, Callable[..., Any]] = {"int": int, "float": float, "str": str, "bool": bool}
CHOICES: Mapping[str, Callable[..., Any]] = {"max": max, "min": min}

MODULES_OF_CONSTANTS = ("torch", "tf", "np", "numpy")
"""Their attributes (torch.bfloat16) are written for what they are."""


class Unknowable(Exception):
    """Running the source is the only way to know the value."""


def value_of(node: ast.expr, names: Names) -> Any:
    """The value, or Unresolved with the source text (and the default that a command line could change)."""
    names.steps = 0
    try:
        return _value(node, names, 0)
    except Unknowable:
        return Unresolved(text_of(node, names))


def text_of(node: ast.expr, names: Names) -> str:
    """The source of an expression on one line, with the default of the argument that it stands for."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (ValueError, RecursionError):
        text = "..."
    if len(text) > LONGEST_TEXT:
        text = f"{text[: LONGEST_TEXT - 1]}…"
    default = names.default_of(node)
    if default is None:
        return text
    try:
        return f"{text} (default {_value(default, names, 0)!r})"
    except Unknowable:
        return text


def _value(node: ast.expr, names: Names, depth: int) -> Any:
    names.steps += 1
    if depth > DEEPEST or names.steps > MOST_STEPS:
        raise Unknowable
    depth += 1
    match node:
        case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
            return value
        case ast.UnaryOp(op=sign, operand=operand):
            return _applied(SIGNS.get(type(sign)), _value(operand, names, depth))
        case ast.BinOp(left=left, op=sign, right=right):
            return _arithmetic(sign, _value(left, names, depth), _value(right, names, depth))
        case ast.JoinedStr(values=parts):
            return "".join(_part(part, names, depth) for part in parts)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item, names, depth) for item in items]
        case ast.Dict():
            return _mapping(node, names, depth)
        case ast.Name() | ast.Attribute():
            return _named(node, names, depth)
        case ast.Call():
            return _called(node, names, depth)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names, depth) else orelse, names, depth)
        case ast.Subscript(value=container, slice=key):
            return _item(_value(container, names, depth), _value(key, names, depth))
    raise Unknowable


def _applied(function: Callable[..., Any] | None, *arguments: Any) -> Any:
    if function is None:
        raise Unknowable
    try:
        result = function(*arguments)
    except (TypeError, ValueError, ArithmeticError, LookupError):
        raise Unknowable from None
    if isinstance(result, int | float) and abs(result) > LARGEST:
        raise Unknowable
    return result


def _arithmetic(sign: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(sign, ast.Pow):
        small = isinstance(left, int | float) and isinstance(right, int | float) and abs(left) < 1e6 and abs(right) < 32
        return _applied(operator.pow if small else None, left, right)
    if isinstance(sign, ast.Mod) and isinstance(left, str):
        # "%999999999d" % 1 would fill the memory.
        raise Unknowable
    if isinstance(sign, ast.Div) and isinstance(left, str) and isinstance(right, str):
        # pathlib's.
        return f"{left.rstrip('/')}/{right}"
    joins = isinstance(left, str | list) or isinstance(right, str | list)
    if joins and (not isinstance(sign, ast.Add) or len(str(left)) + len(str(right)) > LONGEST_VALUE):
        raise Unknowable
    return _applied(ARITHMETIC.get(type(sign)), left, right)


def _part(part: ast.expr, names: Names, depth: int) -> str:
    if isinstance(part, ast.FormattedValue):
        if part.format_spec is not None or part.conversion != -1:
            raise Unknowable
        return str(_value(part.value, names, depth))
    return str(_value(part, names, depth))


def _mapping(node: ast.Dict, names: Names, depth: int) -> dict[str, Any]:
    """Values that cannot be known stay in their places: one of them does not hide the others."""
    found: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            inner = _value(value, names, depth)
            if not isinstance(inner, dict):
                raise Unknowable
            found.update(inner)
        else:
            try:
                found[str(_value(key, names, depth))] = _value(value, names, depth)
            except Unknowable:
                found[str(_value(key, names, depth))] = Unresolved(text_of(value, names))
    return found


def _named(node: ast.Name | ast.Attribute, names: Names, depth: int) -> Any:
    bound = names.bound(node)
    if bound is not None:
        return _value(bound, names, depth)
    path = dotted(node)
    if path is None:
        raise Unknowable
    root, _, rest = path.partition(".")
    if rest and (root in MODULES_OF_CONSTANTS or path.rpartition(".")[0].endswith(ENUMERATIONS)):
        return path
    raise Unknowable


def dotted(node: ast.expr) -> str | None:
    """ "a.b.c" for a chain of attributes on a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _called(node: ast.Call, names: Names, depth: int) -> Any:
    """The few calls whose outcome is in their arguments."""
    path = dotted(node.func) or ""
    name = path.rpartition(".")[2]
    if path in ("os.path.join", "path.join", "join", "Path", "pathlib.Path", "PurePath") and not node.keywords:
        return "/".join(str(_value(part, names, depth)).rstrip("/") for part in node.args)
    if path == "dict" and not node.args:
        keys: list[ast.expr | None] = [ast.Constant(one.arg) if one.arg else None for one in node.keywords]
        return _mapping(ast.Dict(keys, [one.value for one in node.keywords]), names, depth)
    if path in CONVERSIONS and len(node.args) == 1 and not node.keywords:
        return _applied(CONVERSIONS[path], _value(node.args[0], names, depth))
    if path in CHOICES and len(node.args) > 1 and not node.keywords:
        return _applied(CHOICES[path], *(_value(one, names, depth) for one in node.args))
    if name == "device" and node.args:
        return _value(node.args[0], names, depth)
    raise Unknowable


def _item(container: Any, key: Any) -> Any:
    if not isinstance(container, dict | list):
        raise Unknowable
    value = _applied(operator.getitem, container, key)
    if isinstance(value, Unresolved):
        raise Unknowable
    return value
