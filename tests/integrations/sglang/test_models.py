"""Other architectures of SGLang: their own loaders are recorded, and a commit leaves them as a cold load does."""

import copy
import importlib

import pytest
import scenes
import torch

SIZES = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 16, "dtype": "bfloat16",
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "num_key_value_heads": 4, "head_dim": 8, "kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "moe_layer_freq": 1,
    "scoring_func": "softmax",
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 32},
}

MODELS = {
    "llama": ("LlamaForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", LATENT),
    "qwen3_moe": ("Qwen3MoeForCausalLM", EXPERTS),
    "gemma": ("GemmaForCausalLM", {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"}),
    "gemma2": ("Gemma2ForCausalLM", {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"}),
}


def _config(name):
    """One for each model: SGLang changes those that it is given."""
    from transformers import AutoConfig

    changes = copy.deepcopy(MODELS[name][1])
    return AutoConfig.for_model(name, **{**SIZES, "architectures": [MODELS[name][0]], **changes})


def _checkpoint(name, version):
    from transformers import AutoModelForCausalLM

    config = _config(name)
    torch.manual_seed(version)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    for parameter in model.parameters():
        if parameter.unique().numel() == 1:  # norms, which begin with the same number in every version
            torch.nn.init.normal_(parameter, std=0.05)
    return {name: tensor.detach().clone() for name, tensor in _unfused(model, config).items()}


def _unfused(model, config):
    """As saved on disk, where each expert has tensors of its own."""
    tensors = model.state_dict()
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    for name in [name for name in tensors if ".experts." in name]:
        at, _, kind = name.rpartition(".")
        for expert, weight in enumerate(tensors.pop(name)):
            parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[kind]
            for part, rows in zip(parts, weight.chunk(len(parts))):
                tensors[f"{at}.{expert}.{part}.weight"] = rows
    return tensors


def _cold(name, version):
    kind = getattr(importlib.import_module(f"sglang.srt.models.{name}"), MODELS[name][0])
    return scenes.loaded(_built(kind, _config(name)), _checkpoint(name, version))


def _built(kind, config):
    """As SGLang's loader builds a model (_initialize_model)."""
    from sglang.srt.model_loader import loader
    from sglang.srt.model_loader.utils import set_default_torch_dtype
    from sglang.srt.runtime_context import get_model

    shared_experts = loader.resolve_shared_experts_config(kind, config, None)
    with set_default_torch_dtype(torch.bfloat16), get_model().override(shared_experts=shared_experts):
        model = kind(config=config, quant_config=None)
    model.shared_experts_config = shared_experts
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_commit_leaves_it_as_a_cold_load_does(name, publisher):
    model = _cold(name, 0)
    before, scheduler = scenes.addresses(model), scenes.scheduler_of(model)
    publisher.publish(_checkpoint(name, 1), step=1)
    for method, parameters in (("stage", {"endpoint": publisher.endpoint}), ("prepare", {"wait": 60}), ("commit", {})):
        answer = scenes.rpc(scheduler, f"layercast_{method}", **parameters)
        assert answer.success, answer.message
    assert scenes.contents(model) == scenes.contents(_cold(name, 1))
    assert scenes.addresses(model) == before


def test_latent_attention_has_derived_tensors_to_compare():
    attention = _cold("deepseek_v2", 0).model.layers[0].self_attn
    assert isinstance(attention.w_kc, torch.Tensor) and isinstance(attention.w_vc, torch.Tensor)


def test_norms_that_the_loader_computes_are_left_to_it_by_name(publisher):
    """Gemma's norms keep weight + 1 beside their weight."""
    model = _cold("gemma2", 0)
    scheduler = scenes.scheduler_of(model)
    publisher.publish(_checkpoint("gemma2", 1), step=1)
    assert scenes.rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint).success
    reloaded = scheduler.layercast_state()["reloaded"]
    assert reloaded["model.norm"] == "'model.norm.gemma_weight': computed by aten.add_.Tensor"
    assert {path.rpartition(".")[2] for path in reloaded} == {
        "norm", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
    }


def test_a_loader_that_raises_leaves_the_old_version_and_the_next_update_succeeds(publisher, monkeypatch):
    model = _cold("gemma2", 0)
    before, scheduler = scenes.served(model), scenes.scheduler_of(model)
    publisher.publish(_checkpoint("gemma2", 1), step=1)
    assert scenes.rpc(scheduler, "layercast_stage", endpoint=publisher.endpoint).success
    with monkeypatch.context() as patched:
        patched.setattr(type(model), "load_weights", lambda self, weights: [][next(weights)[1].numel()])
        answer = scenes.rpc(scheduler, "layercast_prepare", wait=60)
        assert not answer.success and "IndexError" in answer.message
        assert not scenes.rpc(scheduler, "layercast_commit").success
    assert scenes.served(model) == before and not scheduler.layercast_state()["torn"]
    answer = scenes.rpc(scheduler, "layercast_commit")
    assert answer.success, answer.message
    assert scenes.contents(model) == scenes.contents(_cold("gemma2", 1))


def test_a_value_that_no_tensor_of_the_version_gives_is_refused_by_name(publisher, monkeypatch):
    from sglang.srt.layers.layernorm import GemmaRMSNorm

    def refreshed(self):
        self.gemma_weight.copy_(self.weight.data).add_(torch.ones(self.weight.shape))

    model = _cold("gemma2", 0)
    before = scenes.served(model)
    monkeypatch.setattr(GemmaRMSNorm, "refresh_gemma_weight", refreshed)
    publisher.publish(_checkpoint("gemma2", 1), step=1)
    answer = scenes.rpc(scenes.scheduler_of(model), "layercast_stage", endpoint=publisher.endpoint)
    assert not answer.success and "input_layernorm.gemma_weight" in answer.message
    assert scenes.served(model) == before


def test_a_tensor_that_only_a_load_makes_is_refused_by_name(model, publisher, monkeypatch):
    through = type(model).load_weights

    def load_weights(self, weights):
        through(self, weights)
        self.model.norm.doubled = self.model.norm.weight.data * 2

    monkeypatch.setattr(type(model), "load_weights", load_weights)
    publisher.publish(scenes.checkpoint(1), step=1)
    answer = scenes.rpc(scenes.scheduler_of(model), "layercast_stage", endpoint=publisher.endpoint)
    assert not answer.success and "'model.norm.doubled'" in answer.message
