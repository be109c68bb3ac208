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
    "paused": mark("waits for room on the disk"),
    "finishing": mark("finishing"),
}
LONGEST_DETAIL = 200


def phase_words(now: PhaseNow) -> str:
    """ "tokenising 12,000 of 80,000 rows"; the detail is in the language of the training."""
    word, detail = tr(PHASE_WORDS[now.phase]), plain_text(now.detail, LONGEST_DETAIL)
    if not detail:
        return word
    if now.phase == "tokenising":
        return tr("tokenising {detail}", detail=detail)
    return tr("{phase}: {detail}", phase=word, detail=detail)
