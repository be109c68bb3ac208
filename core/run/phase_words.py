"""What a training does right now, in words: the phase of phase.json with what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping

from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.phase import Phase, PhaseNow

PHASE_WORDS: Mapping[Phase, str] = {
    "preparing": mark("preparing"),
    "loading": mark("loading model and data"),
    "tokenising": mark("tokenising"),
    "compiling": mark("compiling the model"),
    "training": mark("training"),
    "evaluating": mark("evaluating"),
    "generating": mark("generating texts"),
    "saving": mark("saving"),
    "paused": mark("paused"),
    "finishing": mark("finishing"),
}
LONGEST_DETAIL = 200


def phase_words(now: PhaseNow, lasted: str = "") -> str:
    """ "tokenising 12,000 of 80,000 rows, for 3 min"; the detail is in the language of the training.

    `lasted`: how long it has, in words.
    """
    word, detail = tr(PHASE_WORDS[now.phase]), plain_text(now.detail, LONGEST_DETAIL)
    if detail and now.phase == "tokenising":
        word, detail = tr("tokenising {detail}", detail=detail), ""
    if lasted:
        word = tr("{what}, for {time}", what=word, time=lasted)
    return tr("{phase}: {detail}", phase=word, detail=detail) if detail else word
