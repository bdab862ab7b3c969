"""Small random checkpoints, written by Hugging Face transformers itself, for tests in any language.

make(spec, folder, version) fills every parameter from a seed, so the same call gives the same bytes everywhere; two
versions of a spec differ in every tensor. From a shell: python checkpoints.py FOLDER [SPEC...] writes versions a and b
of each. Nothing is downloaded: the configurations are in this file.
"""

import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import sys
import tempfile
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

VERSIONS = ("a", "b")


@dataclasses.dataclass(frozen=True)
class Spec:
    """One configuration. All have an odd vocabulary. Those with usual attention have grouped queries with two key/value
    heads, fewer than 4 ranks. Most have, at every rank count, numbers of rows that no block divides."""

    name: str
    family: str  # model_type of transformers
    config: dict
    dtype: str = "bfloat16"  # of config.json: the dtype that a model is served in
    stored_dtype: str = ""  # of the tensors in the files, if it differs
    shard_bytes: int = 0  # several files of about this many bytes; 0: a single file
    old_spelling: bool = False  # torch_dtype, rope_theta, rope_scaling instead of dtype, rope_parameters
    auto_class: str = "AutoModelForCausalLM"  # the class of transformers that writes it
    stacked: bool = False  # experts as transformers holds them in memory, not one by one as it saves them by default


_COMMON = {
    "hidden_size": 160,
    "intermediate_size": 344,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1003,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
}
_WHOLE_BLOCKS = {"hidden_size": 128, "intermediate_size": 384}
# An odd number of experts; each of 4 ranks has 18 of their rows.
_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
_MIXTRAL = {**_EXPERTS, "intermediate_size": 72, "head_dim": 40}
_QWEN3_MOE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 72, "head_dim": 40,
              "norm_topk_prob": True}
_MINIMAX = {**_WHOLE_BLOCKS, "intermediate_size": 128, "head_dim": 32, "num_local_experts": 6,
            "num_experts_per_tok": 3, "rotary_dim": 8}
# Half of the values that gate and up have are beyond the limit.
_GPT_OSS = {**_EXPERTS, "intermediate_size": 72, "head_dim": 40, "sliding_window": 24, "swiglu_limit": 0.5,
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "beta_fast": 32.0,
                                "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 64}}
_MAMBA = {"hidden_size": 80, "num_heads": 8, "head_dim": 20, "state_size": 24, "num_hidden_layers": 2,
          "vocab_size": 1003, "chunk_size": 16, "bos_token_id": None, "eos_token_id": None}
_HYBRID = {"hidden_size": 80, "mamba_num_heads": 8, "mamba_head_dim": 20, "ssm_state_size": 24, "chunk_size": 16,
           "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 136,
           "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"], "vocab_size": 1003,
           "bos_token_id": None, "eos_token_id": None}
_NEMOTRON_MOE = {"layers_block_type": ["linear_attention", "moe", "full_attention", "moe"], "n_routed_experts": 6,
                 "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2, "moe_intermediate_size": 72,
                 "moe_shared_expert_intermediate_size": 56, "routed_scaling_factor": 1.7}
# All sizes differ from each other. With _YARN, scores are corrected for the longer context.
_LATENT = {"num_key_value_heads": 8, "q_lora_rank": 56, "kv_lora_rank": 40, "qk_nope_head_dim": 20,
           "qk_rope_head_dim": 16, "v_head_dim": 24}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 0.7,
         "original_max_position_embeddings": 64}
_DEEPSEEK = {**_LATENT, "n_routed_experts": 6, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2,
             "moe_intermediate_size": 72, "n_shared_experts": 2, "routed_scaling_factor": 1.7,
             "first_k_dense_replace": 1, "pad_token_id": None}
# Both kinds of layer. A quarter of a head of 40 is rotated.
_DELTA_NET = {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 12,
              "linear_value_head_dim": 20, "head_dim": 40, "num_hidden_layers": 3,
              "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
_QWEN_MOE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 72,
             "shared_expert_intermediate_size": 56}
_EXPERTS_IN_BLOCKS = {"moe_intermediate_size": 128, "shared_expert_intermediate_size": 128}
_DELTA_NET_IN_BLOCKS = {**_WHOLE_BLOCKS, "head_dim": 32, "linear_value_head_dim": 16}
_LATENT_IN_BLOCKS = {**_WHOLE_BLOCKS, "moe_intermediate_size": 128, "q_lora_rank": 128, "kv_lora_rank": 64,
                     "v_head_dim": 16, "n_shared_experts": 1}
_GLM4_MOE = {"n_routed_experts": 6, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2,
             "moe_intermediate_size": 72, "n_shared_experts": 2, "routed_scaling_factor": 1.7, "num_hidden_layers": 3,
             "head_dim": 40, "attention_bias": True, "use_qk_norm": True, "pad_token_id": None}
_GEMMA3_VISION = {"vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                                    "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
                  "mm_tokens_per_image": 4, "image_token_index": 1002, "boi_token_index": 1000,
                  "eoi_token_index": 1001}
_QWEN_VISION = {"vision_config": {"hidden_size": 32, "intermediate_size": 48, "depth": 1, "num_heads": 2,
                                  "patch_size": 4, "out_hidden_size": 160, "num_position_embeddings": 16},
                "image_token_id": 1002, "video_token_id": 1001, "vision_start_token_id": 1000,
                "vision_end_token_id": 1000}
_DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 1e6}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def _spec(name, family, own=None, **fields):
    return Spec(name, family, {**_COMMON, **(own or {})}, **fields)


_ALL = (
    # The three families over which every matrix runs.
    _spec("llama", "llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 40, "rope_parameters": _LLAMA3_ROPE},
          shard_bytes=400_000),
    _spec("qwen2", "qwen2", {"tie_word_embeddings": True, "rope_parameters": _DEFAULT_ROPE}, old_spelling=True),
    _spec("qwen3", "qwen3", {"head_dim": 40, "rope_parameters": _DEFAULT_ROPE}, shard_bytes=250_000),
    # Variants of these families that the three leave out.
    _spec("llama_plain", "llama", {"tie_word_embeddings": True, "rope_parameters": _LLAMA3_ROPE}, dtype="float32",
          old_spelling=True),
    _spec("qwen2_untied", "qwen2", {"num_key_value_heads": 4, "vocab_size": 257}, dtype="float32"),
    _spec("qwen3_tied", "qwen3", {"head_dim": 32, "tie_word_embeddings": True}, dtype="float32"),
    # An fp32 trainer's files for a bf16 model: every tensor is cast while loading.
    _spec("qwen3_fp32_files", "qwen3", {"head_dim": 40}, stored_dtype="float32", shard_bytes=500_000),
    _spec("llama_fp16", "llama", {"head_dim": 20}, dtype="float16"),
    # Dense families that differ from the three in what they compute, or in how they are stored.
    _spec("mistral", "mistral", {"head_dim": 40, "sliding_window": 24}),
    _spec("phi3", "phi3", {"rope_parameters": {**_DEFAULT_ROPE, "partial_rotary_factor": 0.5}, "pad_token_id": 0,
                           "original_max_position_embeddings": 512}),
    _spec("gemma2", "gemma2", {"head_dim": 40, "num_hidden_layers": 3, "sliding_window": 24, "pad_token_id": 0,
                               "query_pre_attn_scalar": 60, "attn_logit_softcapping": 3.0,
                               "final_logit_softcapping": 5.0}),
    _spec("gemma3", "gemma3_text", {"head_dim": 40, "num_hidden_layers": 4, "sliding_window": 24, "pad_token_id": 0,
                                    "sliding_window_pattern": 3, "query_pre_attn_scalar": 60}),
    # The text part of a vision-language model, with its vision tower.
    _spec("gemma3_vision", "gemma3", {"text_config": {**_COMMON, "head_dim": 40, "num_hidden_layers": 2,
                                                      "sliding_window": 24, "pad_token_id": 0}, **_GEMMA3_VISION}),
    # Mixtures of experts, under the names of their files and under those that transformers has in memory.
    _spec("mixtral", "mixtral", _MIXTRAL, shard_bytes=400_000),
    _spec("mixtral_stacked", "mixtral", _MIXTRAL, stacked=True),
    _spec("qwen2_moe", "qwen2_moe", {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 72,
                                     "shared_expert_intermediate_size": 56, "num_hidden_layers": 3,
                                     "mlp_only_layers": [1]}),
    _spec("qwen3_moe", "qwen3_moe", {**_QWEN3_MOE, "num_hidden_layers": 4, "decoder_sparse_step": 2}),
    _spec("qwen3_moe_stacked", "qwen3_moe", _QWEN3_MOE, stacked=True, shard_bytes=500_000),
    _spec("glm4_moe", "glm4_moe", _GLM4_MOE),
    _spec("glm4_moe_stacked", "glm4_moe", {"n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 72,
                                           "head_dim": 40, "norm_topk_prob": False}, stacked=True),
    _spec("minimax_m2", "minimax_m2", _MINIMAX, shard_bytes=500_000, old_spelling=True),
    # A mixture whose router stays in fp32, whatever the model's dtype.
    _spec("minimax_m2_stacked", "minimax_m2", _MINIMAX, stacked=True, stored_dtype="float32"),
    _spec("gpt_oss", "gpt_oss", _GPT_OSS),
    # Latent attention, with and without a small vector for queries, and with scores corrected as yarn asks.
    _spec("deepseek_v2", "deepseek_v2", {**_DEEPSEEK, "q_lora_rank": None, "topk_method": "group_limited_greedy",
                                         "rope_parameters": _YARN}),
    _spec("deepseek_v3", "deepseek_v3", {**_DEEPSEEK, "rope_parameters": _YARN, "num_hidden_layers": 3},
          shard_bytes=400_000),
    # Latent attention with pairs rotated as other families do, with biases, and with experts picked among all.
    _spec("deepseek_v2_greedy", "deepseek_v2", {**_DEEPSEEK, "n_group": None, "topk_group": None,
                                                "attention_bias": True}, stacked=True),
    _spec("deepseek_v3_half", "deepseek_v3", {**_DEEPSEEK, "n_group": 1, "topk_group": 1, "rope_interleave": False,
                                              "norm_topk_prob": False, "attention_bias": True}, dtype="float32",
          stacked=True),
    # State spaces, with one group that every rank holds, and with as many groups as ranks.
    Spec("mamba2", "mamba2", {**_MAMBA, "n_groups": 1, "time_step_limit": [0.3, 2.0]}),
    Spec("mamba2_groups", "mamba2", {**_MAMBA, "n_groups": 4, "use_bias": True, "use_conv_bias": False,
                                     "tie_word_embeddings": True}, dtype="float32"),
    Spec("nemotron_h", "nemotron_h", {**_HYBRID, "n_groups": 4, "time_step_min": 0.3}),
    # State spaces with experts that have no gate, and that take the hidden size or smaller vectors.
    Spec("nemotron_h_moe", "nemotron_h", {**_HYBRID, **_NEMOTRON_MOE, "n_groups": 4}),
    Spec("nemotron_h_latent", "nemotron_h", {**_HYBRID, **_NEMOTRON_MOE, "n_groups": 4, "moe_latent_size": 48,
                                             "mlp_bias": True, "norm_topk_prob": False}, stacked=True),
    # Gated delta nets: projections in one tensor, ordered by key heads, or in four; with and without a vision tower.
    _spec("qwen3_next", "qwen3_next", {**_DELTA_NET, **_QWEN_MOE, "mlp_only_layers": [2]}, shard_bytes=500_000),
    _spec("qwen3_next_stacked", "qwen3_next", {**_DELTA_NET, **_QWEN_MOE, "num_hidden_layers": 2,
                                               "layer_types": _DELTA_NET["layer_types"][:2]}, stacked=True),
    _spec("qwen3_5", "qwen3_5_text", {**_DELTA_NET, "tie_word_embeddings": True}),
    _spec("qwen3_5_moe", "qwen3_5_moe_text", {**_DELTA_NET, **_QWEN_MOE}),
    _spec("qwen3_5_vision", "qwen3_5", {"text_config": {**_COMMON, **_DELTA_NET}, **_QWEN_VISION},
          auto_class="AutoModelForImageTextToText"),
    # Columns in whole blocks of 32 on each of 4 ranks, for the recipes that ask for that.
    _spec("qwen3_moe_blocks", "qwen3_moe", {**_QWEN3_MOE, **_WHOLE_BLOCKS, "moe_intermediate_size": 128,
                                            "head_dim": 32}, stacked=True),
    _spec("gpt_oss_blocks", "gpt_oss", {**_GPT_OSS, **_WHOLE_BLOCKS, "intermediate_size": 128, "head_dim": 32}),
    _spec("qwen3_next_blocks", "qwen3_next", {**_DELTA_NET, **_DELTA_NET_IN_BLOCKS, **_QWEN_MOE, **_EXPERTS_IN_BLOCKS}),
    _spec("qwen3_blocks", "qwen3", {**_WHOLE_BLOCKS, "head_dim": 32}, shard_bytes=400_000),
    _spec("qwen2_blocks", "qwen2", {**_WHOLE_BLOCKS, "tie_word_embeddings": True}),
    _spec("mistral_blocks", "mistral", {**_WHOLE_BLOCKS, "head_dim": 32, "sliding_window": 24}),
    _spec("phi3_blocks", "phi3", {**_WHOLE_BLOCKS, "pad_token_id": 0}),
    _spec("gemma2_blocks", "gemma2", {**_WHOLE_BLOCKS, "head_dim": 32, "pad_token_id": 0}),
    _spec("gemma3_blocks", "gemma3_text", {**_WHOLE_BLOCKS, "head_dim": 32, "pad_token_id": 0}),
    _spec("gemma3_vision_blocks", "gemma3", {"text_config": {**_COMMON, **_WHOLE_BLOCKS, "head_dim": 32,
                                                             "pad_token_id": 0}, **_GEMMA3_VISION}),
    _spec("mixtral_blocks", "mixtral", {**_EXPERTS, **_WHOLE_BLOCKS, "intermediate_size": 128, "head_dim": 32}),
    _spec("qwen2_moe_blocks", "qwen2_moe", {**_QWEN_MOE, **_WHOLE_BLOCKS, **_EXPERTS_IN_BLOCKS, "head_dim": 32},
          stacked=True),
    _spec("glm4_moe_blocks", "glm4_moe", {**_GLM4_MOE, **_WHOLE_BLOCKS, "moe_intermediate_size": 128, "head_dim": 32}),
    # State spaces whose decay stays in fp32, whatever the model's dtype.
    Spec("mamba2_blocks", "mamba2", {**_MAMBA, "hidden_size": 64, "head_dim": 16, "n_groups": 1},
         stored_dtype="float32"),
    Spec("nemotron_h_blocks", "nemotron_h", {**_HYBRID, "hidden_size": 64, "mamba_head_dim": 16, "head_dim": 16,
                                             "intermediate_size": 128, "n_groups": 4}),
    _spec("qwen3_5_blocks", "qwen3_5_text", {**_DELTA_NET, **_DELTA_NET_IN_BLOCKS}),
    _spec("qwen3_5_moe_blocks", "qwen3_5_moe_text", {**_DELTA_NET, **_DELTA_NET_IN_BLOCKS, **_QWEN_MOE,
                                                     **_EXPERTS_IN_BLOCKS}, stacked=True),
    _spec("qwen3_5_vision_blocks", "qwen3_5", {"text_config": {**_COMMON, **_DELTA_NET, **_DELTA_NET_IN_BLOCKS},
                                               **_QWEN_VISION}, auto_class="AutoModelForImageTextToText"),
    _spec("qwen3_5_moe_vision", "qwen3_5_moe", {"text_config": {**_COMMON, **_DELTA_NET, **_DELTA_NET_IN_BLOCKS,
                                                                **_QWEN_MOE, **_EXPERTS_IN_BLOCKS}, **_QWEN_VISION},
          auto_class="AutoModelForImageTextToText"),
    _spec("deepseek_v2_blocks", "deepseek_v2", {**_DEEPSEEK, **_LATENT_IN_BLOCKS, "q_lora_rank": None,
                                                "topk_method": "group_limited_greedy"}),
    # Ranks' parts are whole blocks of 128, except the MLP's on two ranks, of 384 rows.
    _spec("qwen3_wide", "qwen3", {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4,
                                  "head_dim": 128, "vocab_size": 257}),
    _spec("deepseek_v3_blocks", "deepseek_v3", {**_DEEPSEEK, **_LATENT_IN_BLOCKS, "rope_parameters": _YARN}),
    # Ranks' parts are whole blocks of 128 on one rank and on two, except the last part of what makes the small vectors.
    _spec("deepseek_v3_wide", "deepseek_v3", {**_DEEPSEEK, "hidden_size": 256, "intermediate_size": 512,
                                              "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 257,
                                              "q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
                                              "qk_rope_head_dim": 64, "v_head_dim": 64, "moe_intermediate_size": 256,
                                              "n_shared_experts": 1}),
    _spec("llama_blocks_fp32", "llama", {**_WHOLE_BLOCKS, "head_dim": 16}, dtype="float32"),
)
SPECS = {spec.name: spec for spec in _ALL}
FAMILIES = ("llama", "qwen2", "qwen3")
DELTA_NETS = ("qwen3_next", "qwen3_next_stacked", "qwen3_5", "qwen3_5_moe", "qwen3_5_vision")
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "minimax_m2", "gpt_oss")
HYBRIDS = ("nemotron_h", "nemotron_h_moe", "nemotron_h_latent")
LATENT = ("deepseek_v2", "deepseek_v3", "deepseek_v2_greedy", "deepseek_v3_half")


def make(spec, folder, version):
    """Path of the checkpoint `folder/<spec>_<version>`, written if it is not there yet. `version` seeds the weights."""
    if isinstance(spec, str):
        spec = SPECS[spec]
    path = pathlib.Path(folder) / f"{spec.name}_{version}"
    fingerprint = f"{zlib.crc32(pathlib.Path(__file__).read_bytes()):08x}"
    stamp = path / ".made_by"

    def is_there():
        return stamp.is_file() and stamp.read_text() == fingerprint

    if is_there():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f".{path.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed: other test programs make theirs at the same time
        if is_there():  # another process was first, and may be reading it by now
            return path
        scratch = pathlib.Path(tempfile.mkdtemp(dir=path.parent, prefix=".making_"))
        _write(spec, scratch, version)
        (scratch / ".made_by").write_text(fingerprint)
        shutil.rmtree(path, ignore_errors=True)
        scratch.rename(path)
    return path


def _write(spec, folder, version):
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.for_model(spec.family, **spec.config)
    stored = getattr(torch, spec.stored_dtype or spec.dtype)
    with torch.random.fork_rng():
        model = getattr(transformers, spec.auto_class).from_config(config, dtype=stored)
    routing = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")]
    for _, bias in routing:  # published checkpoints have these in fp32, whatever the model's dtype
        bias.data = bias.data.float()
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *routing]:
            parameter.copy_(random_weight(f"{spec.name}/{version}/{name}", name, parameter.shape))
    size = {"max_shard_size": spec.shard_bytes} if spec.shard_bytes else {}
    model.save_pretrained(folder, save_original_format=not spec.stacked, **size)
    _edit_config(folder / "config.json", spec)


def random_weight(seed, name, shape):
    """fp32 values with which no test passes by luck: norms are not one, biases are not zero, rows differ in magnitude
    (so that scales per tensor, row and block differ), and one row of each matrix is all zero."""
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    values = torch.randn(tuple(shape), generator=generator)
    if name.endswith("norm.weight"):
        return 1.0 + 0.2 * values
    if len(shape) == 1:
        return 0.1 * values
    if "embed_tokens" in name:
        return values
    values *= shape[-1] ** -0.5
    values *= torch.exp2(2.0 * torch.rand((*shape[:-1], 1), generator=generator) - 1.0)
    values[..., 1:2, :] = 0.0
    return values


def _edit_config(path, spec):
    config = json.loads(path.read_text())
    config["dtype"] = spec.dtype
    if spec.old_spelling:
        config["torch_dtype"] = config.pop("dtype")
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main(arguments):
    if not arguments:
        sys.exit("usage: checkpoints.py FOLDER [SPEC...]   specs: " + " ".join(SPECS))
    for name in arguments[1:] or SPECS:
        for version in VERSIONS:
            print(make(name, arguments[0], version))


if __name__ == "__main__":
    main(sys.argv[1:])
