"""Write the tables of docs/cards/*.md: what a class of cards trains, as `trainwiz plan --tier analytic` says.

`python scripts/card_pages.py` writes them; `--check [PAGE...]` exits 1 where a page is not what it would write.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parent.parent / "docs" / "cards"
BEGIN, END = "<!-- From here on written by scripts/card_pages.py. -->\n", "<!-- Until here. -->\n"
CARDS: dict[str, tuple[tuple[str, int], ...]] = {
    "8gb": (("RTX 4060", 1),),
    "12gb": (("RTX 3060 12GB", 1),),
    "16gb": (("RTX 4060 Ti 16GB", 1),),
    "24gb": (("RTX 3090", 1),),
    "2x24gb": (("RTX 3090", 2),),
    "48-80gb": (("L40S", 1), ("A100 80GB SXM", 1)),
    "apple-cpu": (("Apple M2 Max", 1),),
}
"""Page -> the cards that stand for its class."""
SIZES: dict[str, tuple[int, float, float]] = {
    "8gb": (1, 8, 8), "12gb": (1, 10, 12), "16gb": (1, 16, 16), "24gb": (1, 22, 24), "2x24gb": (2, 22, 24),
    "48-80gb": (1, 40, 80),
}  # fmt: skip
"""Page -> cards of the profiles on it: how many, and of which memory in GB."""
MODELS = ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b")
METHODS: dict[str, dict[str, Any]] = {
    "full fine-tuning": {"peft": "none"},
    "LoRA": {"peft": "lora", "base_precision": "none"},
    "QLoRA (4 bits)": {"peft": "lora", "base_precision": "nf4"},
}
LENGTH, RAM = 1024, "64G"
FIXED = {"task": "causal-lm", "length": LENGTH, "ram": RAM, "tier": "analytic"}
GIB = 1024**3


def cell(model: str, card: str, cards: int, method: str) -> str:
    """ "5.3 GiB", "tight", "offload" or "✗"."""
    import trainwiz

    plan = trainwiz.plan(profile="none", model=model, gpu=card, num_gpus=cards, **METHODS[method], **FIXED)
    memory = plan["memory"]
    if memory["verdict"] != "does_not_fit":
        amount = f"{memory['needed_bytes'] / GIB:.1f} GiB"
        return amount if memory["verdict"] == "fits" else f"{amount}, tight"
    changes = [
        fix["changes"] for found in plan["findings"] if found["code"] == "does_not_fit" for fix in found["remedies"]
    ]
    same = [change for change in changes if not change.keys() & {"model.name", "peft.method", "engine.base_precision"}]
    return "with offload" if any("engine.offload" in change for change in same) else "✗"


def ladder(card: str, cards: int) -> Iterator[str]:
    """Models by size against methods. Where a smaller model does not fit, the larger ones are not asked."""
    methods = [method for method in METHODS if not (card.startswith("Apple") and "4 bits" in method)]
    yield f"| {card if cards == 1 else f'{cards} × {card}'} | {' | '.join(methods)} |"
    yield "|---" * (len(methods) + 1) + "|"
    gone: set[str] = set()
    for model in MODELS:
        cells = []
        for method in methods:
            text = "✗" if method in gone else cell(model, card, cards, method)
            gone |= {method} if text == "✗" else set()
            cells.append(text)
        yield f"| `{model}` | {' | '.join(cells)} |"


def profiles_of(page: str) -> Iterator[str]:
    """The shipped profiles for cards of this class, each planned for its own card."""
    import trainwiz
    from trainwiz.core.catalog.gpus import load_gpus
    from trainwiz.core.profile.store import list_profiles

    yield "| profile | card | model | needs | tokens/s |"
    yield "|---|---|---|---|---|"
    catalogue = load_gpus()
    for profile in list_profiles():
        card = profile.hardware.gpu
        if profile.origin != "builtin" or profile.name.endswith("-guide") or card is None:
            continue
        if page == "apple-cpu":
            wanted = card.startswith("Apple")
        else:
            cards, least, most = SIZES[page]
            size = catalogue[card].memory_bytes / GIB
            wanted = profile.hardware.num_gpus == cards and least * 0.9 <= size <= most and not card.startswith("Apple")
        if not wanted:
            continue
        plan = trainwiz.plan(profile=profile.name, tier="analytic")
        needs, pace = plan["memory"]["needed_bytes"] / GIB, plan["time"]["tokens_per_s"]
        trains = {"none": "full fine-tuning", "lora": "LoRA"}[profile.values.get("peft.method", "none")]
        yield f"| `{profile.name}` | {card} | {plan['model']['name']}, {trains} | {needs:.1f} GiB | {rounded(pace)} |"


def rounded(pace: float | None) -> str:
    """Two digits: the range of the time is a factor of two and more."""
    return "-" if pace is None else f"{float(f'{pace:.2g}'):,.0f}"


def tables(page: str) -> str:
    parts = ["\n".join(ladder(card, cards)) for card, cards in CARDS[page]]
    return "\n\n".join([*parts, "Profiles that ship with trainwiz for such cards:", "\n".join(profiles_of(page))])


def main(arguments: list[str]) -> int:
    # What was measured on this machine, and its user's profiles, have no place in the tables.
    home = tempfile.mkdtemp(prefix="trainwiz-cards-")
    os.environ |= {f"XDG_{kind}_HOME": home for kind in ("CONFIG", "CACHE", "STATE", "DATA")}
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRAINWIZ_LANG": "en"}
    wrong = 0
    for page in [name for name in arguments if name != "--check"] or CARDS:
        path = PAGES / f"{page}.md"
        old = path.read_text(encoding="utf-8")
        head, rest = old.split(BEGIN)
        new = f"{head}{BEGIN}\n{tables(page)}\n\n{END}{rest.split(END)[1]}"
        wrong |= int(new != old)
        if "--check" not in arguments:
            path.write_text(new, encoding="utf-8")
    return wrong if "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
