"""PEFT's adapters are published merged, as merge_and_unload() makes them, and the trainer's weights keep their bits."""

import copy

import peft
import pytest
import torch
from assembly import assert_as_announced, assert_same, assembled, bytes_of
from models import filled, model, saved

from layercast.errors import FailedPrecondition, InvalidArgument, Unsupported
from layercast.trainer import config, pieces_of_module

EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
ADAPTERS = {
    "lora": ("llama", peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"])),
    "lora_with_bias": ("llama", peft.LoraConfig(r=4, target_modules=["v_proj"], lora_bias=True)),
    "dora": ("llama", peft.LoraConfig(r=4, target_modules=["o_proj"], use_dora=True)),
    "ia3": ("llama", peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"])),
    "modules_to_save": ("llama", peft.LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head", "norm"])),
    "embeddings": ("llama", peft.LoraConfig(r=4, target_modules=["embed_tokens"])),
    "tied_embeddings": ("qwen2", peft.LoraConfig(r=4, target_modules=["embed_tokens"])),
    "tokens": ("llama", peft.LoraConfig(r=4, target_modules=["q_proj"], trainable_token_indices=[3, 5])),
    "experts": ("qwen3_moe", peft.LoraConfig(r=4, target_modules=["q_proj"], target_parameters=EXPERTS)),
}


def adapted(case):
    """A model whose adapters are trained, and nothing else."""
    spec, how = ADAPTERS[case]
    trained = peft.get_peft_model(model(spec), copy.deepcopy(how))
    adapters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    filled(torch.nn.ParameterList(adapters))
    return trained


def bits_of(module):
    return {name: bytes_of(tensor) for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("case", ADAPTERS)
def test_an_adapted_model_is_published_as_merge_and_unload_makes_it(case):
    trained = adapted(case)
    expected = saved(copy.deepcopy(trained).merge_and_unload())
    before = bits_of(trained)
    pieces = pieces_of_module(trained)
    assert_same(assembled(assert_as_announced(pieces)), expected)
    assert_same(assembled(pieces), expected)  # and again
    assert bits_of(trained) == before


@pytest.mark.parametrize("case", ADAPTERS)
def test_the_base_alone_is_published_if_asked_for(case):
    trained = adapted(case)
    assert_same(assembled(pieces_of_module(trained, adapters="base")), saved(model(ADAPTERS[case][0])))


def test_adapters_that_transformers_added_itself_are_merged_too():
    trained = model("llama")
    trained.add_adapter(peft.LoraConfig(r=4, target_modules=["q_proj"]))
    filled(torch.nn.ParameterList([p for p in trained.parameters() if p.requires_grad]))
    merged = copy.deepcopy(trained)
    for layer in merged.modules():
        if isinstance(layer, peft.tuners.tuners_utils.BaseTunerLayer):
            layer.merge()
    expected = {name.replace(".base_layer", ""): tensor for name, tensor in merged.state_dict().items()
                if "lora" not in name}
    assert_same(assembled(pieces_of_module(trained)), expected)


def test_weights_that_are_merged_already_are_published_as_they_are():
    trained = adapted("lora")
    trained.merge_adapter()
    expected = saved(copy.deepcopy(trained).unload())
    assert_same(assembled(pieces_of_module(trained)), expected)


def test_the_base_of_merged_weights_is_refused():
    trained = adapted("lora")
    trained.merge_adapter()
    with pytest.raises(FailedPrecondition, match="q_proj.*expected its base weights, got .*'default'. merged"):
        pieces_of_module(trained, adapters="base")


def test_a_learned_prompt_is_refused_unless_the_base_is_asked_for():
    plain = model("llama")
    trained = peft.get_peft_model(model("llama"), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(Unsupported, match="learns a prompt"):
        pieces_of_module(trained)
    assert_same(assembled(pieces_of_module(trained, adapters="base")), saved(plain))


def test_an_unknown_way_of_publishing_adapters_is_refused():
    with pytest.raises(InvalidArgument, match="expected 'merge' or 'base', got 'both'"):
        pieces_of_module(torch.nn.Linear(2, 2), adapters="both")


def test_an_adapted_model_has_its_base_models_configuration():
    plain = model("llama")
    trained = peft.get_peft_model(model("llama"), ADAPTERS["lora"][1])
    assert config(trained) == config(plain)


def test_merging_takes_memory_for_one_layer_at_a_time():
    trained = adapted("lora")
    alive = []
    own = {tensor.untyped_storage().data_ptr() for tensor in trained.parameters()}
    for piece in pieces_of_module(trained):
        if piece.tensor.untyped_storage().data_ptr() not in own:
            alive = [storage for storage in alive if not storage.expired()]
            alive.append(torch.multiprocessing.reductions.StorageWeakRef(piece.tensor.untyped_storage()))
            assert len(alive) <= 2  # this one, and the last until it is let go
        del piece
