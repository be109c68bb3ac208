"""BLEU of generated texts (Papineni et al. 2002), by sacrebleu."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
KANA = re.compile(r"[\u3040-\u30ff]")
HAN_SHARE = 0.2
"""Share of Chinese characters among the letters of the references above which they are Chinese."""
LOOKED_AT = 200


def word_cutter(choice: str | None, references: Sequence[str]) -> str:
    """Name of sacrebleu's tokenizer: the choice, else zh for Chinese references and 13a for all others."""
    if choice is not None:
        return choice
    text = "".join(references[:LOOKED_AT])
    letters = sum(1 for letter in text if letter.isalpha())
    chinese = len(HAN.findall(text))
    return "zh" if letters and chinese > HAN_SHARE * letters and not KANA.search(text) else "13a"


def make_bleu(cutter: str) -> BLEU:
    """sacrebleu's BLEU-4 with its default smoothing. Raises UsageError when the tokenizer needs a package more."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=cutter)
    except (ImportError, RuntimeError) as error:
        package = "sacrebleu[ja]" if cutter == "ja-mecab" else "sacrebleu[ko]"
        raise usage_error(
            "missing_package",
            "evaluation.bleu_tokenizer",
            tr(
                "BLEU with {name} needs a package that is not here: pip install '{package}', or choose another "
                "evaluation.bleu_tokenizer.",
                name=cutter,
                package=package,
            ),
        ) from error
