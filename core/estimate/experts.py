"""Blocks of a mixture of experts: many feed-forward parts, of which each token takes a few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.config_keys import number

COUNT = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk")
WIDTH = ("moe_intermediate_size", "expert_ffn_size", "moe_ffn_hidden_size")


def expert_blocks(config: Mapping[str, Any], dense: Block) -> tuple[Block, ...]:
    """`dense` itself without experts; else blocks of experts, after the first ones that stay dense."""
    if all(config.get(name) is None for name in COUNT) or number(config, *COUNT) < 2:
        return (dense,)
    sparse = _sparse(config, dense)
    plain = _plain_layers(config, dense.layers)
    if plain == 0:
        return (sparse,)
    return (replace(dense, layers=plain), replace(sparse, layers=dense.layers - plain))


def _sparse(config: Mapping[str, Any], dense: Block) -> Block:
    experts, active = number(config, *COUNT), number(config, *ACTIVE, default=2)
    width = number(config, *WIDTH, default=dense.ffn)
    shared = number(config, "shared_expert_intermediate_size", default=0)
    gate = dense.hidden if shared else 0
    shared = shared or width * number(config, "n_shared_experts", default=0)
    products = 3 if dense.gated else 2
    all_experts = experts * products * dense.hidden * width
    rest = dense.linear_parameters - products * dense.hidden * dense.ffn
    # Products of the feed-forward part come last; those of experts are no modules that an adapter can sit on.
    feed = 3 if dense.gated and not dense.fused_gate else 2
    return replace(
        dense,
        ffn=active * width + shared,
        experts=experts,
        active_experts=active,
        expert_parameters=all_experts,
        expert_width=width,
        linear_parameters=rest + all_experts + products * dense.hidden * shared + experts * dense.hidden + gate,
        linears=dense.linears[:-feed],
    )


def _plain_layers(config: Mapping[str, Any], layers: int) -> int:
    """Layers without experts: the first ones, those that are named, or all but every n-th."""
    first = number(config, "first_k_dense_replace", default=0)
    step = number(config, "decoder_sparse_step", "moe_layer_frequency", "moe_layer_freq", default=1)
    named = config.get("mlp_only_layers") or ()
    plain = max(min(first, layers), layers - layers // max(1, step)) + len(named)
    return min(plain, layers - 1)
