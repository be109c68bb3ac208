"""What transformers cannot do for a type of model: attention kernels and checkpointing.

Read from the classes of transformers 5.23 for the tasks of this product; a test compares it with the installed ones.
A type that stands nowhere here can do all of it, or is not known to transformers.
"""

from __future__ import annotations

_NO_SDPA = """
    big_bird bigbird_pegasus bloom canine codegen convbert cpmant deberta deberta-v2 deepseek_v4 falcon_mamba
    flaubert flint fnet fsmt funnel gemma2 git got_ocr2 gpt_neo gpt_neox_japanese gpt_oss gptj granite_swa
    granitemoe_swa hy_v4 ibert inkling2_text layoutlmv2 layoutlmv3 led lilt longformer longt5 luke mamba mamba2
    markuplm megatron-bert mimo_v2_flash mpnet mpt mra mvp nllb-moe nystromformer openai-gpt pegasus_x perceiver
    prophetnet reformer rembert roformer rwkv squeezebert switch_transformers t5gemma tapas trocr vaultgemma xglm
    xlm xlnet xlstm yoso
"""
NO_SDPA = frozenset(_NO_SDPA.split())
"""No class of theirs says `_supports_sdpa`: asked for it, transformers refuses to build the model."""
_NO_FLASH = """
    axk2 big_bird bigbird_pegasus bloom blt canine codegen convbert cpmant deberta deberta-v2 deepseek_v32
    deepseek_v4 doge dots3_note dots3_note_text falcon_mamba flaubert flint fnet fsmt funnel git glm_moe_dsa
    got_ocr2 gpt_neox_japanese gpt_oss granite_speech granite_speech_plus granite_swa granitemoe_swa hy_v4 ibert
    inkling2_text inkling_text layoutlm layoutlmv2 layoutlmv3 led lilt llama4 llama4_text longformer longt5 luke
    mamba mamba2 markuplm megatron-bert mimo_v2_flash minimax_m3_vl_text mllama mpnet mpt mra mt5 mvp nllb-moe
    nystromformer openai-gpt perceiver prophetnet qwen4_exp qwen4_exp_text reformer rembert roformer rwkv
    seamless_m4t seamless_m4t_v2 squeezebert switch_transformers t5 t5gemma2 tapas trocr umt5 xglm xlm xlnet xlstm
    yoso
"""
NO_FLASH = frozenset(_NO_FLASH.split())
"""No class of theirs says `_supports_flash_attn`, or only with kernels other than flash-attn's (`_compatible_flash_implementations`)."""
_NO_CHECKPOINTING = """
    albert cpmant ctrl flaubert fsmt funnel gpt_neox_japanese granite_speech granite_speech_plus ibert jetmoe
    layoutlmv2 layoutlmv3 markuplm mpnet openai-gpt perceiver reformer squeezebert xlm xlnet
"""
NO_CHECKPOINTING = frozenset(_NO_CHECKPOINTING.split())
"""No class of theirs says `supports_gradient_checkpointing`."""

_NO_LABEL_COUNT = "esm gemma3n gemma4 gemma4_unified"
NO_LABEL_COUNT = frozenset(_NO_LABEL_COUNT.split())
"""Their classes take no `num_items_in_batch`: the Trainer of transformers lets each micro-batch average its own loss."""


def has_attention(model_type: str | None, attention: str) -> bool:
    """Whether transformers builds models of this type with `attention`: "sdpa", "flash_attention_2" or "eager"."""
    without = {"sdpa": NO_SDPA, "flash_attention_2": NO_FLASH}.get(attention, frozenset())
    return model_type not in without


def has_checkpointing(model_type: str | None) -> bool:
    return model_type not in NO_CHECKPOINTING
