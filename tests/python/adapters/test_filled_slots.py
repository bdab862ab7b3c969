"""What slots hold once adapters of PEFT's models are loaded, wherever these come from, and which slots are refused."""

import copy
import json
import threading

import layercast
import peft
import pytest
import safetensors.torch
import torch
from peft_models import (
    ALL, HEADS, MAX_RANK, SOME, adapted, assert_holds, expected_of, factors, receiver_of, retrained, slot_of,
)  # fmt: skip


@pytest.mark.parametrize("tp_size", [1, 2])
@pytest.mark.parametrize("config", [{"target_modules": ALL}, {"rank_pattern": {"q_proj": 7, "down_proj": 2}}],
                         ids=["all", "patterns"])
def test_a_rank_has_its_part_of_what_peft_holds(folder, policy, publisher, config, tp_size):
    model = adapted(policy, **config)
    published = publisher.publish_adapters({"policy": model}, step=1)
    assert published.version.lineage == "policy" and published.version.step == 1
    for tp_rank in range(tp_size):
        rank = {"tp_rank": tp_rank, "tp_size": tp_size}
        slots = [slot_of(folder, **rank), slot_of(folder, wide=3, **rank)]
        with receiver_of(folder, slots, **rank) as receiver:
            loaded = receiver.load(1, publishers=published)
            assert (loaded.name, loaded.modules, loaded.warnings, loaded.zero_modules) == (
                "policy", len(factors(model)) // 2, [], 0)
            expected = expected_of(factors(model), **rank)
            assert_holds(slots[1], expected)
            assert_holds(slots[0], {})
            ranks = {term.a: term.rank for term in loaded.terms}
            assert {name for name, number in ranks.items() if number} == {name for name in expected if name.endswith("A")}
            q_proj = "model.layers.0.self_attn.qkv_proj.q_proj_lora_A"
            assert ranks[q_proj] == config.get("rank_pattern", {}).get("q_proj", 4)
            scales = {term.a: term.scale for term in loaded.terms}
            assert scales[q_proj] == pytest.approx(6 / ranks[q_proj])
            assert receiver.load(0, publishers=publisher, name="policy").digest == loaded.digest
            assert_holds(slots[0], expected)


def test_every_source_brings_the_same_slot(folder, policy, publisher, tmp_path):
    model = adapted(policy)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    tensors = safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
    numbers = {name: tensor.numpy() for name, tensor in tensors.items()}
    added = copy.deepcopy(policy)
    added.add_adapter(peft.LoraConfig(r=4, lora_alpha=6, target_modules=SOME))
    retrained(added, 1)
    sources = [model, torch.compile(model), (model, "default"), tmp_path, str(tmp_path), (config, tensors),
               (json.dumps(config), tensors), (config, list(tensors.items())), (config, numbers),
               (config, iter(numbers.items())), added]
    slot, digests = slot_of(folder), []
    with receiver_of(folder, [slot]) as receiver:
        digests.append(receiver.load(0, path=tmp_path).digest)
        for step, source in enumerate(sources):
            published = publisher.publish_adapters({"policy": source}, step=step)
            digests.append(receiver.load(0, publishers=published).digest)
        for step, source in enumerate([model, tmp_path, (config, tensors)]):
            streamed = publisher.publish_adapters({"policy": source}, step=step, lineage="streamed", stream=True)
            digests.append(receiver.load(0, publishers=publisher.endpoint, lineage="streamed", step=step).digest)
            streamed.withdraw()
    assert len(set(digests)) == 1


def recorded(tp_rank):
    """What a loader of two ranks does with attention's weights: q, k and v by heads into one tensor, o by columns."""
    from layercast import Box, Copy, Recording, TensorSpec

    layers, sources, parameters, copies = ["model.layers.0.self_attn", "model.layers.1.self_attn"], [], [], []
    for layer in layers:
        parameters.append(TensorSpec(f"{layer}.qkv_proj.weight", "BF16", (128, 128)))
        parameters.append(TensorSpec(f"{layer}.o_proj.weight", "BF16", (128, 64)))
        begin = 0
        for shard, heads in HEADS.items():
            rows = heads * 32 // 2
            sources.append(TensorSpec(f"{layer}.{shard}.weight", "BF16", (heads * 32, 128)))
            copies.append(Copy(sources[-1].name, f"{layer}.qkv_proj.weight", Box((tp_rank * rows, 0), (rows, 128)),
                               Box((begin, 0), (rows, 128))))
            begin += rows
        sources.append(TensorSpec(f"{layer}.o_proj.weight", "BF16", (128, 128)))
        copies.append(Copy(sources[-1].name, f"{layer}.o_proj.weight", Box((0, tp_rank * 64), (128, 64)),
                           Box((0, 0), (128, 64))))
    return Recording(tuple(sources), tuple(parameters), tuple(copies), {})


@pytest.mark.parametrize("tp_rank", [0, 1])
def test_a_recorded_loader_says_where_factors_go_too(policy, publisher, tp_rank):
    model = adapted(policy, target_modules=["q_proj", "v_proj", "o_proj"])
    rank = {"tp_rank": tp_rank, "tp_size": 2}
    slot = slot_of(recorded(tp_rank), wide=2, **rank)
    with receiver_of(recorded(tp_rank), [slot], **rank) as receiver:
        receiver.load(0, publishers=publisher.publish_adapters({"policy": model}, step=1))
        assert_holds(slot, expected_of(factors(model), **rank))
        published = publisher.publish_adapters({"policy": adapted(policy)}, step=2)
        with pytest.raises(layercast.InvalidArgument, match="down_proj"):
            receiver.load(0, publishers=published)


def test_factors_are_cast_if_asked_for(folder, policy, publisher):
    model = adapted(policy)
    bytes_of = [sum(tensor.numel() * size for tensor in factors(model).values()) for size in (4, 2)]
    slot = slot_of(folder)
    with receiver_of(folder, [slot]) as receiver:
        wide = receiver.load(0, publishers=publisher.publish_adapters({"a": model}, step=1))
        narrow = receiver.load(0, publishers=publisher.publish_adapters({"a": model}, step=2, dtype=torch.bfloat16))
    assert wide.digest == narrow.digest
    assert bytes_of[0] <= wide.report.bytes < bytes_of[0] + 2000 and bytes_of[1] <= narrow.report.bytes < bytes_of[1] + 2000


def test_a_new_version_takes_the_place_of_the_old_one(folder, policy, publisher):
    model, slot = adapted(policy, target_modules=ALL), slot_of(folder)
    with receiver_of(folder, [slot], dtype="BF16") as receiver:
        one = receiver.load(0, publishers=publisher.publish_adapters({"policy": model}, step=1))
        retrained(model, 2)
        two = receiver.load(0, publishers=publisher.publish_adapters({"policy": model}, step=2))
        assert two.version.step == 2 and two.version.digest != one.version.digest
        assert_holds(slot, expected_of(factors(model)))
        assert receiver.load(0, publishers=publisher, step=1).digest == one.digest


def test_copies_of_base_weights_are_held_against_what_is_served(folder, policy, buffers, tmp_path):
    adapted(policy, target_modules=["embed_tokens", "q_proj"]).save_pretrained(tmp_path)  # with the embedding's weights
    served = buffers(folder)
    with layercast.Receiver(folder, buffers=served) as base:
        base.reload_weights(policy.state_dict())
    with receiver_of(folder, [slot_of(folder)]) as receiver:
        loaded = receiver.load(0, path=tmp_path)
        assert [name for name in loaded.skipped if "embed_tokens" in name] and len(loaded.warnings) == 1
    with receiver_of(folder, [slot_of(folder)], served=served) as receiver:
        loaded = receiver.load(0, path=tmp_path)
        assert loaded.skipped and loaded.warnings == []
        served["model.embed_tokens.weight"][5, 7] += 1
        with pytest.raises(layercast.Error, match="embed_tokens"):
            receiver.load(0, path=tmp_path)


def test_slots_that_are_none_are_refused_by_name(folder):
    slot = slot_of(folder)
    name = "model.layers.0.self_attn.o_proj.lora_A"
    for wrong in ({}, {**slot, name: slot[name][:4]}, {**slot, name: slot[name].float()}):
        with pytest.raises(layercast.InvalidArgument, match="slot 0: .*expected"):
            receiver_of(folder, [wrong])
    for options, words in (({"max_rank": 0}, "rank"), ({"max_rank": 513}, "rank"), ({"dtype": "I8"}, "f32, got"),
                           ({"modules": ["nothing"]}, "nothing")):
        with pytest.raises(layercast.InvalidArgument, match=words):
            layercast.adapter_parts(folder, **options)
        with pytest.raises(layercast.InvalidArgument, match=words):
            layercast.AdapterReceiver(folder, slots=[slot], **options)


def test_slots_may_be_for_some_layers_alone(folder, policy, publisher):
    published = publisher.publish_adapters({"policy": adapted(policy)}, step=1)
    parts = layercast.adapter_parts(folder, max_rank=MAX_RANK, modules=["q_proj", "down_proj"])
    assert {part.shard or part.layer.rpartition(".")[2] for part in parts} == {"q_proj", "down_proj"}
    slot = slot_of(folder, modules=["q_proj", "down_proj"])
    with receiver_of(folder, [slot], modules=["q_proj", "down_proj"]) as receiver:
        with pytest.raises(layercast.Unsupported, match="no room"):
            receiver.load(0, publishers=published)


def test_a_load_is_given_up(folder):
    with receiver_of(folder, [slot_of(folder)], timeout=60) as receiver:
        begun = threading.Thread(target=lambda: (begin.set(), give_up()))
        begin, ended = threading.Event(), threading.Event()

        def give_up():
            while not ended.wait(0.02):
                receiver.cancel()

        begun.start()
        try:
            begin.wait()
            with pytest.raises(layercast.Cancelled):
                receiver.load(0, publishers="tcp://127.0.0.1:9")
        finally:
            ended.set()
            begun.join()
