"""Two shallow versions of the model traced, and extended to all its layers."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.estimate.trace.build import CannotTrace
from trainwiz.core.estimate.trace.ledger import Growth, Ledger, Parts, PeaksLedger
from trainwiz.core.estimate.trace.server import Child
from trainwiz.core.estimate.trace.step import rounding_of, trace_into
from trainwiz.core.language import mark
from trainwiz.core.tracing.request import TraceRequest, TraceResult
from transformers import AutoConfig

COUNTS = {
    "encoder": ("encoder_layers", "num_encoder_layers", "num_layers"),
    "decoder": ("decoder_layers", "num_decoder_layers"),
}
"""Keys that hold the number of layers of each stack of an encoder-decoder; others have num_hidden_layers or its alias."""
PERIOD_KEY = re.compile(r"(period|interval|pattern|freq|every_n_layers|_step)$")
"""Integers of these names: every n-th layer differs."""
PREFIX_KEYS = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "max_window_layers")
"""That many layers at the start differ."""
INDEX_KEY = re.compile(r"layer|ids$|idx|indices$")
"""Lists of integers of these names: the layers that differ."""
FEWEST = 2
"""A first layer and a last one."""
OPTIONS = 4
"""Patterns more or less that are tried for the shallower version, so that two stacks grow in step."""
REST_IN_LAYERS = 3
"""Building a version and tracing its embeddings, its head and its loss takes as long as about so many layers."""
WORTH_IT = 2 / 3
"""Of the whole model: a deeper version that takes less is waited for less, even where both together compute more."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers that follow each other: `prefix` ones of their own, then a pattern of `period` layers again and again."""

    path: tuple[str, ...]
    """Of the key that holds their number."""
    layers: int
    prefix: int
    period: int

    def depths(self) -> list[int]:
        """Some numbers of layers that leave whole patterns away, and not all of them, the least one first."""
        least = self.prefix + (self.layers - self.prefix) % self.period + self.period
        found = [depth for depth in range(least, self.layers + 1, self.period) if depth >= FEWEST]
        return found[:OPTIONS]


@dataclass(frozen=True, slots=True)
class Versions:
    """Two shallow versions of a model. Its own depth is the first one's, and `times` the difference between the two."""

    stacks: tuple[Stack, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    times: int

    @property
    def cost(self) -> int:
        return sum(self.first) + sum(self.second) + 2 * REST_IN_LAYERS

    @property
    def longest(self) -> int:
        """Of the deeper one, in layers: the two are traced side by side."""
        return sum(self.second) + REST_IN_LAYERS

    @property
    def words(self) -> str:
        """In English, which is kept in the cache; `TraceResult.note_words` translates it."""
        parts = zip(self.stacks, self.first, self.second, strict=True)
        return mark(" and ").join(
            mark("layers {first} and {second} of {layers}").format(first=first, second=second, layers=stack.layers)
            for stack, first, second in parts
        )


def shallow_versions(config: Any) -> Versions | None:
    """Of a transformers config; None where its depth cannot be changed, or changing it saves nothing."""
    values = config.to_dict()
    if getattr(config, "is_encoder_decoder", False):
        paths = [_path_of(values, stack, names) for stack, names in COUNTS.items()]
    else:
        paths = [_hidden_layers(config, values)]
    found = [_stack(values, path) for path in paths if path is not None]
    stacks = tuple(stack for stack in found if stack is not None)
    if not stacks or len(stacks) < len(paths):
        return None
    options = [_versions(stacks, first) for first in itertools.product(*(stack.depths() for stack in stacks))]
    best = min((one for one in options if one is not None), key=lambda one: one.cost, default=None)
    whole = sum(stack.layers for stack in stacks) + REST_IN_LAYERS
    if best is None or (best.cost >= whole and best.longest >= WORTH_IT * whole):
        return None
    return best


def _versions(stacks: tuple[Stack, ...], first: tuple[int, ...]) -> Versions | None:
    missing = [(stack.layers - depth) // stack.period for stack, depth in zip(stacks, first, strict=True)]
    times = math.gcd(*missing)
    if times == 0:
        return None
    parts = zip(stacks, first, missing, strict=True)
    return Versions(stacks, first, tuple(depth + n // times * stack.period for stack, depth, n in parts), times)


def with_depths(
    values: Mapping[str, Any], config: Any, stacks: tuple[Stack, ...], depths: tuple[int, ...]
) -> dict[str, Any]:
    """`values` (of `config`) with the first layers of each stack alone."""
    whole = config.to_dict()
    result: dict[str, Any] = json.loads(json.dumps(values))
    for stack, depth in zip(stacks, depths, strict=True):
        place, known, part = result, whole, config
        for name in stack.path[:-1]:
            place, known, part = place.setdefault(name, {}), known[name], getattr(part, name)
        place[stack.path[-1]] = depth
        for alias, name in getattr(part, "attribute_map", {}).items():
            # Both may be in the file, and the alias would win.
            if name == stack.path[-1]:
                place.pop(alias, None)
        for name, value in known.items():
            if isinstance(value, list) and len(value) == stack.layers:
                place[name] = value[:depth]
        if "attention_types" in known and "attention_layers" in place:
            place["attention_types"] = [[place["attention_layers"], 1]]
    return result


def _hidden_layers(config: Any, values: Mapping[str, Any]) -> tuple[str, ...] | None:
    for path, part in (((), config), (("text_config",), getattr(config, "text_config", None))):
        name = getattr(part, "attribute_map", {}).get("num_hidden_layers", "num_hidden_layers")
        if isinstance(_at(values, (*path, name)), int):
            return (*path, name)
    return None


def _path_of(values: Mapping[str, Any], stack: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    for path in (*((name,) for name in names), (stack, "num_hidden_layers")):
        if isinstance(_at(values, path), int):
            return path
    return None


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


def _stack(values: Mapping[str, Any], path: tuple[str, ...]) -> Stack | None:
    layers = _at(values, path)
    if not 1 <= layers <= 10_000:
        return None
    kinds = _kinds(_at(values, path[:-1]), layers)
    found = [Stack(path, layers, _prefix(kinds, period), period) for period in range(1, layers + 1)]
    # The least that holds one whole pattern.
    return min(found, key=lambda stack: stack.prefix + 2 * stack.period)


def _prefix(kinds: list[str], period: int) -> int:
    """Layers at the start after which each is like the one `period` later."""
    for place in range(len(kinds) - period - 1, -1, -1):
        if kinds[place] != kinds[place + period]:
            return place + 1
    return 0


def _kinds(values: Mapping[str, Any], layers: int) -> list[str]:
    """What the config says of each layer, as text: equal for layers that are alike."""
    kinds = [""] * layers
    for name, value in values.items():
        said: list[Any] | None = None
        if isinstance(value, list):
            if len(value) == layers:
                said = [json.dumps(one, default=str) for one in value]
            elif INDEX_KEY.search(name) and all(isinstance(one, int) for one in value):
                said = [place in value for place in range(layers)]
        elif isinstance(value, int) and not isinstance(value, bool):
            if PERIOD_KEY.search(name) and 2 <= value <= layers:
                said = [place % value for place in range(layers)]
            elif name == "max_window_layers" and not values.get("use_sliding_window"):
                continue
            elif name in PREFIX_KEYS and 0 < value < layers:
                said = [place < value for place in range(layers)]
        if said is not None and len(set(said)) > 1:
            kinds = [f"{kind}|{one}" for kind, one in zip(kinds, said, strict=True)]
    return kinds


ALL_TRACED = mark("all layers traced")


def trace_layers(request: TraceRequest, *, forks: bool = False) -> TraceResult:
    """Each peak of each part of the step grows by as much with every further layer (core/estimate/trace/ledger.py).

    Where the depth cannot be changed, or little would be saved, all layers are traced. With `forks` the
    two versions are traced at once. Raises CannotTrace.
    """
    started = time.perf_counter()
    shallow = shallow_requests(request)
    if shallow is None:
        return _all_layers(request, started)
    versions, *requests = shallow
    first, second = _both(*requests) if forks else (_traced(requests[0]), _traced(requests[1]))
    if first is None or second is None or second.result.kernels <= first.result.kernels:
        return _all_layers(request, started)
    one, other = first.result, second.result
    growth = Growth(first.depths, second.depths, _periods(versions, first.depths, second.depths), versions.times)

    def number(name: str) -> float:
        return float(getattr(one, name) + versions.times * (getattr(other, name) - getattr(one, name)))

    return replace(
        one,
        tier="layers",
        training=growth.moments(first.training, second.training),
        evaluation=growth.moments(first.evaluation, second.evaluation),
        parameters=round(number("parameters")),
        trainable_parameters=round(number("trainable_parameters")),
        flops=number("flops"),
        moved_bytes=number("moved_bytes"),
        kernels=round(number("kernels")),
        seconds=time.perf_counter() - started,
        note=mark("extrapolated from {stacks}").format(stacks=versions.words),
    )


@dataclass(frozen=True, slots=True)
class _Shallow:
    result: TraceResult
    depths: dict[str, int]
    training: Parts
    evaluation: Parts


def shallow_requests(request: TraceRequest) -> tuple[Versions, TraceRequest, TraceRequest] | None:
    try:
        values = json.loads(request.model_config)
        config = AutoConfig.for_model(values["model_type"], **{k: v for k, v in values.items() if k != "model_type"})
        versions = shallow_versions(config)
        if versions is None:
            return None

        def of(depths: tuple[int, ...]) -> TraceRequest:
            changed = with_depths(values, config, versions.stacks, depths)
            return replace(request, model_config=json.dumps(changed, sort_keys=True))

        return versions, of(versions.first), of(versions.second)
    except Exception:  # noqa: BLE001 - tracing the model itself says in words what is wrong with it
        return None


def _traced(request: TraceRequest) -> _Shallow | None:
    """None where the layers of the model are not found, or a version of it cannot be traced by itself."""
    ledger = PeaksLedger(rounding_of(request))
    try:
        result = trace_into(ledger, request, ledger.watch)
    except CannotTrace:
        return None
    return _Shallow(result, ledger.depths, ledger.sections[-1], ledger.take()) if ledger.depths else None


def _both(first: TraceRequest, second: TraceRequest) -> tuple[_Shallow | None, _Shallow | None]:
    """Traces both at once: the first in a fork (Linux, one thread), the second in this process."""
    try:
        aside = Child("fork", _traced, first)
    except OSError:
        return _traced(first), _traced(second)
    deeper = _traced(second)
    return aside.result()[0], deeper


def _periods(versions: Versions, first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Of each stack of the model by its name; the config knows the stacks by its keys."""
    of_depths: dict[tuple[int, int], int] = {}
    for stack, *depths in zip(versions.stacks, versions.first, versions.second, strict=True):
        of_depths[depths[0], depths[1]] = max(stack.period, of_depths.get((depths[0], depths[1]), 1))
    return {name: of_depths.get((depth, second[name]), 1) for name, depth in first.items() if name in second}


def _all_layers(request: TraceRequest, started: float) -> TraceResult:
    result = trace_into(Ledger(rounding_of(request)), request)
    return replace(result, tier="layers", note=ALL_TRACED, seconds=time.perf_counter() - started)
