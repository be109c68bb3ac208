"""What the model writes while it trains: texts for BLEU, and answers to a few prompts, before it trains and at every evaluation."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import generates_at_saves
from trainwiz.core.data.chats import last_answer, messages_of
from trainwiz.core.data.lengths import longest_generation
from trainwiz.core.data.prompts import MASKS, MOST_S, ROWS, answer_length, asks_prompts, names_prompts, read_prompts
from trainwiz.core.data.text_store import TextStore
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import usage_error
from trainwiz.core.hardware.install import find_installer, install_line
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.text import json_line
from trainwiz.core.training.callbacks import Moment, RunCallback, any_process
from trainwiz.core.training.chats import place_of_last_answer
from trainwiz.core.training.engine import forward_needs_all
from trainwiz.core.training.evaluation import ends_epoch
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.process import LastingLines, phases
from trainwiz.core.training.tokenizer import forced_first_token
from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteria, StoppingCriteriaList, TrainerState

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from trainwiz.core.training.trainer import RunTrainer

# BLEU of generated texts (Papineni et al. 2002), by sacrebleu.

HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
HAN_SHARE = 0.2
"""Share of Chinese characters in the references above which they are cut one by one."""
LOOKED_AT = 200


def word_cutter(choice: str | None, references: Sequence[str]) -> str:
    """Name of sacrebleu's tokenizer: the choice, else zh for references with many Chinese characters and 13a for others."""
    text = "".join(references)
    return choice or ("zh" if len(HAN.findall(text)) > HAN_SHARE * len(text) else "13a")


def make_bleu(cutter: str) -> BLEU:
    """sacrebleu's BLEU-4 with its default smoothing. Raises UsageError when the tokenizer needs a package more."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=cutter)
    except (ImportError, RuntimeError) as error:
        raise usage_error(
            "missing_package",
            "evaluation.bleu_tokenizer",
            tr(
                "BLEU with {name} needs a package that is not installed: {command}, or choose another "
                "evaluation.bleu_tokenizer.",
                name=cutter,
                command=install_line(find_installer(), f"sacrebleu[{cutter[:2]}]"),
            ),
        ) from error


# Writers: a model continues some tokens, or fills their masks.


@dataclass(frozen=True, slots=True)
class Written:
    text: str
    tokens: int
    """The end token counts."""
    ended: bool
    """By itself, and not because it reached the longest length."""


class Stopped(StoppingCriteria):
    """Ends all texts of a batch once it is so."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._stopped(), dtype=torch.bool, device=input_ids.device)


class Writer:
    """Greedy or beam search from sources or prompts, a batch at once."""

    def __init__(
        self, config: RunConfig, tokenizer: PreTrainedTokenizerBase, length: int, ends: Sequence[int], beams: int = 1
    ) -> None:
        """`length`: most tokens of a text. `ends`: tokens that end one beside the tokenizer's own."""
        self._tokenizer: Any = tokenizer
        self._follows = config.task == "causal-lm"
        """A causal model continues its input, so sources are padded on the left."""
        self._ends = {int(tokenizer.eos_token_id), *ends}
        self._search = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=length,
            num_beams=beams,
            do_sample=False,
            use_cache=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=sorted(self._ends),
            forced_bos_token_id=forced_first_token(tokenizer),
        )

    def write(self, sources: Sequence[list[int]], trainer: RunTrainer, most_s: float | None = None) -> list[Written]:
        """A text for each source, whose tokens are given. `most_s`: cut after so many seconds, or where the run is asked to
        stop meanwhile."""
        self._search.max_time = most_s
        side = "left" if self._follows else "right"
        batch = self._tokenizer.pad({"input_ids": list(sources)}, padding_side=side, return_tensors="pt")
        model: Any = trainer.model
        with torch.no_grad(), trainer.accelerator.autocast():
            written = model.generate(
                **batch.to(trainer.accelerator.device),
                generation_config=self._search,
                stopping_criteria=StoppingCriteriaList([] if most_s is None else [Stopped(trainer.stop_requested)]),
            )
        first = batch["input_ids"].shape[1] if self._follows else 1
        return [self._written(row[first:]) for row in written.tolist()]

    def _written(self, row: list[int]) -> Written:
        end = next((place for place, token in enumerate(row) if token in self._ends), None)
        kept = row if end is None else row[: end + 1]
        return Written(self._tokenizer.decode(kept, skip_special_tokens=True).strip(), len(kept), end is not None)


class Filler:
    """The likeliest token for each mask, text by text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer: Any = tokenizer
        self.mask = int(tokenizer.mask_token_id)
        self._special = {*tokenizer.all_special_ids} - {self.mask}

    def write(self, texts: Sequence[list[int]], trainer: RunTrainer, most_s: float | None = None) -> list[Written]:
        """`texts` as tokens; one forward pass each, however long that takes."""
        model: Any = trainer.model
        filled = []
        for tokens in texts:
            ids = torch.tensor([tokens], device=trainer.accelerator.device)
            with torch.no_grad(), trainer.accelerator.autocast():
                logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
            likeliest = torch.where(ids == self.mask, logits.argmax(dim=-1), ids)[0].tolist()
            filled.append(Written(self.shown(likeliest), tokens.count(self.mask), ended=True))
        return filled

    def shown(self, tokens: list[int]) -> str:
        """Their text, with the masks."""
        text: str = self._tokenizer.decode([token for token in tokens if token not in self._special])
        return text


# Generator: the model writes an answer to held-out rows, and BLEU compares it with theirs.

SHOWN_ROWS = 5
"""Generated texts of one evaluation that are kept in generations.jsonl."""


class Generator:
    """Greedy or beam search over the first held-out rows, shared among the processes."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        rows: TextRows,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[str], list[int]] | None,
        ends: Sequence[int] = (),
    ) -> None:
        """`encode` gives the tokens of a source or prompt; `ends`: see Writer. Raises UsageError when BLEU lacks a package.

        Of a causal model prompt and answer together fit the sequence length, as they do in
        training: see core/data/lengths.py.
        """
        assert rows.targets is not None and encode is not None
        settings = config.evaluation
        self._numbers: np.ndarray = rows.held_out[: settings.generation_rows]
        self._sources = rows.texts
        self._references: TextStore = rows.targets
        self._encode = encode
        self._at = settings.generate_at
        self._scores_saves = generates_at_saves(config)
        self._batch = config.batch.eval_micro_batch_size or config.batch.micro_batch_size or 1
        self._lines = LastingLines(RunFolder(folder).generations_jsonl)
        self._writer = Writer(config, tokenizer, longest_generation(config), ends, settings.beams)
        references = [self._references[int(number)] for number in self._numbers[:LOOKED_AT]]
        self._bleu = make_bleu(word_cutter(settings.bleu_tokenizer, references))

    def due(self, state: TrainerState, *, saves: bool) -> bool:
        """Whether the evaluation after this step generates; the last one always does."""
        if self._at == "evaluation" or state.global_step >= state.max_steps:
            return True
        return (self._at == "epoch" and ends_epoch(state)) or (self._scores_saves and saves)

    def metrics(self, trainer: RunTrainer, prefix: str) -> dict[str, float]:
        """bleu (0 to 100), generated_tokens (mean length), generation_s (wall time); nothing when a stop came between.

        Every process must call it; each gets the figures of all rows.
        """
        started = time.perf_counter()
        every: dict[int, Written] = dict(sorted(gather_object(self._own_share(trainer)), key=itemgetter(0)))
        if len(every) < len(self._numbers):
            return {}
        references = [self._references[row] for row in every]
        score = self._bleu.corpus_score([written.text for written in every.values()], [references])
        if trainer.accelerator.is_main_process:
            for row in list(every)[:SHOWN_ROWS]:
                line = {"time_s": time.time(), "step": trainer.state.global_step, "row": row}
                texts = {"source": self._sources[row], "reference": self._references[row]}
                self._lines.write(json_line({**line, **texts, "generation": every[row].text}))
            print(f"BLEU of {len(every):,} texts: {score.score:.2f} ({self._bleu.get_signature()})", flush=True)
        return {
            f"{prefix}_bleu": float(score.score),
            f"{prefix}_generated_tokens": float(np.mean([written.tokens for written in every.values()])),
            f"{prefix}_generation_s": time.perf_counter() - started,
        }

    def _own_share(self, trainer: RunTrainer) -> list[tuple[int, Written]]:
        """Rows of this process, in batches of like length; fewer after a stop.

        The first rows again where there are too few: no process may make fewer forward passes than the others, which each
        may need all of them.
        """
        processes = trainer.accelerator.num_processes
        rows = np.resize(self._numbers, -(-len(self._numbers) // processes) * processes)
        mine = rows[trainer.accelerator.process_index :: processes].tolist()
        encoded = [(self._encode(self._sources[row]), row) for row in mine]
        encoded.sort(key=lambda source: (len(source[0]), source[1]), reverse=True)
        done: list[tuple[int, Written]] = []
        for start in range(0, len(encoded), self._batch):
            if any_process(trainer.accelerator, trainer.stop_requested()):
                break
            sources, numbers = zip(*encoded[start : start + self._batch], strict=True)
            done += zip(numbers, self._writer.write(sources, trainer), strict=True)
        return done


# Answers to a few prompts.

LONGEST_BEGINNING = 32
"""First tokens of a plain text that the model continues; at most half of the text."""
LONGEST_MASKED = 64
"""Tokens of a held-out row whose masks are filled."""
FIRST_HIDDEN, EVERY_HIDDEN = 3, 7
"""Of the tokens of such a row: about BERT's 15 %, the same at every evaluation."""
ASKED_OF = 50
"""Held-out rows among which prompts are looked for."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """`tokens` are what the model reads; of a text with masks, the masks too."""

    shown: str
    """What a person reads of it: of a chat, the turn that is answered."""
    tokens: list[int]
    reference: str | None = None
    """What the data answers."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked, and who answers."""

    prompts: list[Prompt]
    writer: Writer | Filler


def questions_of(
    config: RunConfig,
    folder: Path,
    rows: TextRows,
    tokenizer: PreTrainedTokenizerBase,
    encode: Callable[[str], list[int]] | None,
    ends: Sequence[int] = (),
) -> Questions | None:
    """None where the run asks nothing, or nothing is held out to ask.

    `encode` gives the tokens that a source or prompt is answered from; None for a task that fills masks. `ends`: see Writer.
    Raises UsageError for a file of prompts that cannot be used.
    """
    if not asks_prompts(config) or (encode is None and config.task != "masked-lm"):
        return None
    named = names_prompts(config)
    texts: dict[str, str | None] = {}
    """Text -> target, of those that do not say the same."""
    if named:
        texts = dict.fromkeys(read_prompts(config, folder))
    else:
        for number in rows.held_out[:ASKED_OF].tolist():
            texts.setdefault(rows.texts[number], None if rows.targets is None else rows.targets[number])
        texts = dict(list(texts.items())[:ROWS])
    if not texts:
        return None
    if encode is None:
        filler, length = Filler(tokenizer), config.batch.sequence_length
        return Questions([_masked(text, tokenizer, filler, length, named=named) for text in texts], filler)
    if rows.are_chats:
        prompts = [_of_chat(text, encode(text)) for text in texts]
    elif config.task == "causal-lm" and not named and rows.targets is None:
        prompts = [_beginning(encode(text), tokenizer) for text in texts]
    else:
        prompts = [Prompt(text, encode(text), target) for text, target in texts.items()]
    return Questions(prompts, Writer(config, tokenizer, answer_length(config), ends))


def _of_chat(chat: str, tokens: list[int]) -> Prompt:
    turns, _ = messages_of(chat)
    last = place_of_last_answer(turns)
    asked = next((turn["content"] for turn in reversed(turns[:last]) if turn["role"] != "system"), "")
    return Prompt(asked, tokens, last_answer(chat) or None)


def _beginning(tokens: list[int], tokenizer: Any) -> Prompt:
    """A plain text, which the model continues from its first half."""
    count = max(1, min(LONGEST_BEGINNING, len(tokens) // 2))
    shown, rest = (tokenizer.decode(part, skip_special_tokens=True) for part in (tokens[:count], tokens[count:]))
    return Prompt(shown, tokens[:count], rest.strip())


def _masked(text: str, tokenizer: Any, filler: Filler, length: int, *, named: bool) -> Prompt:
    """A prompt of a file has its masks; of a row every seventh token or so is hidden."""
    if named:
        for mask in MASKS:
            text = text.replace(mask, tokenizer.mask_token)
        return Prompt(text, tokenizer(text, truncation=True, max_length=length)["input_ids"])
    tokens: list[int] = tokenizer(text, truncation=True, max_length=min(length, LONGEST_MASKED))["input_ids"]
    own = [place for place, token in enumerate(tokens) if token not in tokenizer.all_special_ids]
    hidden = {*(own[FIRST_HIDDEN::EVERY_HIDDEN] or own[-1:])}
    masked = [filler.mask if place in hidden else token for place, token in enumerate(tokens)]
    return Prompt(filler.shown(masked), masked, filler.shown(tokens))


@dataclass(eq=False)
class AnswersCallback(RunCallback):
    """Asks before the first step and after every evaluation; where nothing is held out, at every save.

    One process answers, or all of them together where each forward pass needs them all. Greedy: no random number is drawn,
    so that a run with prompts is the same run.
    """

    questions: Questions
    folder: RunFolder
    meter: StepMeter
    trainer: RunTrainer
    asked_at: int | None
    """Step of the last answers, or of the checkpoint that the run is resumed from."""

    def __post_init__(self) -> None:
        self._lines = LastingLines(self.folder.generations_jsonl)

    def train_begin(self, now: Moment) -> None:
        if now.state.is_world_process_zero and (self.asked_at is not None or self.folder.generations_jsonl.exists()):
            # What was said after the checkpoint is taken back, as in metrics.jsonl.
            self._lines.write(json_line({"time_s": time.time(), "resumed_from": self.asked_at or 0}))
        if self.asked_at is None:
            self._ask(0)

    def evaluate(self, now: Moment) -> None:
        self._ask(now.state.global_step)

    def save(self, now: Moment) -> None:
        if self.trainer.eval_dataset is None:
            self._ask(now.state.global_step)

    def _ask(self, step: int) -> None:
        trainer, prompts, model = self.trainer, self.questions.prompts, self.trainer.model
        assert model is not None
        together, is_main = forward_needs_all(model), trainer.accelerator.is_main_process
        if self.asked_at == step or (trainer.stop_requested() and not together):
            return
        self.asked_at = step
        if not (together or is_main):
            return
        training = model.training
        model.eval()
        with self.meter.paused(), phases.during("generating", step):
            started = time.perf_counter()
            # Where each forward pass needs every process, only the length ends an answer.
            most_s = None if together else MOST_S
            written = self.questions.writer.write([prompt.tokens for prompt in prompts], trainer, most_s)
            seconds = time.perf_counter() - started
        model.train(training)
        if is_main and not trainer.stop_requested():
            for number, (prompt, answer) in enumerate(zip(prompts, written, strict=True)):
                line = {"time_s": time.time(), "step": step, "prompt": number, "source": prompt.shown}
                line |= {"reference": prompt.reference, "generation": answer.text, "tokens": answer.tokens}
                # The time of all answers together.
                line |= {"ended": answer.ended, "answer_s": round(seconds, 3)}
                self._lines.write(json_line(line))
            print(f"step {step}  answered {len(written)} prompts in {seconds:.1f} s", flush=True)
