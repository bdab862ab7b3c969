"""Engines that serve adapters of PEFT's models, driven from Python."""

import copy
import os
import pickle

import layercast
import program as layercast_program
import pytest
import torch
from peft_models import MAX_RANK, adapted, receiver_of, slot_of


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
