"""Which literals of a Python file look like texts for people and are in no tr, trn or mark."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

WORD = re.compile(r"(?<![\w./\\=:$%{<#@\[-])[A-Za-z]{2,}(?![\w/\\=(){}\[\]*+<>-]|\.\w|:\S)")
"""A word as prose has it: not a part of a path, a key, a pattern, an option or a name with an underscore."""
PATTERN = re.compile(r"\\[bdsSwW(]|\.\*|\(\?|\w\|\w+.*\|")
"""What only a regular expression has."""
SMALL = frozenset(
    [
        "the",
        "of",
        "to",
        "is",
        "are",
        "in",
        "on",
        "for",
        "with",
        "and",
        "or",
        "not",
        "no",
        "an",
        "it",
        "its",
        "this",
        "that",
        "from",
        "by",
        "at",
        "as",
        "be",
        "been",
        "has",
        "have",
        "was",
        "were",
        "than",
        "there",
        "here",
        "what",
        "which",
        "who",
        "how",
        "why",
        "when",
        "where",
        "each",
        "one",
        "more",
        "most",
        "all",
        "any",
        "none",
    ]
)
TRANSLATORS = frozenset({"tr", "trn", "tr_as", "mark", "Option", "Subcommand"})
NOT_READ = frozenset(
    {"compile", "fullmatch", "match", "search", "sub", "findall", "finditer", "split", "namedtuple", "TypeVar", "cast"}
    | {"getattr", "setattr", "hasattr", "startswith", "endswith", "query", "query_one", "import_module", "strftime"}
)
"""Functions whose literals are patterns, names or formats."""
FIELDS = frozenset({"Field", "FieldInfo"})
"""Of pydantic: their descriptions are for who reads the code; screens have help of their own."""


def unmarked_texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every literal with at least two words of prose that no translator takes."""
    tree = ast.parse(source)
    skipped = {id(node) for parent in ast.walk(tree) for node in not_for_people(parent)}
    seen: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in skipped or id(node) in seen:
            continue
        if isinstance(node, ast.JoinedStr):
            seen.update(id(part) for part in node.values)
            text = "".join(literal(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if is_prose(text):
            yield node.lineno, text


def literal(part: ast.expr) -> str:
    """A part of an f-string; an inserted value counts as no word."""
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else " \N{BULLET} "


def is_prose(text: str) -> bool:
    """Two words beside each other or a small word and another: names, styles and lists of codes have neither."""
    words = WORD.findall(text)
    if len(words) < 2 or PATTERN.search(text):
        return False
    return any(word.lower() in SMALL for word in words) or bool(re.search(r"\b[A-Z][a-z]+ [a-z]{3,}\b", text))


def not_for_people(node: ast.AST) -> Iterator[ast.AST]:
    """What below this node is no text of ours: docstrings, arguments of translators and of patterns, annotations."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr):
        yield node.value
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in FIELDS:
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "description")
        if name in ("setting", "key", "hidden"):
            # scripts/catalogue.py reads the texts of an entry, and of a row of the key table.
            yield from (part for argument in (*node.args, *node.keywords) for part in ast.walk(argument))
        if name in TRANSLATORS or name in NOT_READ:
            for argument in node.args:
                yield from ast.walk(argument) if name in NOT_READ else [argument]
    elif isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "").endswith(("SENTENCES", "REASONS")):
        # scripts/catalogue.py reads their texts.
        yield from ast.walk(node)
    elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield from ast.walk(node.annotation)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield from ast.walk(node.returns)
    elif isinstance(node, ast.Assign) and any(getattr(target, "id", "").endswith("CSS") for target in node.targets):
        yield from ast.walk(node.value)
    elif isinstance(node, ast.Subscript):
        yield from ast.walk(node.slice)
