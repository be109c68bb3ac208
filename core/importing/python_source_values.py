"""Names and values of Python source, without running it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainwiz.core.importing.settings import ENUMERATIONS, Unresolved

# What the names of a script are bound to: constants of the file, attributes of its classes, defaults of arguments.

BINDS_UNKNOWN = ast.For | ast.AsyncFor | ast.AugAssign | ast.withitem | ast.comprehension | ast.ExceptHandler


class Names:
    """The bindings of one file. A name that is bound twice to different things is bound to none of them."""

    def __init__(self, tree: ast.Module) -> None:
        self._bound: dict[str, ast.expr | None] = {}
        self._classes: dict[str, ast.ClassDef] = {}
        self._defaults: dict[str, ast.expr] = {}
        self.steps = 0
        """Expressions that were read for the value in work."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self._classes[node.name] = node
            elif isinstance(node, ast.Call):
                self._argument(node)
        for node in _outside_classes(tree):
            self._bind(node)
        for class_node in self._classes.values():
            for statement in class_node.body:
                for name, value in _assigned(statement):
                    self._note(f"{class_node.name}.{name}", value)

    def bound(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        """The expression that a name, or an attribute of a class or of its instance, stands for."""
        if isinstance(node, ast.Name):
            return self._bound.get(node.id)
        if not isinstance(node.value, ast.Name):
            return None
        owner = node.value.id
        if owner in self._classes:
            return self._bound.get(f"{owner}.{node.attr}")
        made = self._bound.get(owner)
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in self._classes:
            given = [keyword.value for keyword in made.keywords if keyword.arg == node.attr]
            if given:
                return given[0]
            if not made.args and all(keyword.arg for keyword in made.keywords):
                return self._bound.get(f"{made.func.id}.{node.attr}")
        return None

    def default_of(self, node: ast.expr) -> ast.expr | None:
        """The default of the command-line argument, or of the parameter, that `node` reads."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._defaults.get(f".{node.attr}")
        return self._defaults.get(node.id) if isinstance(node, ast.Name) else None

    def _argument(self, node: ast.Call) -> None:
        """parser.add_argument("--lr", default=1e-4)."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "add_argument":
            return
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        options = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        named = given.get("dest")
        dest = (
            named.value
            if isinstance(named, ast.Constant)
            else next(
                (option.lstrip("-") for option in options if option.startswith("--")), options[0] if options else ""
            )
        )
        if "default" in given and dest:
            self._defaults[f".{str(dest).replace('-', '_')}"] = given["default"]

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._parameters(node.args)
        elif isinstance(node, ast.stmt) and not isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor):
            for name, value in _assigned(node):
                if not _takes_its_own(name, value):
                    self._note(name, value)
        elif isinstance(node, BINDS_UNKNOWN):
            for name in _targets(node):
                self._bound[name] = None
        elif isinstance(node, ast.NamedExpr):
            self._note(node.target.id, node.value)

    def _parameters(self, arguments: ast.arguments) -> None:
        """A caller decides; the default is told beside."""
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip([one.arg for one in reversed(positional)], reversed(arguments.defaults), strict=False))
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if default is not None:
                defaults[one.arg] = default
        self._defaults.update(defaults)
        for one in [*positional, *arguments.kwonlyargs]:
            self._bound[one.arg] = None

    def _note(self, name: str, value: ast.expr | None) -> None:
        known = self._bound.get(name, ...)
        if known is ...:
            self._bound[name] = value
        elif known is not None and (value is None or ast.dump(known) != ast.dump(value)):
            self._bound[name] = None


def _takes_its_own(name: str, value: ast.expr | None) -> bool:
    """`args = TrainingArguments(**args)`: in the call, and that is where it is read, the name means what it did."""
    return isinstance(value, ast.Call) and any(
        keyword.arg is None and isinstance(keyword.value, ast.Name) and keyword.value.id == name
        for keyword in value.keywords
    )


def _outside_classes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those in the bodies of classes; methods are functions like others."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.ClassDef):
            for statement in child.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield statement
                    yield from _outside_classes(statement)
        else:
            yield child
            yield from _outside_classes(child)


def _assigned(statement: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """(name, expression) of an assignment; the expression is None where a name gets a part of it."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, statement.value
            elif isinstance(target, ast.Tuple | ast.List):
                yield from _unpacked(target, statement.value)
    elif (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None
    ):
        yield statement.target.id, field_default(statement.value)


def _unpacked(target: ast.Tuple | ast.List, value: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    values = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
    for place, one in enumerate(target.elts):
        if isinstance(one, ast.Name):
            yield one.id, values[place] if values else None


def field_default(value: ast.expr) -> ast.expr | None:
    """The default of a dataclass field: `field(default=3)` is 3; None where it is made by a function."""
    name = value.func if isinstance(value, ast.Call) else None
    called = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
    if called not in ("field", "Field"):
        return value
    assert isinstance(value, ast.Call)
    return next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)


def _targets(node: ast.AST) -> Iterator[str]:
    target = getattr(node, "target", None) or getattr(node, "optional_vars", None)
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    if isinstance(target, ast.AST):
        yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


# What an expression of Python source is worth, as far as it can be read without running anything.

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
