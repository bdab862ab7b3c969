"""Small models of the architectures whose load is recorded here, as transformers writes and as vLLM builds them."""

import contextlib
import os

os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}

import torch

_BASE = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
_BASE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": None}
_BASE |= {"eos_token_id": None}
_HEAD = {"head_dim": 16, "query_pre_attn_scalar": 16}
_MOE = {"moe_intermediate_size": 32, "num_experts_per_tok": 2, "num_experts": 4}
_MLA = {"moe_intermediate_size": 32, "num_experts_per_tok": 2, "n_routed_experts": 8, "n_group": 2, "topk_group": 1}
_MLA |= {"first_k_dense_replace": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "v_head_dim": 16, "qk_rope_head_dim": 16}
_MLA |= {"qk_nope_head_dim": 16, "num_key_value_heads": 4}
_LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16}
_LINEAR |= {"linear_value_head_dim": 16, "shared_expert_intermediate_size": 32, "num_hidden_layers": 4}

_SSD = {"mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_n_heads": 8, "mamba_expand": 2}
_SSM = {"state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": 8}
_ZAMBA = {"mamba_d_state": 16, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 8, "mamba_headdim": 16}
_ZAMBA |= {"num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "mamba"], "num_mem_blocks": 1}
_ZAMBA |= {"use_shared_attention_adapter": False, "adapter_rank": 8, "num_key_value_heads": 4}
_ZAMBA |= {"ffn_hidden_size": 128, "attention_hidden_size": 128, "attention_head_dim": 32}
_NEMOTRON = {"mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 1, "head_dim": 16}
_NEMOTRON |= {"expand": 2, "num_hidden_layers": 4, "hybrid_override_pattern": "M-*M", "mamba_hidden_act": "silu"}
_GRANITE = {"layer_types": ["mamba", "attention"], "num_local_experts": 4, "num_experts_per_tok": 2}
_GRANITE |= {"shared_intermediate_size": 32, "position_embedding_type": "rope"}
_JAMBA = {"mamba_d_state": 16, "mamba_expand": 2, "mamba_dt_rank": 8, "use_mamba_kernels": False, "num_experts": 4}
_JAMBA |= {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1}

# By name: the class of the config, and what it says beyond _BASE.
MODELS = {
    "llama": ("Llama", {}),
    "llama_tied": ("Llama", {"tie_word_embeddings": True}),
    "llama_biased": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", _HEAD),
    "gemma2": ("Gemma2", _HEAD),
    "gemma3_text": ("Gemma3Text", _HEAD),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "qwen2_moe": ("Qwen2Moe", _MOE | {"shared_expert_intermediate_size": 32}),
    "qwen3_moe": ("Qwen3Moe", _MOE | _HEAD),
    "deepseek_v2": ("DeepseekV2", _MLA),
    "deepseek_v3": ("DeepseekV3", _MLA | {"topk_method": "noaux_tc"}),
    "phi3": ("Phi3", {}),
    "gpt_neox": ("GPTNeoX", {}),
    "falcon": ("Falcon", {}),
    "falcon_new": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "qwen3_next": ("Qwen3Next", _MOE | _LINEAR | {"head_dim": 16}),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "head_dim": 16}),
    "llama4_text": ("Llama4Text", {"num_local_experts": 4, "head_dim": 16, "intermediate_size_mlp": 128}),
    "olmo2": ("Olmo2", {}),
    "granite": ("Granite", {}),
    "starcoder2": ("Starcoder2", {}),
    "cohere": ("Cohere", {}),
    "glm4": ("Glm4", {"head_dim": 16}),
    "opt": ("OPT", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": ("Bloom", {}),
    "mamba": ("Mamba", _SSM),
    "falcon_mamba": ("FalconMamba", _SSM),
    "zamba2": ("Zamba2", _ZAMBA),
    "falcon_h1": ("FalconH1", _SSD | {"mamba_d_ssm": 128, "head_dim": 16}),
    "nemotron_h": ("NemotronH", _NEMOTRON),
    "granitemoehybrid": ("GraniteMoeHybrid", _SSD | _GRANITE),
    "jamba": ("Jamba", _JAMBA),
    "mamba2": ("Mamba2", {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16, "expand": 2}),
}

# Those of which Layercast has a plan of its own.
REGISTERED = {"llama", "llama_tied", "llama_biased", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "mixtral"}
REGISTERED |= {"qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "phi3", "qwen3_next", "gpt_oss", "mamba2"}
REGISTERED |= {"nemotron_h"}


def is_view(name):
    """Of a buffer that shows what a parameter of Mamba2 holds, in another shape."""
    return name.endswith(".conv_weights")


def saved(name, folder):
    """Writes a checkpoint, and returns its tensors: of values that all differ, also where a model begins with zeros."""
    import transformers
    from safetensors.torch import load_file, save_file

    kind, more = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**_BASE | more)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = {name: torch.randn(tensor.shape).to(tensor.dtype) for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    return tensors


@contextlib.contextmanager
def rank_of(folder, *, tp_rank=0, tp_size=1, **options):
    """vLLM's configuration of the model, within which this process plays one rank of several."""
    import vllm.distributed.parallel_state as parallel
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.torch_utils import set_default_torch_dtype

    arguments = EngineArgs(
        model=str(folder),
        dtype="bfloat16",
        skip_tokenizer_init=True,
        max_model_len=128,
        enforce_eager=True,
        tensor_parallel_size=tp_size,
        **options,
    )
    config = arguments.create_engine_config()
    with set_current_vllm_config(config), torch.no_grad(), set_default_torch_dtype(torch.bfloat16):
        if not parallel.model_parallel_is_initialized():
            parallel.init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
            parallel.initialize_model_parallel(1, 1)
        parallel._TP.world_size, parallel._TP.rank_in_group = tp_size, tp_rank
        try:
            yield config
        finally:
            parallel._TP.world_size, parallel._TP.rank_in_group = 1, 0
            parallel.destroy_model_parallel()


def built(config):
    """A model of load-time parameters that hold what no checkpoint has, so that a hole shows."""
    from vllm.model_executor.model_loader.utils import initialize_model

    config.compilation_config.static_forward_context.clear()  # names of the layers of the model before
    model = initialize_model(config)
    for parameter in model.parameters():
        parameter.fill_(3)
    return model
