"""Adapters of PEFT's models, published, loaded into an engine's slots, and generated with. What a slot must hold is cut
from PEFT's own tensors here, by torch."""

import copy
import json
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import threading
import time

import layercast
import peft
import program as layercast_program
import pytest
import safetensors.torch
import torch
from layercast.dtypes import torch_dtype
from layercast.offered import fetch, fetch_adapter, offered

MAX_RANK = 8
HEADS = {"q_proj": 4, "k_proj": 2, "v_proj": 2}  # of 32 numbers each
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head", "embed_tokens"]
SOME = ["q_proj", "v_proj", "o_proj", "down_proj"]


def adapted(policy, seed=1, **config):
    """A PEFT model with trained factors: no B is zero."""
    config = {"r": 4, "lora_alpha": 6, "target_modules": SOME, **config}
    model = peft.get_peft_model(copy.deepcopy(policy), peft.LoraConfig(**config))
    return retrained(model, seed)


def retrained(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def factors(model, name="default"):
    """As PEFT saves them."""
    return peft.get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)


def slot_of(folder, fill=7.0, wide=1, **options):
    """A slot's tensors, which hold something else before; `wide`: with strides, as columns of wider ones."""
    found = {}
    for part in layercast.adapter_parts(folder, max_rank=MAX_RANK, **options):
        for spec in (part.a, part.b):
            whole = torch.full((*spec.shape[:-1], spec.shape[-1] * wide), fill, dtype=torch_dtype(spec.dtype))
            found[spec.name] = whole[..., ::wide]
    return found


def expected_of(tensors, tp_rank=0, tp_size=1, dtype=torch.bfloat16):
    """The slot's tensors that an adapter fills, by their names, cut and padded with zeros."""
    found = {}
    for name, a in tensors.items():
        if "lora_A" not in name and "lora_embedding_A" not in name:
            continue
        b = tensors[name.replace("_A", "_B")]
        path = name.removeprefix("base_model.model.").split(".lora_")[0]
        module = path.rpartition(".")[2]

        def rows(tensor, parts=tp_size, rank=tp_rank):
            size = -(-tensor.shape[0] // parts)
            return tensor[size * rank : size * (rank + 1)]

        layer, shard = path, ""
        if module in HEADS or module in ("gate_proj", "up_proj"):
            fused = "qkv_proj" if module in HEADS else "gate_up_proj"
            layer, shard = path.replace(module, fused), f"{module}_"
            b = rows(b)
        elif module in ("o_proj", "down_proj"):
            a = rows(a.T).T
        else:  # the vocabulary, padded to 64 rows and then cut
            padded = torch.nn.functional.pad(b if module == "lm_head" else a.T, (0, 0, 0, 192 - 131))
            a, b = (a, rows(padded)) if module == "lm_head" else (rows(padded), b)
        lookup = module == "embed_tokens"
        full_a = torch.zeros((a.shape[0], MAX_RANK) if lookup else (MAX_RANK, a.shape[1]), dtype=dtype)
        full_b = torch.zeros((b.shape[0], MAX_RANK), dtype=dtype)
        (full_a[:, : a.shape[1]] if lookup else full_a[: a.shape[0]]).copy_(a)
        full_b[:, : b.shape[1]].copy_(b)
        found[f"{layer}.{shard}lora_A"], found[f"{layer}.{shard}lora_B"] = full_a, full_b
    return found


def assert_holds(slot, expected, fill=7.0):
    assert expected.keys() <= slot.keys()
    for name, tensor in slot.items():
        wanted = expected.get(name, torch.full(tensor.shape, fill, dtype=tensor.dtype))
        assert torch.equal(tensor.view(torch.int16) if tensor.is_contiguous() else tensor,
                           wanted.view(torch.int16) if tensor.is_contiguous() else wanted), name


def receiver_of(folder, slots, **options):
    return layercast.AdapterReceiver(folder, slots=slots, max_rank=MAX_RANK, **options)


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


def test_several_adapters_and_their_base_are_one_version(folder, policies, publisher, buffers):
    model = adapted(policies(5))
    model.add_adapter("other", peft.LoraConfig(r=2, lora_alpha=2, use_rslora=True, target_modules=["k_proj"]))
    retrained(model, 3)
    published = publisher.publish_adapters({"policy": model, "critic": (model, "other")}, base=model, step=1)
    slots = [slot_of(folder), slot_of(folder)]
    with receiver_of(folder, slots) as receiver:
        receiver.load(0, publishers=published, name="policy")
        critic = receiver.load(1, publishers=published, name="critic")
        with pytest.raises(layercast.InvalidArgument, match="'critic', 'policy'"):
            receiver.load(1, publishers=published)
        with pytest.raises(layercast.NotFound, match="'nobody'.*'critic', 'policy'"):
            receiver.load(1, publishers=published, name="nobody")
    assert_holds(slots[0], expected_of(factors(model)))
    assert_holds(slots[1], expected_of(factors(model, "other")))
    assert [term.scale for term in critic.terms if term.rank] == [pytest.approx(2 / 2**0.5)] * 2
    digests = []
    for source in (published, publisher.publish(policies(5), step=2)):
        with layercast.Receiver(folder, buffers=buffers(folder)) as receiver:
            digests.append(receiver.reload_weights(source).served_digest)
    assert digests[0] == digests[1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_base_may_be_whatever_is_published(folder, policy, publisher, buffers, stream):
    model, digests, adapters = adapted(policy), set(), set()
    numbers = dict(layercast.Checkpoint(folder).walk())
    bases = [model, policy, policy.state_dict(), list(policy.state_dict().items()), folder, str(folder), numbers]
    if not stream:
        bases.append(iter(policy.state_dict().items()))
    for step, base in enumerate(bases):
        published = publisher.publish_adapters({"policy": model}, base=base, step=step, stream=stream)
        with layercast.Receiver(folder, buffers=buffers(folder)) as receiver:
            digests.add(receiver.reload_weights(published).served_digest)
        with receiver_of(folder, [slot_of(folder)]) as receiver:
            adapters.add(receiver.load(0, publishers=published).digest)
    assert len(digests) == len(adapters) == 1
    if stream:
        with pytest.raises(layercast.InvalidArgument, match="streamed"):
            publisher.publish_adapters({"policy": model}, base=iter(policy.state_dict().items()), step=99, stream=True)


def test_the_version_of_the_base_is_said(folder, policy, publisher):
    trained_on = layercast.Version("run", 7, "0" * 31 + "1")
    published = publisher.publish_adapters({"a": adapted(policy)}, base_version=trained_on, step=1)
    with receiver_of(folder, [slot_of(folder)]) as receiver:
        assert receiver.load(0, publishers=published).base == trained_on
        assert receiver.load(0, publishers=publisher.publish_adapters({"a": adapted(policy)}, step=2)).base is None


def test_an_adapter_is_fetched_as_it_is(policy, publisher):
    model = adapted(policy, use_rslora=True)
    trained_on = layercast.Version("run", 7, "0" * 31 + "1")
    published = publisher.publish_adapters({"policy": model, "other": model}, base=policy, step=1,
                                           base_version={"policy": trained_on})
    found = offered(publisher.endpoint)
    assert sorted(found.adapters) == ["other", "policy"] and {spec.name for spec in found.specs} == set(policy.state_dict())
    fetched = fetch_adapter(publisher.endpoint, name="policy")
    assert (fetched.version, fetched.name, fetched.base) == (published.version, "policy", trained_on)
    assert (fetched.config["r"], fetched.config["lora_alpha"], fetched.config["use_rslora"]) == (4, 6, True)
    expected = factors(model)
    assert fetched.tensors.keys() == expected.keys()
    assert all(torch.equal(fetched.tensors[name], tensor) for name, tensor in expected.items())
    assert fetch(publisher.endpoint)[1].keys() == set(policy.state_dict())
    assert fetch_adapter(publisher.endpoint, name="other").base is None
    with pytest.raises(layercast.InvalidArgument, match="'other', 'policy'"):
        fetch_adapter(publisher.endpoint)
    with pytest.raises(layercast.NotFound, match="'third'.*'other', 'policy'"):
        fetch_adapter(publisher.endpoint, name="third")


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


@pytest.fixture(scope="module")
def trainer(folder, tmp_path_factory):
    """(endpoints, whole factors) of a trainer of two ranks."""
    out = tmp_path_factory.mktemp("trainer")
    with socket.create_server(("127.0.0.1", 0)) as free:
        (out / "port").write_text(str(free.getsockname()[1]))
    case = pathlib.Path(__file__).with_name("adapters_case.py")
    ranks = [subprocess.Popen([sys.executable, case, out, folder, str(rank)]) for rank in range(2)]
    try:
        while not (out / "endpoints").exists():
            assert [rank.poll() for rank in ranks] == [None, None]
            time.sleep(0.02)
        yield json.loads((out / "endpoints").read_text()), torch.load(out / "adapter.pt")
    finally:
        (out / "done").touch()
        ended = [rank.wait(60) for rank in ranks]
    assert ended == [0, 0]


@pytest.mark.parametrize("lineage", ["ddp", "fsdp"])
def test_ranks_of_a_trainer_publish_what_they_hold(trainer, folder, policy, buffers, lineage):
    endpoints, tensors = trainer
    assert len(endpoints) == 2
    engines = [layercast.Receiver(folder, buffers=buffers(folder)) for _ in range(2)]
    for step, tp_size in ((1, 2), (2, 1)):  # a snapshot, and a stream, which begins when all ranks ask for it
        for tp_rank in range(tp_size):
            rank = {"tp_rank": tp_rank, "tp_size": tp_size}
            slot = slot_of(folder, **rank)
            with receiver_of(folder, [slot], **rank) as receiver:
                assert receiver.load(0, publishers=endpoints, lineage=lineage, step=step).version.step == step
            assert_holds(slot, expected_of(tensors, **rank))
        digest = engines[0].reload_weights(endpoints, lineage=lineage, step=step).served_digest
        assert digest == engines[1].reload_weights(policy.state_dict()).served_digest


@pytest.fixture(scope="module")
def engines(folder, tmp_path_factory):
    program = layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path_factory.mktemp("program"))
    running = []
    try:
        for tp in (1, 2):
            running.append(program.daemon("serve", "--model", folder, "--bind", "tcp://127.0.0.1:0", "--tp", tp,
                                          "--adapter-slots", 3, "--max-adapter-rank", MAX_RANK))
        yield running
    finally:
        for engine in running:
            engine.kill()


@torch.no_grad()
def logprob_of(model, prompt, tokens):
    logits = model(torch.tensor([[*prompt, *tokens[:-1]]])).logits[0, len(prompt) - 1 :].float()
    return logits.log_softmax(-1).gather(1, torch.tensor([tokens]).T).squeeze(1)


def test_engines_generate_with_an_adapter_as_peft_does(engines, policy, publisher):
    prompt = [3, 10, 4]
    models = [adapted(copy.deepcopy(policy).float(), seed) for seed in (1, 2)]
    with layercast.Controller([engine.endpoint for engine in engines]) as controller:
        versions = []
        for step, model in enumerate(models):
            published = publisher.publish_adapters({"policy": model}, step=step, lineage="served")
            outcomes = controller.load_adapter("mine", publisher=published, all_or_none=True)
            versions.append(outcomes[0].version)
            assert [outcome.ok for outcome in outcomes] == [True, True] and outcomes[0].version == outcomes[1].version
            assert outcomes[0].previous == (versions[0] if step else None)
            for engine in range(2):
                (alone,) = controller.generate([prompt], engine=engine, max_new=5)
                (sequence,) = controller.generate([prompt], engine=engine, max_new=5, adapter="mine")
                assert alone.spans[0].adapter is None and sequence.spans[0].adapter == versions[-1]
                start, end, base = sequence.spans[0]
                assert (start, end, base) == (0, 5, alone.spans[0][2])
                assert pickle.loads(pickle.dumps(sequence.spans[0])).adapter == versions[-1]
                expected = logprob_of(model, prompt, sequence.tokens)
                assert torch.tensor(sequence.logprobs).sub(expected).abs().max() < 0.05
        assert versions[0] != versions[1]
        (listed,) = controller.list_adapters()["adapters"]
        assert listed["name"] == "mine"
        controller.pin_adapter("mine")
        assert controller.list_adapters(1)["adapters"][0]["pinned"]
        controller.pin_adapter("mine", False)
        controller.unload_adapter("mine")
        with pytest.raises(layercast.NotFound, match="mine"):
            controller.generate([prompt], adapter="mine")
        with pytest.raises(layercast.NotFound, match="mine"):
            controller.unload_adapter("mine")
        failed = controller.load_adapter("mine", path="/no/such/folder", check=False)
        assert [type(outcome.error) for outcome in failed] == [layercast.NotFound] * 2


def test_a_load_says_where_the_adapter_comes_from(engines, folder):
    with layercast.Controller(engines[0].endpoint) as controller, receiver_of(folder, [slot_of(folder)]) as receiver:
        for given in ({}, {"path": "x", "publisher": "tcp://127.0.0.1:1"}):
            with pytest.raises(layercast.InvalidArgument, match="expected a folder"):
                controller.load_adapter("mine", **given)
        for given in ({}, {"path": "x", "publishers": "tcp://127.0.0.1:1"}):
            with pytest.raises(layercast.InvalidArgument, match="expected a folder"):
                receiver.load(0, **given)


def test_a_reload_brings_the_adapters_of_its_version(engines, policies, publisher):
    model = adapted(policies(9))
    published = publisher.publish_adapters({"mine": model}, base=model, step=1, lineage="together")
    with layercast.Controller([engine.endpoint for engine in engines]) as controller:
        controller.reload(published, adapters=["*"], all_or_none=True)
        for engine in range(2):
            (sequence,) = controller.generate([[3, 10, 4]], engine=engine, max_new=3, adapter="mine")
            assert sequence.spans[0][2] == published.version and sequence.spans[0].adapter is not None
            expected = logprob_of(model, [3, 10, 4], sequence.tokens)
            assert torch.tensor(sequence.logprobs).sub(expected).abs().max() < 0.05
        controller.unload_adapter("mine")
