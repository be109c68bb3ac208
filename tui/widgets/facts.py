"""What was found of data, machine and model, and what follows from a length and a learning rate, as lines beneath fields."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.plan_words import CLOSE, OPEN, chat_lines, learnt_text, trained_words
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, on_screen, word_for
from trainwiz.tui.screens.plan_state import PlanState, field_problem
from trainwiz.tui.text import cells, count, cut, gib, number, pad, percent, sentence_gap, short_count, size
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import hanging, indented
from trainwiz.tui.widgets.monitor_panel import spark
from trainwiz.tui.widgets.plan_panel import finding_lines

if TYPE_CHECKING:
    from trainwiz.core.catalog.model_config import ModelSpec
    from trainwiz.core.catalog.models import ModelFacts
    from trainwiz.core.data.summary import DataSummary, Glance
    from trainwiz.core.errors import Finding
    from trainwiz.core.export.training_arguments import RateSchedule
    from trainwiz.core.plan.result import PlannedModel
    from trainwiz.core.plan.rows import Lengths


LABEL = 14


def title(text: str) -> Content:
    return Content.styled(text, "bold $muted")


def waiting(what: str) -> Content:
    return Content.styled(f"  {plain_text(what)} {marks.ellipsis}", "$muted")


def said(label: str, text: str, width: int, note: str = "") -> list[Content]:
    """A label with a text and a quiet note, which hang beneath it over several lines."""
    start = Content.assemble("  ", (pad(label, LABEL), "$muted"), plain_text(text))
    return hanging(start + Content.styled(f"  {plain_text(note)}" if note else "", "$muted"), width - 1, LABEL + 2)


# How many rows there are, where that number comes from, and what is wrong with some of them.

MOST_FINDINGS = 4


def data_facts(state: PlanState, width: int, is_small: bool = False) -> Iterator[Content]:
    """Rows, their files and the findings; what is being read while it is."""
    from trainwiz.core.data.lengths import joins_texts

    reading = state.reading
    data = reading.data
    if data is not None:
        files = reading.glance.files if reading.glance is not None else 1
        plan = state.plan
        classes = [one.message for one in plan.findings if one.code == "classes_found"] if plan is not None else []
        place = trn("{size} in {n} file.", "{size} in {n} files.", files, size=size(data.bytes_on_disk))
        sentences = [rows_words(data, joined=plan is not None and joins_texts(plan.config)), *classes, place]
    elif reading.waits_for or state.updating:
        sentences = [f"{tr('Reading the rows')} {marks.ellipsis}"]
    elif reading.glance is not None and reading.glance.rows:
        sentences = [tr("The rows can't be used yet.")]
    else:
        sentences = [tr("No rows could be read.")]
    for sentence in sentences:
        yield from indented(sentence, width, "$muted")
    findings = findings_of(state)
    for finding in findings[:MOST_FINDINGS]:
        yield from finding_lines(finding, width)
    if more := findings[MOST_FINDINGS:]:
        yield from indented(trn("and {n} more finding", "and {n} more findings", len(more)), width)


# The first chat as the model will read it.

LINES_OF_A_CHAT = 12


def chat_facts(state: PlanState, width: int, is_small: bool = False) -> Iterator[Content]:
    """What is learnt of the chats, and the first one with the learnt tokens marked; nothing for other rows."""
    look = state.reading.data.chats if state.reading.data is not None else None
    if look is None or state.plan is None:
        return
    said = (one.message for one in state.plan.findings if one.code in ("what_is_learnt", "chats_not_seen"))
    for sentence in said:
        yield from indented(sentence, width, "$muted")
    for shown in look.shown[:1]:
        yield Content()
        words = tr(
            "The first chat, {n} tokens; loss on those between {open} {close}",
            n=count(len(shown.pieces)), open=OPEN, close=CLOSE,
        )  # fmt: skip
        yield Content.styled("    " + cut(words, width - 5, marks.ellipsis), "bold $muted")
        for segments in islice(chat_lines(shown, width - 5, split=""), LINES_OF_A_CHAT):
            parts = [(text, "$success" if learnt else "$foreground") for text, learnt in segments]
            yield Content.assemble("    ", *parts)


def rows_words(data: DataSummary, *, joined: bool) -> str:
    """How many rows there are to learn from, and whether that was counted; sequences, of their mean length, where texts
    are joined."""
    if joined:
        return tr(
            "About {rows} training sequences packed from {texts} texts; {held} held out.",
            rows=count(data.rows), texts=count(data.texts), held=count(data.validation_rows),
        )  # fmt: skip
    rows, held = count(data.rows), count(data.validation_rows)
    if data.rows_exact:
        return trn(
            "{rows} training row, counted; {held} held out.", "{rows} training rows, counted; {held} held out.",
            data.rows, rows=rows, held=held,
        )  # fmt: skip
    return tr("About {rows} training rows, estimated from a sample; {held} held out.", rows=rows, held=held)


def findings_of(state: PlanState) -> tuple[Finding, ...]:
    """What is to be said about the rows, errors first, each once; an error that the field says itself is left out."""
    reading = state.reading
    own = {field_problem(state, FIELD_BY_ID[name]) for name in ("data", "column", "target_column")}
    about = [*reading.data_findings, *(reading.data.findings if reading.data is not None else ())]
    return tuple({one.message: one for one in map(on_screen, about) if one.message not in own}.values())


# What was detected of this machine, or what is planned for another one.


def machine_facts(state: PlanState, width: int, is_small: bool) -> Iterator[Content]:
    """Its GPUs have rows of their own above."""
    machine = state.reading.machine
    if machine is None:
        yield waiting(tr(state.reading.waits_for) or tr("reading this machine"))
        return
    yield Content()
    yield title(tr("This machine"))
    if not machine.gpus:
        yield from said("GPU", tr("none"), width, next(iter(machine.unavailable.values()), ""))
    cores = trn("{n} core", "{n} cores", machine.cpu_cores)
    yield from said("CPU", cores, width, machine.cpu_model or "")
    yield from said(tr("RAM"), tr("{free} GiB free", free=gib(machine.ram_available_bytes)), width)
    if machine.disk_free_bytes is not None:
        free = tr("{free} GiB free", free=gib(machine.disk_free_bytes))
        yield from said(tr("Disk"), free, width, machine.disk_path or "")


# What the model is, how large its weights are, whether they are here, and under which licence.

HALF_BYTES = 2


def model_facts(state: PlanState, width: int, is_small: bool) -> Iterator[Content]:
    reading = state.reading
    if state.plan is not None:
        yield from model_lines(state.plan.model, reading.model, reading.model_facts, width)
    elif not reading.findings:
        yield waiting(tr(reading.waits_for) or tr("reading the model"))


def model_lines(
    planned: PlannedModel, model: ModelSpec | None, facts: ModelFacts | None, width: int
) -> Iterator[Content]:
    yield Content()
    yield title(tr("Model details"))
    note = trained_words(planned.parameters, planned.trainable_parameters)
    yield from said(tr("Parameters"), short_count(planned.parameters), width, note)
    yield from said(tr("Method"), learnt_text(planned), width)
    yield from said(tr("Architecture"), planned.architecture or tr("unknown"), width)
    if model is None:
        return
    yield from said(tr("Size"), size_words(planned.parameters, facts), width)
    yield from said(tr("Weights"), weights_words(model, facts), width)
    licence = (facts.license if facts is not None else None) or model.license
    if licence is not None or model.hub_id is not None:
        shown = plain_text(licence, 60) if licence else tr("unknown; see its page on the Hub")
        yield from said(tr("License"), shown, width)


def size_words(parameters: float | None, facts: ModelFacts | None) -> str:
    """Bytes of its weights: of the files that are here or on the hub, else by its parameters."""
    if facts is not None and facts.weights_bytes is not None:
        return tr("{size} on disk", size=size(facts.weights_bytes))
    if facts is not None and facts.download_bytes is not None:
        return tr("{size} to download", size=size(facts.download_bytes))
    half = None if parameters is None else parameters * HALF_BYTES
    return tr("{half} in half precision", half=size(half))


def weights_words(model: ModelSpec, facts: ModelFacts | None) -> str:
    if facts is not None and facts.weights_folder is not None:
        return tr("on this machine: {folder}", folder=plain_text(facts.weights_folder))
    if model.hub_id is None:
        return tr("none: this model is only an architecture and is trained from scratch")
    hub_id = plain_text(model.hub_id)
    if model.gated:
        return tr("not on this machine; accept the license of {hub_id} first", hub_id=hub_id)
    return tr("not on this machine; on the Hub as {hub_id}", hub_id=hub_id)


# The first rows, and which columns are learnt from.

GAP, INDENT = 2, 2
LEAST, WIDEST = 10, 80
TALL_ROWS, SHORT_ROWS = 5, 2


def first_rows(state: PlanState, width: int, is_small: bool) -> Iterable[Content]:
    glance = state.reading.glance
    if glance is None or not glance.columns:
        return ()
    return table_lines(glance, SHORT_ROWS if is_small else TALL_ROWS, width)


def shown_columns(glance: Glance, rows: int, width: int) -> list[tuple[int, int]]:
    """(position, cells) of the columns that fit into `width`, in the order of the file; at least one.

    Those that are learnt from come first where not all fit; what narrow ones do not need is for the others.
    """
    mapped = [place for place in (glance.text, glance.target) if place is not None]
    most = max(1, width // (LEAST + GAP))
    places = list(islice(dict.fromkeys([*mapped, *range(len(glance.columns))]), most))
    wanted = {place: _wanted(glance, place, rows) for place in places}
    room, wide = width - GAP * (len(places) - 1), {}
    for done, place in enumerate(sorted(places, key=wanted.__getitem__)):
        wide[place] = min(wanted[place], max(1, room // (len(places) - done)))
        room -= wide[place]
    return sorted(wide.items())


def _wanted(glance: Glance, place: int, rows: int) -> int:
    """Cells that a column would like to have."""
    texts = [column_name(glance, place), role_of(glance, place), *(cell_text(row[place]) for row in glance.rows[:rows])]
    return min(WIDEST, max(map(cells, texts)) + 2)


def column_name(glance: Glance, place: int) -> str:
    return plain_text(glance.columns[place].name, 4 * WIDEST) or tr("(no name)")


def role_of(glance: Glance, place: int) -> str:
    """What a column is used for, in a word; the type of one that cannot be used."""
    if place in glance.parts:
        return tr(glance.parts[place])
    if place == glance.text:
        return tr("text")
    if place == glance.target:
        return tr("class") if glance.kind in CLASSIFIES else tr("target")
    column = glance.columns[place]
    return "" if column.is_text else plain_text(column.type_name, WIDEST)


def cell_text(cell: str | None) -> str:
    """A cell in one line; what is not there and what is empty is said."""
    if cell is None:
        return tr("(no value)")
    text = plain_text(cell[: 8 * WIDEST], 4 * WIDEST).strip()
    return text or tr("(empty)")


def table_lines(glance: Glance, rows: int, width: int) -> Iterator[Content]:
    """A title, the names of the columns, what each is used for, the first rows."""
    shown, files = shown_columns(glance, rows, width - INDENT), glance.files
    used = {glance.text, glance.target, *glance.parts}
    name = plain_text(glance.path.name, 200)
    words = mark("First rows of {file}") if files == 1 else mark("First rows of {file}, one of {n} files")
    yield Content()
    yield title(cut(tr(words, file=name, n=files), width, marks.ellipsis))
    names = {place: column_name(glance, place) for place, _ in shown}
    roles = {place: f"{marks.ok if place in used else ''} {role_of(glance, place)}".strip() for place, _ in shown}
    for texts in (names, roles, *(dict(enumerate(map(cell_text, row))) for row in glance.rows[:rows])):
        line = [
            (pad(cut(texts[place], wide), wide + GAP), "$foreground" if place in used else "$muted")
            for place, wide in shown
        ]
        yield Content.assemble(" " * INDENT, *line)
    if not glance.rows:
        yield Content.styled("  " + tr("No readable rows."), "$muted")
    if hidden := len(glance.columns) - len(shown):
        yield Content.styled("  " + trn("{n} more column", "{n} more columns", hidden), "$muted")


# Pictures of one line: the learning rate over the run, and the lengths of rows.

MARGIN = 4
MOST_COLUMNS, LEAST_COLUMNS = 40, 8


def rate_curve(schedule: RateSchedule, columns: int) -> str:
    """The learning rate from the first step to the last one; the highest block is the highest of what is drawn."""
    last = max(1, min(columns, schedule.steps) - 1)
    rates = [schedule.at(place * (schedule.steps - 1) // last) for place in range(last + 1)]
    return spark(rates, columns, max(rates))


def length_line(ordered: Sequence[int], limit: int, width: int) -> list[Content]:
    """Rows for each length: kept, the limit, truncated; a long tail is in the last block; `0 ▁▃█▅│512│▂▁ 1,024`.

    `ordered`: tokens, shortest first, not empty. Nothing where there is no room.
    """
    longest, usual = ordered[-1], max(1, ordered[(len(ordered) - 1) * 99 // 100])
    mark = f"{marks.stroke}{count(limit)}{marks.stroke}" if longest > limit else ""
    end = f"{mark} {count(longest)}"
    columns = min(MOST_COLUMNS, width - MARGIN - cells(f"0  {end}") - 2)
    if columns < LEAST_COLUMNS:
        return []
    edges = sorted({usual * place // columns for place in range(1, columns)} | {longest, min(limit, longest)})
    below = [(0, 0), *((edge, bisect_right(ordered, edge)) for edge in edges)]
    # Rows for each length: the blocks beside the limit are narrower, and the last one is wider.
    rows = [(high - low) / max(1, edge - before) or None for (before, low), (edge, high) in pairwise(below)]
    bars, kept = spark(rows, len(rows), max(filter(None, rows))), sum(edge <= limit for edge in edges)
    start = Content.assemble((f"{' ' * MARGIN}0 ", "$muted"), (bars[:kept], "$accent"))
    return [Content.assemble(start, mark, (bars[kept:], "$warning"), (f" {count(longest)}", "$muted"))]


def rate_facts(state: PlanState, width: int, is_small: bool) -> list[Content]:
    """What the training will do, not what was typed: in a sentence, and as a curve; a second sentence where a DeepSpeed
    file could change it."""
    from trainwiz.core.export.training_arguments import rate_schedule

    plan = state.plan
    if plan is None:
        return []
    fixed = plan.config.training.max_steps
    known = plan.time.steps or fixed
    if not known:
        unknown = tr("The number of steps is not known yet, and so is not the end of the learning rate.")
        return indented(unknown, width)
    schedule = rate_schedule(plan.config, known)
    # Without a fixed number the Trainer counts the steps of its epochs itself.
    words = [
        tr(
            "{kind}: {warmup} warmup steps, at most {highest}, {last} at step {steps}.",
            kind=word_for("training.schedule", plan.config.training.schedule),
            warmup=count(schedule.warmup_steps),
            highest=number(float(f"{schedule.highest:.4g}")),
            last=number(schedule.last),
            steps=count(known) if fixed is not None else tr("about {n}", n=count(known)),
        )
    ]
    if plan.config.engine.deepspeed_file is not None:
        words.append(tr("A scheduler in your DeepSpeed file replaces it."))
    columns = min(MOST_COLUMNS, width - MARGIN - 1)
    curve = Content.styled(" " * MARGIN + rate_curve(schedule, columns), "$accent")
    return [*indented(sentence_gap().join(words), width), *([curve] if columns >= LEAST_COLUMNS else [])]


# How long the rows are, and what is cut and padded there.


def lengths(state: PlanState, width: int, is_small: bool) -> Iterator[Content]:
    """What the chosen lengths do to the inputs, and to targets, which are padded with them."""
    from trainwiz.core.data.lengths import joins_texts

    data, plan = state.reading.data, state.plan
    if data is None or plan is None:
        return
    limit, waste = plan.batch.sequence_length, plan.batch.padding_waste
    if joins_texts(plan.config):
        yield from indented(
            tr(
                "Texts are packed into sequences of {length} tokens, without truncation or padding.",
                length=count(limit),
            ),
            width,
        )
        return
    yield from _lengths(data.lengths, data, limit, width, is_small)
    if plan.task == "seq2seq" and data.target_lengths:
        yield from indented(tr("Targets:"), width)
        yield from _lengths(data.target_lengths, data, plan.config.batch.target_length or limit, width, is_small)
    if data.lengths and not is_small and waste is not None:
        yield from indented(tr("{share} of the processed tokens are padding.", share=percent(waste)), width)


def _lengths(rows: tuple[int, ...], data: DataSummary, limit: int, width: int, is_small: bool) -> Iterator[Content]:
    from trainwiz.core.plan.rows import lengths_of

    known = lengths_of(rows)
    if known is not None:
        yield from length_line(known.ordered, limit, width)
        yield from indented(_cut(known, limit), width)
        if not is_small:
            yield from indented(_usual(known, estimated=data.length_unit != "tokens"), width)


def _usual(lengths: Lengths, *, estimated: bool) -> str:
    middle, most, longest = (
        count(number) for number in (lengths.quantile(1, 2), lengths.quantile(95, 100), lengths.longest)
    )
    words = tr(
        "Median {middle} tokens per row, 95% of the rows up to {most}, the longest {longest}.",
        middle=middle, most=most, longest=longest,
    )  # fmt: skip
    return f"{words}{sentence_gap()}{tr('Estimated from bytes.')}" if estimated else words


def _cut(lengths: Lengths, limit: int) -> str:
    share = lengths.share_above(limit)
    if share <= 0:
        return tr("No row exceeds {limit} tokens, so none is truncated.", limit=count(limit))
    whole = lengths.counts.mean(lengths.longest)
    lost = 1 - lengths.counts.mean(limit) / whole if whole else 0.0
    return tr(
        "{share} of the rows exceed {limit} tokens and are truncated; {lost} of all tokens are dropped.",
        share=percent(share), limit=count(limit), lost=percent(lost),
    )  # fmt: skip
