"""What stands between $(( and )): whole numbers with + - * / %, and nothing else."""

from __future__ import annotations

import ast

LARGEST = 10**12


def whole_value(text: str) -> int | None:
    """The value of whole numbers with + - * / % and brackets; None for all else."""
    if len(text) > 200:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _counted(tree.body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def _counted(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(left=left, op=sign, right=right):
            first, second = _counted(left), _counted(right)
            if max(abs(first), abs(second)) > LARGEST:
                raise ValueError
            match sign:
                case ast.Add():
                    return first + second
                case ast.Sub():
                    return first - second
                case ast.Mult():
                    return first * second
                case ast.Div() | ast.FloorDiv():
                    return int(first / second)
                case ast.Mod():
                    return first % second
    raise ValueError
