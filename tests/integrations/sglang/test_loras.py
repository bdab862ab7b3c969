"""Adapters of publishers in memory: SGLang's own classes make of them what they make of the folder, with PEFT's scale."""

import types

import layercast
import peft
import pytest
import torch
from layercast.sglang.loras import load_adapter
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.lora.lora import LoRAAdapter
from sglang.srt.lora.lora_config import LoRAConfig
from transformers import LlamaConfig, LlamaForCausalLM

BASE = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                   vocab_size=131, bos_token_id=None, eos_token_id=None)  # fmt: skip


def adapter_of(config, **tensors):
    backend = types.SimpleNamespace(name="none")
    made = LoRAAdapter("id", config, BASE, LoadConfig(), backend)
    made.initialize_weights_from_tensors(tensors) if tensors else made.initialize_weights()
    return made


class Engine:
    """What a sglang.Engine does with the calls, in its own classes, but for its processes."""

    def __init__(self):
        self.adapters, self.calls = {}, []
        self.tokenizer_manager = types.SimpleNamespace(lora_registry=self)

    def get_all_adapters(self):
        return self.adapters

    def unload_lora_adapter(self, name):
        self.calls.append("unload")
        return types.SimpleNamespace(success=self.adapters.pop(name, None) is not None, error_message="")

    def load_lora_adapter_from_tensors(self, name, tensors, config):
        self.calls.append("load")
        if config["r"] > 16:
            return types.SimpleNamespace(success=False, error_message="rank 32 is too large")
        self.adapters[name] = adapter_of(LoRAConfig.from_dict(config), **tensors)
        return types.SimpleNamespace(success=True, error_message="")


def adapted(seed=0, **config):
    torch.manual_seed(seed)
    targets = {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
    how = peft.LoraConfig(**{"r": 8, "lora_alpha": 11, "init_lora_weights": False, **targets, **config})
    return peft.get_peft_model(LlamaForCausalLM(BASE), how)


@pytest.mark.parametrize("config", [{}, {"use_rslora": True}, {"target_modules": ["q_proj", "v_proj", "k_proj"], "r": 3}])
def test_an_adapter_of_a_publisher_is_what_sglang_reads_of_its_folder(tmp_path, config):
    model, engine = adapted(**config), Engine()
    model.save_pretrained(tmp_path)
    with layercast.Publisher() as publisher:
        published = publisher.publish_adapters({"policy": model}, base=model, step=1)
        assert load_adapter(engine, "mine", publisher.endpoint) == published.version
        second = publisher.publish_adapters({"policy": adapted(seed=1, **config)}, step=2)
        ours = engine.adapters["mine"]
        assert load_adapter(engine, "mine", publisher.endpoint, step=2) == second.version
    assert engine.calls == ["load", "unload", "load"]
    theirs = adapter_of(LoRAConfig(str(tmp_path)))
    for layer, expected in zip(ours.layers, theirs.layers, strict=True):
        assert layer.weights.keys() == expected.weights.keys() and layer.weights
        assert all(torch.equal(layer.weights[name], tensor) for name, tensor in expected.weights.items())
    wrapped = next(module for module in model.modules() if isinstance(module, peft.tuners.lora.LoraLayer))
    assert ours.scaling == pytest.approx(wrapped.scaling["default"], rel=1e-15)
    new = engine.adapters["mine"].layers[0].weights
    assert any(not torch.equal(new[name], tensor) for name, tensor in ours.layers[0].weights.items())


def test_what_sglang_would_scale_wrongly_is_refused():
    with layercast.Publisher() as publisher:
        publisher.publish_adapters({"policy": adapted(rank_pattern={"q_proj": 4})}, step=1)
        with pytest.raises(layercast.Unsupported, match="rank_pattern"):
            load_adapter(Engine(), "mine", publisher.endpoint)
        publisher.publish_adapters({"policy": adapted(r=32)}, step=2)
        with pytest.raises(layercast.FailedPrecondition, match="'mine': rank 32 is too large"):
            load_adapter(Engine(), "mine", publisher.endpoint)
