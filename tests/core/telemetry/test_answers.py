"""What the model said: read line by line, taken back by a resume, bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.telemetry.answers import MOST_PROMPTS, MOST_STEPS, AnswersFile


def said(step: int, text: Any, prompt: int = 0, **more: Any) -> dict[str, Any]:
    return {"step": step, "prompt": prompt, "source": f"question {prompt}", "generation": text, "ended": True, **more}


def written(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def test_the_first_and_the_newest_answer_of_each_prompt(tmp_path: Path) -> None:
    path = tmp_path / "generations.jsonl"
    file = AnswersFile(JsonLinesTail(path))
    assert file.read() == ()
    written(
        path,
        said(0, "NaN", reference="x"),
        said(0, "b", 1),
        said(10, "c", reference="x", ended=False),
        {"step": 10, "prompt": 1},
    )
    first, second = file.read()
    assert [(one.step, one.text.lower(), one.ended) for one in first.answers] == [(0, "nan", True), (10, "c", False)]
    assert (first.reference, second.source, len(second.answers)) == ("x", "question 1", 1)
    # A run that is resumed from step 10 answers what came after it again.
    written(path, said(20, "lost"), {"resumed_from": 10}, said(20, "again"))
    assert [(answer.step, answer.text) for answer in file.read()[0].answers[1:]] == [(10, "c"), (20, "again")]
    # Texts that were generated for BLEU are prompts of their own.
    written(path, {"step": 20, "row": 0, "source": "s", "reference": "r", "generation": "g"})
    assert [prompt.source for prompt in file.read()] == ["question 0", "question 1", "s"]
    written(path, {"resumed_from": 0})
    assert file.read() == ()


def test_no_file_is_too_long_for_it(tmp_path: Path) -> None:
    path = tmp_path / "generations.jsonl"
    written(path, *(said(step, f"{step}") for step in range(MOST_STEPS + 50)))
    written(path, *(said(0, "x", prompt) for prompt in range(MOST_PROMPTS + 9)))
    prompts = AnswersFile(JsonLinesTail(path)).read()
    kept = [answer.step for answer in prompts[0].answers]
    assert kept[0] == 0 and kept[-1] == MOST_STEPS + 49 and len(kept) == MOST_STEPS
    assert len(prompts) == MOST_PROMPTS
