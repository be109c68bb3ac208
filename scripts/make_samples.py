"""Makes profiles/samples/sample-proteins.fasta.gz: invented proteins from a small grammar, the same bytes each time.

Each protein is a chain of domains of a few families. A domain is its family's consensus with
some letters replaced, so that the letters around a hidden one say what it was: a tiny masked LM
learns the families in seconds and goes far below the entropy of single letters. No letter comes
from a database.

Run it from the repository: python scripts/make_samples.py
"""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

SEED = 20
PROTEINS = 2000
FAMILIES = 12
MOTIF_LETTERS = (9, 18)
DOMAINS = (2, 6)
SUBSTITUTION = 0.06
LINE_LETTERS = 60
OUTPUT = Path(__file__).resolve().parent.parent / "profiles" / "samples" / "sample-proteins.fasta.gz"

# Rounded shares of the 20 amino acids in proteins (percent), so that unigram statistics look natural.
SHARES = {
    "L": 10, "A": 8, "G": 7, "V": 7, "E": 7, "S": 7, "I": 6, "K": 6, "R": 5, "D": 5,
    "T": 5, "P": 5, "N": 4, "Q": 4, "F": 4, "Y": 3, "M": 2, "H": 2, "C": 2, "W": 1,
}  # fmt: skip


def make_proteins(seed: int, count: int) -> list[tuple[str, str]]:
    """(name, sequence) of `count` invented proteins."""
    rng = random.Random(seed)
    letters, weights = list(SHARES), list(SHARES.values())

    def draw(length: int) -> str:
        return "".join(rng.choices(letters, weights, k=length))

    motifs = [draw(rng.randint(*MOTIF_LETTERS)) for _ in range(FAMILIES)]
    proteins = []
    for number in range(1, count + 1):
        family = rng.randrange(FAMILIES)
        parts = ["M"]
        for _ in range(rng.randint(*DOMAINS)):
            domain = motifs[family]
            parts.append("".join(draw(1) if rng.random() < SUBSTITUTION else letter for letter in domain))
            # Most often the next domain is the next family: order can be learnt too.
            family = (family + 1) % FAMILIES if rng.random() < 0.8 else rng.randrange(FAMILIES)
        proteins.append((f"sample{number:04d}", "".join(parts)))
    return proteins


def fasta(proteins: list[tuple[str, str]]) -> str:
    text = io.StringIO()
    for name, sequence in proteins:
        text.write(f">{name} invented protein\n")
        for start in range(0, len(sequence), LINE_LETTERS):
            text.write(sequence[start : start + LINE_LETTERS] + "\n")
    return text.getvalue()


def main() -> None:
    data = fasta(make_proteins(SEED, PROTEINS)).encode("ascii")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    # No time stamp in the header: the same bytes each time.
    OUTPUT.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))
    print(f"{OUTPUT}: {PROTEINS} proteins, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
