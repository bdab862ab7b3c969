"""What of PEFT's models is no adapter, or none that fits, is refused by name."""

import json

import layercast
import peft
import pytest
import torch
from peft_models import adapted, assert_holds, factors, receiver_of, slot_of


def without(name):
    return lambda config, tensors: (config, {key: tensor for key, tensor in tensors.items() if name not in key})


def renamed(old, new):
    return lambda config, tensors: (config, {key.replace(old, new): tensor for key, tensor in tensors.items()})


@pytest.mark.parametrize("change, error, words", [
    (without("layers.1.self_attn.q_proj.lora_B"), layercast.InvalidArgument, "layers.1.self_attn.q_proj.*lora_B"),
    (renamed("layers.1.", "layers.9."), layercast.InvalidArgument, "layers.9"),
    (lambda config, tensors: ({**config, "use_dora": True}, tensors), layercast.Unsupported, "use_dora"),
    (lambda config, tensors: ({**config, "modules_to_save": ["norm"]}, tensors), layercast.Unsupported, "modules_to_save"),
    (lambda config, tensors: ({**config, "r": 3}, tensors), layercast.InvalidArgument, "rank.*3.*4|4.*3"),
    (lambda config, tensors: (3, tensors), layercast.InvalidArgument, "'policy'.*adapter_config.json.*int"),
    (lambda config, tensors: (config, {name: tensor * float("nan") for name, tensor in tensors.items()}),
     layercast.Corrupt, "lora_A"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(folder, policy, publisher, change, error, words):
    model = adapted(policy)
    config = json.loads(json.dumps(model.peft_config["default"].to_dict(), default=sorted))
    config, tensors = change(config, factors(model))
    slot = slot_of(folder)
    with pytest.raises(error, match=words), receiver_of(folder, [slot]) as receiver:
        receiver.load(0, publishers=publisher.publish_adapters({"policy": (config, tensors)}, step=1))
    assert_holds(slot, {})


def test_a_rank_that_slots_have_no_room_for_is_refused(folder, policy, publisher):
    published = publisher.publish_adapters({"policy": adapted(policy, r=9)}, step=1)
    slot = slot_of(folder)
    with receiver_of(folder, [slot]) as receiver:
        with pytest.raises(layercast.InvalidArgument, match="down_proj.*at most 8.*got 9"):
            receiver.load(0, publishers=published)
        assert_holds(slot, {})
        with pytest.raises(layercast.InvalidArgument, match="expected one of 1"):
            receiver.load(1, publishers=published)


@pytest.mark.parametrize("given, words", [
    ({}, "expected a dict"),
    ({"policy": torch.nn.Linear(2, 2)}, "PEFT model.*Linear"),
    ({"policy": 3}, "'policy'.*int"),
    ({"a/b": ({"peft_type": "LORA"}, {})}, "a/b"),
])
def test_what_is_no_adapter_is_refused(publisher, given, words):
    with pytest.raises(layercast.InvalidArgument, match=words):
        publisher.publish_adapters(given, step=1)


def test_an_adapter_of_a_model_that_has_several_is_named(policy, publisher):
    model = adapted(policy)
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["k_proj"]))
    with pytest.raises(layercast.NotFound, match="'third'.*default, other"):
        publisher.publish_adapters({"policy": (model, "third")}, step=1)
    model.base_model.set_adapter(["default", "other"])
    with pytest.raises(layercast.InvalidArgument, match="one active adapter"):
        publisher.publish_adapters({"policy": model}, step=1)
