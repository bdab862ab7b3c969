"""Adapters of publishers in memory: SGLang's own classes make of them what they make of the folder, with PEFT's scale, and
its own registry never loses a name."""

import asyncio
import types

import layercast
import peft
import pytest
import safetensors.torch
import sglang.srt.entrypoints.engine
import torch
from layercast.sglang.loras import load_adapter
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.lora.lora import LoRAAdapter
from sglang.srt.lora.lora_config import LoRAConfig
from sglang.srt.lora.lora_registry import LoRARegistry
from sglang.srt.managers import tokenizer_control_mixin as control
from sglang.srt.managers.io_struct import LoRAUpdateOutput
from sglang.srt.managers.tokenizer_control_mixin import TokenizerControlMixin
from transformers import LlamaConfig, LlamaForCausalLM

BASE = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                   vocab_size=131, bos_token_id=None, eos_token_id=None)  # fmt: skip


def adapter_of(config, **tensors):
    backend = types.SimpleNamespace(name="none")
    made = LoRAAdapter("id", config, BASE, LoadConfig(), backend)
    made.initialize_weights_from_tensors(tensors) if tensors else made.initialize_weights()
    return made


class Manager(TokenizerControlMixin):
    """SGLang's own calls for adapters and its own registry, in front of a scheduler that holds adapters of its classes."""

    def __init__(self):
        self.lora_registry, self.lora_ref_cache, self.pending_lora_unloads = LoRARegistry(), {}, {}
        self.lora_update_lock = asyncio.Lock()
        self.scheduler, self.calls = {}, []

    def auto_create_handle_loop(self):
        pass

    async def update_lora_adapter_communicator(self, asked):
        loads = hasattr(asked, "config_dict")
        self.calls.append("load" if loads else "unload")
        if loads and asked.config_dict["r"] > 16:
            return [LoRAUpdateOutput(success=False, error_message="rank 32 is too large")]
        if loads:
            tensors = safetensors.torch.load(asked.serialized_named_tensors[0])
            self.scheduler[asked.lora_id] = adapter_of(LoRAConfig.from_dict(asked.config_dict), **tensors)
        else:
            del self.scheduler[asked.lora_id]
        return [LoRAUpdateOutput(success=True, loaded_adapters={})]


class Engine:
    """What a sglang.Engine does with the calls, but for its processes."""

    load_lora_adapter_from_tensors = sglang.srt.entrypoints.engine.Engine.load_lora_adapter_from_tensors
    unload_lora_adapter = sglang.srt.entrypoints.engine.Engine.unload_lora_adapter

    def __init__(self, most=None):
        self.loop = asyncio.new_event_loop()
        self.tokenizer_manager = Manager()
        self.server_args = types.SimpleNamespace(max_loaded_loras=most)

    def _serialize_tensors_per_rank(self, tensors, load_format):
        """Not by handles of shared memory, which one process cannot give to itself."""
        return [safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})]

    def meant(self, name):
        """What the scheduler computes a request with."""
        return self.tokenizer_manager.scheduler[self.tokenizer_manager.lora_registry.get_all_adapters()[name].lora_id]


@pytest.fixture(autouse=True)
def enabled(monkeypatch):
    monkeypatch.setattr(control, "get_lora", lambda: types.SimpleNamespace(enable_lora=True, max_loaded_loras=None))


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
        ours = engine.meant("mine")
        assert load_adapter(engine, "mine", publisher.endpoint, step=2) == second.version
    assert engine.tokenizer_manager.calls == ["load", "load", "unload"]
    assert list(engine.tokenizer_manager.lora_registry.get_all_adapters()) == ["mine"]
    assert len(engine.tokenizer_manager.scheduler) == 1
    theirs = adapter_of(LoRAConfig(str(tmp_path)))
    for layer, expected in zip(ours.layers, theirs.layers, strict=True):
        assert layer.weights.keys() == expected.weights.keys() and layer.weights
        assert all(torch.equal(layer.weights[name], tensor) for name, tensor in expected.weights.items())
    wrapped = next(module for module in model.modules() if isinstance(module, peft.tuners.lora.LoraLayer))
    assert ours.scaling == pytest.approx(wrapped.scaling["default"], rel=1e-15)
    new = engine.meant("mine").layers[0].weights
    assert any(not torch.equal(new[name], tensor) for name, tensor in ours.layers[0].weights.items())


def test_what_sglang_would_scale_wrongly_is_refused():
    with layercast.Publisher() as publisher:
        publisher.publish_adapters({"policy": adapted(rank_pattern={"q_proj": 4})}, step=1)
        with pytest.raises(layercast.Unsupported, match="rank_pattern"):
            load_adapter(Engine(), "mine", publisher.endpoint)
        publisher.publish_adapters({"policy": adapted(r=32)}, step=2)
        with pytest.raises(layercast.FailedPrecondition, match="'mine': rank 32 is too large"):
            load_adapter(Engine(), "mine", publisher.endpoint)


def test_requests_are_answered_while_a_version_takes_the_place_of_another():
    engine = Engine()
    manager, registry = engine.tokenizer_manager, engine.tokenizer_manager.lora_registry
    seen = []

    async def ask():
        """A request that comes again and again, and one that is under way until the old version is to be unloaded."""
        old = await registry.acquire("mine")
        while len(set(seen)) < 2:
            one = await registry.acquire("mine")
            seen.append(one)
            assert one in manager.scheduler
            await registry.release(one)
            await asyncio.sleep(0)
        assert old in manager.scheduler  # it has not ended
        await registry.release(old)

    with layercast.Publisher() as publisher:
        publisher.publish_adapters({"policy": adapted()}, step=1)
        load_adapter(engine, "mine", publisher.endpoint)
        asking = engine.loop.create_task(ask())
        publisher.publish_adapters({"policy": adapted(seed=1)}, step=2)
        load_adapter(engine, "mine", publisher.endpoint)
        engine.loop.run_until_complete(asking)
    assert len(set(seen)) == 2 and manager.calls == ["load", "load", "unload"] and len(manager.scheduler) == 1


def test_with_a_limit_of_names_the_old_version_goes_first():
    engine = Engine(most=1)
    with layercast.Publisher() as publisher:
        for step in (1, 2):
            publisher.publish_adapters({"policy": adapted(seed=step)}, step=step)
            load_adapter(engine, "mine", publisher.endpoint)
    assert engine.tokenizer_manager.calls == ["load", "unload", "load"]
