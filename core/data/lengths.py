"""How long rows are and in which order they come: token counts, padded and joined lengths, rows of like length, windows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.catalog.hub import cached_model_folder
from trainwiz.core.catalog.models import MADE_FROM_THE_DATA, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.config.run import DataSection
from trainwiz.core.files import at_home
from trainwiz.core.language import mark

# padded_length: how long a micro-batch becomes (data.pad_to_multiple_of).


def padded_length(longest: int, multiple: int, limit: int | None = None) -> int:
    """Tokens that the rows of a micro-batch are padded to: `longest` of them rounded up to a multiple.

    Never beyond `limit`, the longest that the run allows (the model may have no positions there), which need not be
    a multiple; and never less than `longest`.
    """
    rounded = -(-longest // multiple) * multiple
    return rounded if limit is None else max(longest, min(rounded, limit))


# How many tokens a text has: counted with the model's tokenizer where it is here, else estimated from its bytes.

BYTES_PER_TOKEN = 4.0
"""Rough UTF-8 bytes of one subword token: 4 letters of English, 1.3 characters of Chinese. Of a vocabulary of 500 entries,
made from the data, it was 2; of 2,000, 3.0 to 3.5; of 8,000, 4.0 to 4.8."""
MOST_CHARACTERS, MOST_SAMPLED_CHARACTERS = 4_000_000, 750_000
"""Of all rows, and of a sample: counted with a tokenizer at one or two million characters a second; what is beyond is
estimated from them."""
EXACT, ESTIMATED = mark("tokens"), mark("tokens (estimated)")
"""What lengths are counted in: code compares it, screens translate it."""


class TokenCounter:
    """Lengths of texts in tokens, the special ones included."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        """Relative paths are from `folder`."""
        self._tokenizer = _load(tokenizer_folder(config, folder))
        self.tokenizes = self._tokenizer is not None
        """The model's own tokenizer is here."""
        self.unit = EXACT if self.tokenizes else ESTIMATED
        self._characters = self._bytes = self._tokens = 0
        """Of what was cut into tokens."""

    def count(self, texts: pa.Array, *, special: bool = True, sampled: bool = False) -> np.ndarray:
        """(n,) int64 for a LargeStringArray (n,); `special` adds what the tokenizer puts around a text, or one token."""
        most = MOST_SAMPLED_CHARACTERS if sampled else MOST_CHARACTERS
        counts = list[int]()
        for text in texts.to_pylist() if self.tokenizes else ():
            room = most - self._characters
            if len(text) > room:
                self.unit = ESTIMATED
                if not self._tokens:
                    self._encode(text[:room], special)
                break
            counts.append(self._encode(text, special))
        ratio = self._bytes / self._tokens if self._tokens else BYTES_PER_TOKEN
        sizes: np.ndarray = pc.binary_length(texts).to_numpy(zero_copy_only=False)[len(counts) :]
        return np.concatenate([counts, np.ceil(sizes / ratio) + special]).astype(np.int64)

    def _encode(self, text: str, special: bool) -> int:
        """One text at a time: the library's own threads must not be running when a process is forked."""
        tokens = len(self._tokenizer.encode(text, add_special_tokens=special))
        self._characters += len(text)
        self._bytes += len(text.encode())
        self._tokens += tokens
        return tokens


def bytes_in(texts: pa.Array) -> int:
    """UTF-8 bytes of a LargeStringArray."""
    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)


def tokenizer_folder(config: RunConfig, folder: Path, files: Iterable[str] = ("tokenizer.json",)) -> Path | None:
    """Where the tokenizer is that training will use, where any of its `files` is here already."""
    if config.model.tokenizer == MADE_FROM_THE_DATA:
        return None
    names, places = [config.model.tokenizer], list[Path | None]()
    if config.model.tokenizer is None:
        spec, _ = resolve_model(config.model)
        names = [config.model.name] if spec is None else [config.model.name, spec.tokenizer, spec.hub_id]
        places = [] if spec is None else [spec.path]
    for name in reversed(names):
        if name is not None:
            path = folder / at_home(Path(name))
            places[:0] = [path.parent if path.is_file() else path, cached_model_folder(name)]
    return next((place for place in places if place and any((place / name).is_file() for name in files)), None)


def _load(folder: Path | None) -> Any:
    """The tokenizer, or None where there is none, its file is broken or the library is not here: training says so, planning
    goes on."""
    if folder is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    # The library raises plain Exception for a file that it cannot read.
    except Exception:  # noqa: BLE001
        return None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


# LengthOrder: rows of like length side by side, so that a micro-batch is padded little.

POOL_ROWS = 2048
"""Rows that are arranged together across steps, at least: 32 micro-batches of 64 rows. A larger step is arranged alone."""
LEAST_POOLS = 4
"""Of an epoch. One pool of all rows would put the same rows into the same steps again and again."""


def pool_steps(step_rows: int, rows: int) -> int:
    """Optimizer steps whose rows data.group_by_length arranges together, in an epoch of `rows` rows.

    It must not depend on the size of a micro-batch, which may change when a run is resumed; the
    rows of a step may not.
    """
    steps = math.ceil(rows / step_rows)
    return max(1, min(math.ceil(POOL_ROWS / step_rows), steps // LEAST_POOLS))


@dataclass(frozen=True, slots=True)
class StepShape:
    """How the rows of one optimizer step are computed."""

    rows: int
    """Of all processes."""
    micro_batch: int
    processes: int

    @property
    def can_be_arranged(self) -> bool:
        """Whether the order of its rows changes what is computed: which rows are padded together, or what each process gets."""
        return self.rows > self.micro_batch > (1 if self.processes == 1 else 0)


class LengthOrder:
    """Arranges an order of rows by length, pool by pool; still a function of (seed, epoch), each row once.

    The rows of a pool are sorted, the longest first, and cut into its steps, which follow each other
    in an order drawn by (seed, epoch, pool). So a step has rows of like length, the longest first,
    and the micro-batches that the processes compute at one time have neighbours in it. A pool of one
    step has the rows that it would have without, in another order: its gradient is the same sum.
    """

    def __init__(self, lengths: np.ndarray, step: StepShape, *, pool: int = 1, even: bool = False) -> None:
        """`lengths` (rows,) int: of each row, in any unit; `pool`: steps whose rows are arranged together. `even`: each
        micro-batch of a step gets long and short rows, as many units as the others, where nothing is padded."""
        self._lengths = lengths
        self._step = step
        self._pool_rows = step.rows * pool
        self._even = even

    def arranged(self, orders: Iterable[np.ndarray], seed: int, epoch: int) -> Iterator[np.ndarray]:
        """`orders`: rows (n,) int64 window by window. No row leaves its window, whose rows alone are in memory."""
        place = number = 0
        for order in orders:
            start = 0
            while start < len(order):
                end = min(len(order), start + self._pool_rows - place % self._pool_rows)
                yield self._pool(order[start:end], place, _generator(seed, epoch, number, 4))
                place += end - start
                number += 1
                start = end

    def _pool(self, rows: np.ndarray, place: int, generator: np.random.Generator) -> np.ndarray:
        """`rows` of the places from `place` on, arranged."""
        # Stable: rows of one length stay in the order in which they were drawn.
        ordered = rows[np.argsort(-self._lengths[rows].astype(np.int64), kind="stable")]
        inside = np.arange(self._step.rows - place % self._step.rows, len(rows), self._step.rows)
        starts = np.concatenate([[0], inside]).astype(np.int64)
        sizes = np.diff(np.append(starts, len(rows)))
        drawn = generator.permutation(len(sizes))
        arranged = np.empty_like(rows)
        taken = 0
        for step in drawn.tolist():
            size, start = int(sizes[step]), int(starts[step])
            # A part of a step, where a window of streamed rows ends in it, begins in the middle of its micro-batches.
            of_step = ordered[taken : taken + size]
            arranged[start : start + size] = self._dealt(of_step) if size == self._step.rows else of_step
            taken += size
        return arranged

    def _dealt(self, rows: np.ndarray) -> np.ndarray:
        """A whole step's rows, longest first, with every second round of micro-batches dealt to the processes backwards.

        A process that always got the longest one of a round would let the others wait at the end of the step.
        """
        step = self._step
        if self._even:
            # Each micro-batch in turn takes the longest row that is left, every second time in reverse.
            turns = rows.reshape(step.micro_batch, -1).copy()
            turns[1::2] = turns[1::2, ::-1]
            return turns.T.reshape(-1)
        if step.processes == 1:
            return rows
        rounds = rows.reshape(-1, step.processes, step.micro_batch).copy()
        rounds[1::2] = rounds[1::2, ::-1]
        return rounds.reshape(-1)


# Windows: the order of streamed rows, which may be more than the RAM holds.

UNIT_BYTES, WINDOW_UNITS = 4 << 20, 32
"""Constants: the order of a run must not depend on the machine that resumes it."""
SHUFFLED_AS_ONE = "torch.randperm"
"""Said in a refusal. Versions before had other numbers, called "whole"."""


class Windows:
    """An order that shuffles rows on a disk, and needs no state.

    Rows that follow each other make units of some MiB. The units are permuted by (seed, epoch), each WINDOW_UNITS of them
    make a window, and its rows are permuted by (seed, epoch, window): what is read at one time lies in few places of the
    disk. Which row comes at a place of an epoch is so a function of these numbers: each row once, whoever reads it. What
    fits into one window is shuffled as a whole, as rows in memory are.
    """

    def __init__(self, lengths: np.ndarray) -> None:
        """`lengths` (rows,) int64: bytes of each row."""
        ends = np.cumsum(lengths, dtype=np.int64)
        inside = np.searchsorted(ends, np.arange(UNIT_BYTES, ends[-1] if len(ends) else 0, UNIT_BYTES), side="right")
        self._edges = np.unique(np.concatenate([[0], inside, [len(lengths)]])).astype(np.int64)

    @property
    def several(self) -> bool:
        """Whether the rows are more than one window; else they are shuffled as rows in memory are."""
        return len(self._edges) > WINDOW_UNITS + 1

    def described(self) -> str:
        """What the order depends on beside seed and epoch: the same for all data that is shuffled as a whole."""
        if not self.several:
            return SHUFFLED_AS_ONE
        edges = np.ascontiguousarray(self._edges, "<i8").tobytes()
        return f"windows-{hashlib.blake2b(b'%d;' % WINDOW_UNITS + edges, digest_size=8).hexdigest()}"

    def orders(self, seed: int, epoch: int) -> Iterator[np.ndarray]:
        """The rows of each window, (n,) int64, in the order in which they are seen."""
        units = _generator(seed, epoch, 0, 3).permutation(len(self._edges) - 1)
        for number, start in enumerate(range(0, len(units), WINDOW_UNITS)):
            chosen = units[start : start + WINDOW_UNITS]
            rows = np.concatenate([np.arange(self._edges[unit], self._edges[unit + 1]) for unit in chosen])
            yield _generator(seed, epoch, number, 2).permutation(rows)


def _generator(seed: int, epoch: int, number: int, purpose: int) -> np.random.Generator:
    """Philox, whose stream depends on these numbers alone; masks of rows are drawn with purpose 0."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, number, purpose, 0]))


# Whether rows are chats, and whether the texts of a causal language model are joined and cut into sequences of full length.


def trains_on_chats(config: RunConfig) -> bool:
    """All sources of a run are of one layout (target_findings)."""
    return config.task == "causal-lm" and config.data.sources[0].layout == "chat"


def joins_texts(config: RunConfig) -> bool:
    """What `data.concatenate` says; where it is open, plain text that trains all weights is joined.

    A row with a target (a prompt and its response) stays a sample of its own, and so does every
    row of an adapter run, whose batch is counted in samples.
    """
    if config.task != "causal-lm" or trains_on_chats(config):
        return False
    if config.data.concatenate is not None:
        return config.data.concatenate
    has_targets = any(source.target_column is not None for source in config.data.sources)
    return not has_targets and config.peft.method == "none"


# Whether the rows of a micro-batch lie end to end instead of being padded to the longest.


def packs_rows(config: RunConfig) -> bool:
    """What `data.packing` says; joined texts are of one length and have no padding to leave out."""
    return config.data.packing and not joins_texts(config)


# How a prompt and its generated answer share a sequence, and how long a generated text may get.


def prompt_room(config: RunConfig) -> int:
    """Tokens of a causal sequence that a prompt may have when its answer is generated: at least half of them."""
    length = config.batch.sequence_length
    return max(length // 2, length - (config.evaluation.generation_length or length))


def longest_generation(config: RunConfig) -> int:
    """Most tokens of a generated text.

    A causal model's answer fits the sequence length together with its prompt, as it does in
    training, so that evaluation.generation_length counts up to half of it.
    """
    if config.task == "causal-lm":
        return config.batch.sequence_length - prompt_room(config)
    batch = config.batch
    return config.evaluation.generation_length or batch.target_length or batch.sequence_length


# Which rows are held out for evaluation.

DEFAULT_SHARE = 0.01
DEFAULT_MOST = 2000


def held_out_count(rows: int, data: DataSection) -> int:
    """How many of `rows` training rows are held out: what the config says, at most half of them.

    0 when there are separate validation sources or fewer than two rows.
    """
    if data.validation_sources or data.validation_rows == 0 or rows < 2:
        return 0
    if data.validation_rows is None:
        return min(max(1, round(rows * DEFAULT_SHARE)), DEFAULT_MOST)
    return min(data.validation_rows, rows // 2)


def split_rows(rows: int, held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(training rows, held-out rows) as sorted int64 positions; a function of the seed alone."""
    order = np.random.Generator(np.random.Philox(key=[seed, 0x5B117])).permutation(rows)
    chosen = np.sort(order[:held_out])
    # Sorted in its place: of ten million rows each copy takes 80 MB.
    order = order[held_out:]
    order.sort()
    return order.astype(np.int64, copy=False), chosen.astype(np.int64, copy=False)
