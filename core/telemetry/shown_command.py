"""A command line as it may be shown: without tokens, keys and passwords."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from trainwiz.core.plain import plain_text
from trainwiz.core.telemetry.training_words import base_name, is_launcher, is_python

HIDDEN = "***"
LONGEST_COMMAND = 4_000

_SECRET_NAME = re.compile(
    r"(^|[_\-.\s])(token|secret|password|passwd|passphrase|pwd|apikey|credentials?|auth|authorization|bearer|key"
    r"|(api|access|auth|refresh)[_-]?tokens?|secrets|passwords"
    r"|(api|access|auth|private|secret|account|encryption|signing|ssh|hf|wandb|comet|neptune|openai|anthropic|azure|aws)[_-]?keys?)$",
    re.IGNORECASE,
)
"""Names of options and variables whose value nobody may see."""
_HARMLESS_NAME = re.compile(
    r"(pad|eos|bos|unk|mask|sep|cls|image|audio|special|start|end|trigger|placeholder|decoder|prefix)[_-](\w+[_-])?token$"
    r"|(?<!api)(?<!access)(?<!auth)(?<!private)(?<!secret)(?<!wandb)(?<!hf)[_-]key$",
    re.IGNORECASE,
)
"""The tokens of a tokenizer and the keys of a dictionary."""
_SECRET_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(hf_[A-Za-z0-9]{8,}|api_org_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_\-]{12,}|gh[pousr]_[A-Za-z0-9]{12,}"
    r"|github_pat_[A-Za-z0-9_]{12,}|glpat-[A-Za-z0-9_\-]{12,}|xox[abprs]-[A-Za-z0-9\-]{8,}|AKIA[A-Z0-9]{12,}"
    r"|AIza[A-Za-z0-9_\-]{20,}|npm_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|local-[0-9a-f]{32,}|eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-.]+)"
)
"""Values that are secret by their form: tokens of well-known services."""
_HEX_KEY = re.compile(r"[0-9a-fA-F]{32,}")
_URL_LOGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.\-]*://)[^/\s@]+@", re.IGNORECASE)
_PAIR = re.compile(
    r"""(?P<before>(?P<around>["'])(?P<name>[^"']+)(?P=around)\s*:\s*(?P<quote>["']))(?:(?!(?P=quote)).)*(?P=quote)""",
    re.DOTALL,
)
"""Of JSON or a printed dict."""
_HEADER = re.compile(r"\b(?P<name>authorization|cookie|(?:x-)?(?:api-key|auth-token))\s*:[^\"'\r\n]*", re.IGNORECASE)
"""Of HTTP, as words of a command name it."""
_PIECE = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*'|["'])+""")
"""Of a command within a word; what is quoted there stays together."""


def shown_words(command: Sequence[str]) -> list[str]:
    """The words of a command line, secrets replaced by ***: by the option's name, or by their own form."""
    return list(_shown(command))


def shown_command(command: Sequence[str]) -> str:
    """The command line as one line of plain text that a shell would read back, secrets left out."""
    text = " ".join(
        word if word == HIDDEN else shlex.quote(word).replace(f"'{HIDDEN}'", HIDDEN) for word in shown_words(command)
    )
    return plain_text(text, LONGEST_COMMAND)


def _shown(command: Sequence[str]) -> Iterator[str]:
    follows_a_name = False
    for word in command:
        if follows_a_name and not word.startswith("--"):
            yield HIDDEN
            follows_a_name = False
            continue
        follows_a_name = "=" not in word and word.startswith("-") and _is_secret(word.lstrip("-"))
        text = _HEADER.sub(rf"\g<name>:{HIDDEN}", _PAIR.sub(_without_value, word))
        # A command within a word, as of `bash -c "HF_TOKEN=... python train.py"`.
        yield _within(text) if len(text.split()) > 1 else _without_secrets(text)


def _within(text: str) -> str:
    """A command within a word, of which a part may be quoted once more."""
    pieces = _PIECE.findall(text)
    if len(pieces) > 1:
        return " ".join(_shown(pieces))
    quoted = text[0] == text[-1] and text[0] in "\"'"
    return text[0] + _within(text[1:-1]) + text[0] if quoted else _without_secrets(text)


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.search(name) is None


def _without_secrets(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and value and _is_secret(name.lstrip("-+")):
        return f"{name}={HIDDEN}"
    text = _URL_LOGIN.sub(rf"\g<scheme>{HIDDEN}@", word)
    text = _SECRET_VALUE.sub(HIDDEN, text)
    return HIDDEN if _HEX_KEY.fullmatch(text) else text


def _without_value(pair: re.Match[str]) -> str:
    return f"{pair['before']}{HIDDEN}{pair['quote']}" if _is_secret(pair["name"]) else pair[0]


def short_command(command: Sequence[str]) -> str:
    """The command line without the folders of its programs, for lists: "python train.py --epochs 3"."""
    words = list(command)
    if not words:
        return ""
    if is_python(words) and len(words) > 1 and is_launcher(words[1:]):
        words = words[1:]
    words[0] = base_name(words[0])
    if is_python(words) and len(words) > 1 and not words[1].startswith("-"):
        words[1] = base_name(words[1])
    return shown_command(words)
