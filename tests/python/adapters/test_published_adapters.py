"""Versions that hold adapters of PEFT's models, alone or with their base, of one trainer or of its ranks."""

import json
import pathlib
import socket
import subprocess
import sys
import time

import layercast
import peft
import pytest
import torch
from layercast.offered import fetch, find_adapter, offered
from peft_models import adapted, assert_holds, expected_of, factors, receiver_of, retrained, slot_of


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
    fetched = find_adapter(publisher.endpoint, name="policy").fetch()
    assert (fetched.version, fetched.name, fetched.base) == (published.version, "policy", trained_on)
    assert (fetched.config["r"], fetched.config["lora_alpha"], fetched.config["use_rslora"]) == (4, 6, True)
    expected = factors(model)
    assert fetched.tensors.keys() == expected.keys()
    assert all(torch.equal(fetched.tensors[name], tensor) for name, tensor in expected.items())
    assert fetch(publisher.endpoint)[1].keys() == set(policy.state_dict())
    assert find_adapter(publisher.endpoint, name="other").base is None
    with pytest.raises(layercast.InvalidArgument, match="'other', 'policy'"):
        find_adapter(publisher.endpoint)
    with pytest.raises(layercast.NotFound, match="'third'.*'other', 'policy'"):
        find_adapter(publisher.endpoint, name="third")


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
