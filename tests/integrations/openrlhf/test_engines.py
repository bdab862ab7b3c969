"""OpenRLHF's own vLLM engines, in its actors of Ray: what they serve after its trainer's broadcast is the policy's folder."""

import layercast
import layercast.openrlhf
import pytest
import ray
import serving
import torch
from layercast.vllm.sync import Engine


@pytest.fixture
def engines(folder, actors, tmp_path_factory, monkeypatch):
    """Two, as OpenRLHF creates them. Ray takes the word that there are GPUs; vLLM runs on the CPU."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    layercast.openrlhf.install()
    ray.init("local", num_cpus=8, num_gpus=2, include_dashboard=False, object_store_memory=200 << 20)
    yield actors[1].create_vllm_engines(2, 1, str(folder), 1, False, True, True, 64, gpu_memory_utilization=0.5)
    ray.shutdown()


def differences(actor, folder):
    """Between the bytes that an engine serves and a cold load."""
    (rank,) = Engine(lambda op, arguments: ray.get(actor.layercast.remote(op, arguments))).verify(model=str(folder))
    return rank["differences"]


def test_openrlhfs_engines_serve_the_policy_all_or_none(folder, engines, trainer_of, tmp_path):
    layercast.openrlhf.patch_trainer()
    module = serving.save_policy(tmp_path / "trained", seed=4)
    trainer = trainer_of(module, engines)
    metrics = trainer.broadcast_to_vllm()
    assert metrics["layercast/version"] == 1 and metrics["layercast/bytes"] > 0 and metrics["layercast/commit_s"] > 0
    for actor in engines:
        assert differences(actor, tmp_path / "trained") == [] != differences(actor, folder)

    with torch.no_grad():
        module.lm_head.weight.mul_(2)
    ray.kill(engines[1])
    with pytest.raises(layercast.Error, match="an engine's actor"):
        trainer.broadcast_to_vllm()
    assert differences(engines[0], tmp_path / "trained") == []
