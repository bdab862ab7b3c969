"""prime-rl's filesystem broadcast, by its contract: engines take the folder once it is whole."""

import argparse

import contracts
import layercast
import layercast.prime_rl
import pytest
import serving
import torch

FILES = argparse.Namespace(type="filesystem")


@pytest.fixture
def weights(monkeypatch):
    return contracts.prime_rl(monkeypatch)


def test_engines_serve_each_steps_folder_and_prime_rl_gets_its_own(weights, serve, rank, tmp_path, monkeypatch):
    engines = [serve()[0], serve()[0]]
    monkeypatch.setenv("LAYERCAST_ENGINES", ",".join(engines))
    layercast.prime_rl.install()
    made = weights.setup_weight_broadcast(tmp_path, FILES, None, None)
    module = serving.save_policy(tmp_path / "unused", seed=9)
    for step in (3, 7):
        with torch.no_grad():
            module.lm_head.weight.mul_(1.5)
        metrics = made.broadcast_weights(module, step=step)
        folder = tmp_path / "broadcasts" / f"step_{step}"
        assert metrics["layercast/version"] == step and (folder / "STABLE").exists()
        assert len(list(folder.glob("*.safetensors"))) > 1
        for engine in engines:
            assert layercast.verify(engine, folder).equal
    made.layercast.close()


def test_an_engine_that_dies_raises_in_the_trainer_and_the_others_keep_the_older_step(weights, serve, rank, tmp_path):
    (living, _), (dying, process) = serve(), serve()
    layercast.prime_rl.install([living, dying], timeout=20)
    made = weights.setup_weight_broadcast(tmp_path, FILES, None)
    module = serving.save_policy(tmp_path / "unused", seed=9)
    made.broadcast_weights(module, 1)
    process.kill()
    process.wait()
    with torch.no_grad():
        module.lm_head.weight.mul_(1.5)
    with pytest.raises(layercast.Error, match=dying):
        made.broadcast_weights(module, 2)
    assert layercast.verify(living, tmp_path / "broadcasts" / "step_1").equal
    made.layercast.close()


@pytest.mark.parametrize("kind", ["nccl", "nixl"])
def test_prime_rls_other_broadcasts_are_refused_by_name(weights, tmp_path, kind):
    layercast.prime_rl.install(["tcp://127.0.0.1:9"])
    with pytest.raises(layercast.InvalidArgument, match=f"expected 'filesystem', got '{kind}'"):
        weights.setup_weight_broadcast(tmp_path, argparse.Namespace(type=kind), None)


def test_adapters_are_refused_by_name(weights, tmp_path):
    layercast.prime_rl.install(["tcp://127.0.0.1:9"])
    with pytest.raises(layercast.Unsupported, match="lora"):
        weights.setup_weight_broadcast(tmp_path, FILES, None, argparse.Namespace(rank=8))


def test_without_engines_it_is_said_where_they_are_to_be_named(weights, monkeypatch):
    monkeypatch.delenv("LAYERCAST_ENGINES", raising=False)
    with pytest.raises(layercast.InvalidArgument, match="LAYERCAST_ENGINES"):
        layercast.prime_rl.install()
