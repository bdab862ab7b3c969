"""Megatron-core's own GPTModel on this rank, with the weights of a checkpoint of Hugging Face's."""

import contextlib
import json
import pathlib
import sys
import types
import warnings

warnings.filterwarnings("ignore")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python/trainer"))

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402
from megatron_model import PAD_VOCABULARY_TO, Whole  # noqa: E402

# Megatron asks for these wherever its tensors are; nothing is dropped here.
torch.cuda.current_device = lambda: "cpu"
tensor_parallel.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=contextlib.nullcontext)


def model_of(folder, tp, pp, ep, dtype):
    """torch.distributed runs already. Checks that Megatron's modules have the names, shapes and marks that the tests without
    Megatron-core take for granted."""
    fields = json.loads((folder / "config.json").read_text())
    experts = fields.get("num_experts") or fields.get("num_local_experts")
    parallel_state.initialize_model_parallel(tp, pp, expert_model_parallel_size=ep, expert_tensor_parallel_size=1)
    mixture = {"num_moe_experts": experts, "moe_ffn_hidden_size": fields.get("moe_intermediate_size"), "moe_router_topk": 2,
               "expert_model_parallel_size": ep, "expert_tensor_parallel_size": 1} if experts else {}
    config = TransformerConfig(
        num_layers=fields["num_hidden_layers"], hidden_size=fields["hidden_size"], num_attention_heads=fields["num_attention_heads"],
        num_query_groups=fields["num_key_value_heads"], kv_channels=fields["head_dim"], ffn_hidden_size=fields["intermediate_size"],
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False, normalization="RMSNorm",
        layernorm_epsilon=fields["rms_norm_eps"], qk_layernorm=True, use_cpu_initialization=True,
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, pipeline_dtype=dtype, params_dtype=dtype,
        bf16=dtype == torch.bfloat16, gradient_accumulation_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False,
        bias_dropout_fusion=False, apply_rope_fusion=False, attention_dropout=0.0, hidden_dropout=0.0, **mixture)
    spec = get_gpt_layer_local_spec(num_experts=experts, moe_grouped_gemm=False, qk_layernorm=True, normalization="RMSNorm")
    padded = fields["vocab_size"] + -fields["vocab_size"] % (PAD_VOCABULARY_TO * tp)
    model = GPTModel(config=config, transformer_layer_spec=spec, vocab_size=padded, max_sequence_length=64, parallel_output=False,
                     pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
                     position_embedding_type="rope", rotary_base=fields["rope_parameters"]["rope_theta"]).eval()
    whole = Whole(safetensors.torch.load_file(folder / "model.safetensors"), fields, "modules")
    rank, stage = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_pipeline_model_parallel_rank()
    (played,) = whole.on(tp, rank, pp, stage, ep, parallel_state.get_expert_model_parallel_rank())
    held, expected = dict(model.named_parameters()), dict(played.named_parameters())
    assert {name: tuple(tensor.shape) for name, tensor in held.items()} == {
        name: tuple(tensor.shape) for name, tensor in expected.items()}
    for name, tensor in held.items():
        if hasattr(expected[name], "partition_dim") and tp > 1:
            assert tensor.partition_dim == expected[name].partition_dim, name
        tensor.data.copy_(expected[name].nan_to_num())
    for local, layer in enumerate(model.decoder.layers):
        assert layer.layer_number == played.get_submodule(f"decoder.layers.{local}").layer_number
    return model
