"""Every family, recipe and number of ranks that tests cover: the one table from which they take them.

tests/oracle/test_matrix.py serves each row cold and live and compares with the oracle, and fails where `layercast models`
knows an architecture or a recipe, or checkpoints.py a checkpoint, that is not here.
"""

import dataclasses

import checkpoints
import recipes

RANKS = {1: (0,), 2: (1,), 4: (0, 3)}  # for each number of ranks, those that tests look at closely


@dataclasses.dataclass(frozen=True)
class Family:
    """The checkpoints (checkpoints.py) of one architecture. Those `in_blocks` take every recipe. `ragged` ones have sizes
    that no block divides, so they take all but the recipes that ask for whole blocks of columns on every rank."""

    ragged: tuple
    in_blocks: tuple


FAMILIES = {
    "DeepseekV2ForCausalLM": Family(("deepseek_v2", "deepseek_v2_greedy"), ("deepseek_v2_blocks",)),
    "DeepseekV3ForCausalLM": Family(("deepseek_v3", "deepseek_v3_half"), ("deepseek_v3_blocks", "deepseek_v3_wide")),
    "Gemma2ForCausalLM": Family(("gemma2",), ("gemma2_blocks",)),
    "Gemma3ForCausalLM": Family(("gemma3",), ("gemma3_blocks",)),
    "Gemma3ForConditionalGeneration": Family(("gemma3_vision",), ("gemma3_vision_blocks",)),
    "Glm4MoeForCausalLM": Family(("glm4_moe", "glm4_moe_stacked"), ("glm4_moe_blocks",)),
    "GptOssForCausalLM": Family(("gpt_oss",), ("gpt_oss_blocks",)),
    "LlamaForCausalLM": Family(("llama", "llama_plain", "llama_fp16"), ("llama_blocks_fp32",)),
    "Mamba2ForCausalLM": Family(("mamba2", "mamba2_groups"), ("mamba2_blocks",)),
    "MiniMaxM2ForCausalLM": Family((), ("minimax_m2", "minimax_m2_stacked")),
    "MistralForCausalLM": Family(("mistral",), ("mistral_blocks",)),
    "MixtralForCausalLM": Family(("mixtral", "mixtral_stacked"), ("mixtral_blocks",)),
    "NemotronHForCausalLM": Family(("nemotron_h", "nemotron_h_moe", "nemotron_h_latent"), ("nemotron_h_blocks",)),
    "Phi3ForCausalLM": Family(("phi3",), ("phi3_blocks",)),
    "Qwen2ForCausalLM": Family(("qwen2", "qwen2_untied"), ("qwen2_blocks",)),
    "Qwen2MoeForCausalLM": Family(("qwen2_moe",), ("qwen2_moe_blocks",)),
    "Qwen3ForCausalLM": Family(("qwen3", "qwen3_tied", "qwen3_fp32_files"), ("qwen3_blocks", "qwen3_wide")),
    "Qwen3MoeForCausalLM": Family(("qwen3_moe", "qwen3_moe_stacked"), ("qwen3_moe_blocks",)),
    "Qwen3NextForCausalLM": Family(("qwen3_next", "qwen3_next_stacked"), ("qwen3_next_blocks",)),
    "Qwen3_5ForCausalLM": Family(("qwen3_5",), ("qwen3_5_blocks",)),
    "Qwen3_5ForConditionalGeneration": Family(("qwen3_5_vision",), ("qwen3_5_vision_blocks",)),
    "Qwen3_5MoeForCausalLM": Family(("qwen3_5_moe",), ("qwen3_5_moe_blocks",)),
    "Qwen3_5MoeForConditionalGeneration": Family((), ("qwen3_5_moe_vision",)),
}
IN_BLOCKS = frozenset(spec for family in FAMILIES.values() for spec in family.in_blocks)


def applies(spec, recipe):
    return spec in IN_BLOCKS or recipe not in recipes.COLUMN_UNITS


def specs_of(architecture):
    return (*FAMILIES[architecture].ragged, *FAMILIES[architecture].in_blocks)


ROWS = [(architecture, spec, recipe) for architecture in FAMILIES
        for spec in specs_of(architecture) for recipe in recipes.RECIPES if applies(spec, recipe)]


def forgotten():
    """The checkpoints of checkpoints.py that no family lists."""
    return set(checkpoints.SPECS) - {spec for _, spec, _ in ROWS}
