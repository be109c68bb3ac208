"""What the model said to each prompt, step by step: generations.jsonl as far as it was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.text import whole_in

MOST_STEPS = 200
"""Of each prompt the first answer and the newest ones are kept."""
MOST_PROMPTS = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said at a step; step 0 is before the training."""

    step: int
    text: str
    ended: bool
    """By itself, and not because it reached the longest length."""


@dataclass(frozen=True, slots=True)
class PromptAnswers:
    """One prompt, and its answers with the oldest first; there is at least one."""

    source: str
    reference: str | None
    """What the data answers."""
    answers: tuple[Answer, ...]

    @property
    def first(self) -> Answer:
        return self.answers[0]

    @property
    def newest(self) -> Answer:
        return self.answers[-1]

    def to_json(self) -> dict[str, Any]:
        """Of the monitor's document: the two that matter, and at which steps there are others."""
        return {
            "source": self.source,
            "reference": self.reference,
            "first": asdict(self.first),
            "newest": asdict(self.newest),
            "steps": [answer.step for answer in self.answers],
        }


class AnswersFile:
    """Answers to the prompts of a run, and the texts that it generated for BLEU."""

    def __init__(self, tail: JsonLinesTail) -> None:
        self._tail = tail
        self._asked: dict[tuple[str, int], tuple[str, str | None]] = {}
        self._answers: dict[tuple[str, int], dict[int, Answer]] = {}
        self._found: tuple[PromptAnswers, ...] = ()

    def read(self) -> tuple[PromptAnswers, ...]:
        """All so far, in the order in which they were first asked."""
        rows = self._tail.read_new()
        if self._tail.began_anew:
            self._asked, self._answers = {}, {}
        elif not rows:
            return self._found
        self._take(rows)
        self._found = tuple(
            PromptAnswers(*self._asked[key], tuple(answers[step] for step in sorted(answers)))
            for key, answers in self._answers.items()
            if answers
        )
        return self._found

    def _take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            since = whole_in(row.get("resumed_from"))
            if since is not None:
                for answers in self._answers.values():
                    for step in [step for step in answers if step > since or since == 0]:
                        del answers[step]
                continue
            at, kind = whole_in(row.get("step")), "prompt" if "prompt" in row else "row"
            number = whole_in(row.get(kind))
            if at is None or number is None or row.get("generation") is None:
                continue
            key = kind, number
            if key not in self._asked and len(self._asked) >= MOST_PROMPTS:
                continue
            reference = row.get("reference")
            # A text that reads as a number that JSON does not have comes back as one.
            self._asked[key] = str(row.get("source", "")), None if reference is None else str(reference)
            answers = self._answers.setdefault(key, {})
            answers[at] = Answer(at, str(row["generation"]), row.get("ended") is not False)
            if len(answers) > MOST_STEPS:
                del answers[sorted(answers)[1]]
