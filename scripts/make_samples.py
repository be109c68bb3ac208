"""Makes the samples in profiles/samples, the same bytes each time. Nothing comes from a database or another text.

- sample-proteins: chains of domains of a few families, so that the letters around a hidden one say what it was.
- sample-text: small stories of one grammar, whose later sentences follow from the first ones.
- sample-pairs: sentences of an invented language (verb last, adjective after its noun) and their English.
- sample-reviews: what a customer says of a thing, positive, neutral or negative; negations turn it round.
- sample-names: sentences whose names of people, places and firms are tagged, some of them known by their place alone.
- sample-chat: one to three questions of a few kinds, each with its one right answer.

A tiny model goes far below the entropy of single letters or words in a few hundred steps.

Run it from the repository: python scripts/make_samples.py [FOLDER]
"""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

SEED = 20
OUTPUT = Path(__file__).resolve().parent.parent / "profiles" / "samples"

PROTEINS = 2000
FAMILIES = 12
MOTIF_LETTERS = (9, 18)
DOMAINS = (2, 6)
SUBSTITUTION = 0.06
LINE_LETTERS = 60
# Rounded shares of the 20 amino acids in proteins (percent), so that unigram statistics look natural.
SHARES = {
    "L": 10, "A": 8, "G": 7, "V": 7, "E": 7, "S": 7, "I": 6, "K": 6, "R": 5, "D": 5,
    "T": 5, "P": 5, "N": 4, "Q": 4, "F": 4, "Y": 3, "M": 2, "H": 2, "C": 2, "W": 1,
}  # fmt: skip

STORIES = 3000
PEOPLE = ("Anna", "Boris", "Clara", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas")
PLACES = {
    "market": "apples", "harbour": "fish", "bakery": "rolls", "garden": "tulips",
    "forest": "mushrooms", "library": "books", "workshop": "nails", "farm": "eggs",
}  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WEATHER = {"rained": "an umbrella", "snowed": "a scarf", "was sunny": "a hat", "was windy": "a coat"}

PAIRS = 4000
NOUNS = (
    "bird", "boat", "book", "bridge", "cat", "child", "cloud", "dog", "farmer", "fox", "friend", "horse",
    "house", "king", "lamp", "mountain", "river", "sailor", "teacher", "tree",
)  # fmt: skip
VERBS = ("builds", "calls", "draws", "finds", "follows", "hears", "knows", "likes", "paints", "sees", "visits", "wants")
ADJECTIVES = ("big", "blue", "clever", "cold", "green", "happy", "old", "quiet", "red", "small", "white", "young")
TIMES = ("today", "often", "never", "at night")
SYLLABLES = ("ba", "de", "fi", "go", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")

REVIEWS = 2000
THINGS = ("lamp", "kettle", "chair", "bicycle", "radio", "jacket", "tent", "clock", "knife", "backpack")
GOOD = ("sturdy", "quiet", "light", "well made", "easy to use", "worth its price")
BAD = ("flimsy", "noisy", "heavy", "badly made", "hard to use", "too expensive")
PLAIN = ("blue", "made of metal", "as long as my arm", "sold in a box", "the second one that I have")
OPENINGS = ("I bought it last {day}.", "It came on {day}.", "My sister gave it to me.", "", "")
SHARES_OF_MOODS = {"positive": 5, "negative": 3, "neutral": 2}

NAMED = 2000
FAMILY_NAMES = ("Berg", "Costa", "Dahl", "Okafor", "Rossi", "Sato", "Silva", "Winter")
TOWNS = ("Arlen", "Brook", "Corvin", "Delmar", "Eastport", "New Hollow", "Port Simms", "Winter")
FIRMS = ("Brook & Sons", "Corvin Mills", "Dahl Optics", "Eastport Bank", "Silva Foods")
SENTENCES = (
    "{PER} moved to {LOC} last {day} .", "{ORG} opened an office in {LOC} .", "On {day} {PER} met {PER} .",
    "{PER} works for {ORG} .", "The train from {LOC} to {LOC} was late .", "{ORG} sold {number} houses to {ORG} .",
    "Nobody came on {day} .", "{PER} wrote to {ORG} about the bill .",
)  # fmt: skip

CHATS = 3000
OPPOSITES = {
    "big": "small", "hot": "cold", "old": "young", "full": "empty", "wet": "dry", "fast": "slow", "open": "closed",
    "early": "late", "loud": "quiet", "hard": "soft", "high": "low", "light": "heavy",
}  # fmt: skip
COLOURS = {
    "a lemon": "yellow", "grass": "green", "snow": "white", "coal": "black", "a tomato": "red", "the sea": "blue",
    "a carrot": "orange", "an elephant": "grey", "chocolate": "brown", "a flamingo": "pink",
}  # fmt: skip
HOMES = {
    "a bird": "a nest", "a bee": "a hive", "a fox": "a den", "a king": "a castle", "a fish": "the water",
    "a horse": "a stable", "a spider": "a web", "a monk": "a monastery",
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


def make_stories(seed: int, count: int) -> list[str]:
    """`count` stories of one line. What is bought, taken and left over follows from what came before."""
    rng = random.Random(seed)
    stories = []
    for _ in range(count):
        person, friend = rng.sample(PEOPLE, 2)
        place, day, weather = rng.choice(list(PLACES)), rng.randrange(7), rng.choice(list(WEATHER))
        bought = rng.randint(3, 12)
        given = rng.randint(1, bought - 1)
        goods = PLACES[place]
        lines = [
            f"On {DAYS[day]} it {weather}, so {person} took {WEATHER[weather]} and walked to the {place}.",
            f"At the {place} {person} found {NUMBERS[bought - 1]} {goods}.",
            f"On the way home {person} met {friend} and gave {friend} {NUMBERS[given - 1]} of the {goods}.",
            f"Now {person} had {NUMBERS[bought - given - 1]} {goods} and {friend} had {NUMBERS[given - 1]}.",
            f'"See you on {DAYS[(day + 1) % 7]}," said {friend} to {person}.',
        ]
        stories.append(" ".join(lines))
    return stories


def make_pairs(seed: int, count: int) -> list[tuple[str, str]]:
    """(invented language, English) of `count` different sentences.

    Subject, object, verb; an adjective after its noun; the time word first: a word for word
    dictionary and one order of words are all there is to learn.
    """
    rng = random.Random(seed)
    words = dict(zip((*NOUNS, *VERBS, *ADJECTIVES, *TIMES), _invented_words(rng), strict=False))

    def phrase() -> tuple[str, str]:
        noun = rng.choice(NOUNS)
        if rng.random() < 0.4:
            return words[noun], f"the {noun}"
        adjective = rng.choice(ADJECTIVES)
        return f"{words[noun]} {words[adjective]}", f"the {adjective} {noun}"

    pairs: dict[str, str] = {}
    while len(pairs) < count:
        (subject, subject_en), (other, other_en), verb = phrase(), phrase(), rng.choice(VERBS)
        source, english = f"{subject} {other} {words[verb]}", f"{subject_en} {verb} {other_en}"
        if rng.random() < 0.3:
            time = rng.choice(TIMES)
            source, english = f"{words[time]} {source}", f"{english} {time}"
        pairs[f"{source}."] = f"{english[0].upper()}{english[1:]}."
    return list(pairs.items())


def _invented_words(rng: random.Random) -> list[str]:
    words = [first + second + end for first in SYLLABLES for second in SYLLABLES for end in ("", "n", "s")]
    rng.shuffle(words)
    return words


def make_reviews(seed: int, count: int) -> list[tuple[str, str]]:
    """`count` reviews with what they say."""
    rng = random.Random(seed)
    reviews = []
    for _ in range(count):
        (mood,) = rng.choices(list(SHARES_OF_MOODS), list(SHARES_OF_MOODS.values()))
        thing = rng.choice(THINGS)
        words = []
        for _ in range(rng.randint(1, 2)):
            turned = rng.random() < 0.25
            said = PLAIN if mood == "neutral" else GOOD if (mood == "positive") != turned else BAD
            words.append(("not " if turned and mood != "neutral" else "") + rng.choice(said))
        opening = rng.choice(OPENINGS).format(day=rng.choice(DAYS))
        reviews.append((f"{opening} The {thing} is {' and '.join(words)}.".strip(), mood))
    return reviews


def make_named(seed: int, count: int) -> list[tuple[list[str], list[str]]]:
    """`count` sentences as words with their tags."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        words, tags = list[str](), list[str]()
        for part in rng.choice(SENTENCES).split():
            kind = part.strip("{}") if part in ("{PER}", "{LOC}", "{ORG}") else ""
            name = {
                "PER": f"{rng.choice((*PEOPLE, ''))} {rng.choice(FAMILY_NAMES)}",
                "LOC": rng.choice(TOWNS),
                "ORG": rng.choice(FIRMS),
            }.get(kind, part.format(day=rng.choice(DAYS), number=rng.choice(NUMBERS)) if not kind else "")
            for place, word in enumerate(name.split()):
                words.append(word)
                tags.append(f"{'I' if place else 'B'}-{kind}" if kind else "O")
        rows.append((words, tags))
    return rows


def make_chats(seed: int, count: int) -> list[tuple[str, str]]:
    """`count` different prompts of one to three questions, and their answers in the same order."""
    rng = random.Random(seed)
    kinds = (_opposite, _colour, _home, _sum, _day, _spelling)
    chats: dict[str, str] = {}
    while len(chats) < count:
        asked = [rng.choice(kinds)(rng) for _ in range(rng.randint(1, 3))]
        chats[" ".join(question for question, _ in asked)] = " ".join(answer for _, answer in asked)
    return list(chats.items())


def _opposite(rng: random.Random) -> tuple[str, str]:
    word, other = rng.choice([*OPPOSITES.items(), *((other, word) for word, other in OPPOSITES.items())])
    return f"What is the opposite of {word}?", f"The opposite of {word} is {other}."


def _colour(rng: random.Random) -> tuple[str, str]:
    thing, colour = rng.choice(list(COLOURS.items()))
    return f"What colour is {thing}?", f"{thing[0].upper()}{thing[1:]} is {colour}."


def _home(rng: random.Random) -> tuple[str, str]:
    who, where = rng.choice(list(HOMES.items()))
    return f"Where does {who} live?", f"{who[0].upper()}{who[1:]} lives in {where}."


def _sum(rng: random.Random) -> tuple[str, str]:
    first, second = rng.randint(1, 6), rng.randint(1, 6)
    words = NUMBERS[first - 1], NUMBERS[second - 1], NUMBERS[first + second - 1]
    return f"How much is {words[0]} plus {words[1]}?", f"{words[0].capitalize()} plus {words[1]} is {words[2]}."


def _day(rng: random.Random) -> tuple[str, str]:
    day, (word, step) = rng.randrange(7), rng.choice((("after", 1), ("before", -1)))
    return f"Which day comes {word} {DAYS[day]}?", f"The day {word} {DAYS[day]} is {DAYS[(day + step) % 7]}."


def _spelling(rng: random.Random) -> tuple[str, str]:
    noun = rng.choice(NOUNS)
    return f"How do you spell {noun}?", f"{noun.capitalize()} is spelt {'-'.join(noun)}."


def fasta(proteins: Sequence[tuple[str, str]]) -> str:
    text = io.StringIO()
    for name, sequence in proteins:
        text.write(f">{name} invented protein\n")
        for start in range(0, len(sequence), LINE_LETTERS):
            text.write(sequence[start : start + LINE_LETTERS] + "\n")
    return text.getvalue()


def tsv(pairs: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in [("source", "target"), *pairs])


def json_lines(chats: Sequence[tuple[str, str]]) -> str:
    return "".join(json.dumps({"prompt": prompt, "response": response}) + "\n" for prompt, response in chats)


def csv_table(reviews: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{text},{label}\n" for text, label in [("text", "label"), *reviews])


def tagged(rows: Sequence[tuple[list[str], list[str]]]) -> str:
    return "".join(json.dumps({"tokens": words, "ner_tags": tags}) + "\n" for words, tags in rows)


def main(folder: Path = OUTPUT) -> None:
    """Write all samples to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "sample-proteins.fasta.gz": fasta(make_proteins(SEED, PROTEINS)),
        "sample-text.txt.gz": "".join(f"{story}\n" for story in make_stories(SEED, STORIES)),
        "sample-pairs.tsv.gz": tsv(make_pairs(SEED, PAIRS)),
        "sample-reviews.csv.gz": csv_table(make_reviews(SEED, REVIEWS)),
        "sample-names.jsonl.gz": tagged(make_named(SEED, NAMED)),
        "sample-chat.jsonl.gz": json_lines(make_chats(SEED, CHATS)),
    }
    for name, text in contents.items():
        # No time stamp in the header: the same bytes each time.
        (folder / name).write_bytes(gzip.compress(text.encode("utf-8"), compresslevel=9, mtime=0))
        print(f"{folder / name}: {text.count(chr(10))} lines, {(folder / name).stat().st_size} bytes")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
