"""slime's and miles' two seams, by their contract: Megatron-core's modules, whose parts engines take, and a folder."""

import argparse
import sys

import contracts
import layercast
import layercast.slime
import pytest
import serving
import torch


@pytest.fixture
def megatron_model(rank, tmp_path):
    """(Megatron-core's model with the weights of a folder, the folder)."""
    import core_model

    serving.save_policy(tmp_path / "trained", seed=5)
    yield core_model.model_of(tmp_path / "trained", 1, 1, 1, torch.bfloat16), tmp_path / "trained"
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()


def updater_of(trainer, engines, model, folder, monkeypatch):
    """As the trainer's actor makes it, after its --custom-megatron-init-path was called."""
    (actor,) = contracts.modules(monkeypatch, f"{trainer}.backends.megatron_utils.actor")
    actor.UpdateWeightFromDistributed = None
    args = argparse.Namespace(hf_checkpoint=str(folder))
    engines.init(args)
    given = {"weights_getter": dict, "model_name": "qwen3", "quantization_config": None, "is_lora": False}
    return actor.UpdateWeightFromDistributed(args, [model], **{name: given[name] for name in contracts.UPDATER_KEYWORDS[trainer]})


@pytest.mark.parametrize("trainer", ["slime", "miles"])
def test_the_actors_updater_publishes_what_megatrons_modules_hold(trainer, serve, megatron_model, monkeypatch):
    model, folder = megatron_model
    endpoint = serve()[0]
    engines = layercast.slime.Engines([endpoint])
    updater = updater_of(trainer, engines, model, folder, monkeypatch)
    for method in contracts.UPDATER_METHODS[trainer]:
        assert callable(getattr(updater, method))
    updater.weight_version = 4  # the actor sets where a run goes on
    assert not updater.is_rollout_engines_fresh()
    updater.connect_rollout_engines([], None, **dict.fromkeys(contracts.CONNECT_KEYWORDS[trainer]))
    assert updater.is_rollout_engines_fresh()
    updater.update_weights()
    metrics = updater.pop_metrics()
    assert metrics["layercast/version"] == updater.weight_version == 5 and updater.pop_metrics() == {}
    assert layercast.verify(endpoint, folder).equal
    with torch.no_grad():
        model.decoder.layers[0].mlp.linear_fc2.weight[0, 0] = float("nan")
    with pytest.raises(layercast.Corrupt, match="layers.0.mlp.down_proj"):
        updater.update_weights()
    assert layercast.verify(endpoint, folder).equal
    engines.broadcast.close()


def test_lora_is_refused_by_name(monkeypatch):
    engines = layercast.slime.Engines(["tcp://127.0.0.1:9"])
    with pytest.raises(layercast.Unsupported, match="LoRA"):
        engines.updater(None, [], dict, model_name="qwen3", quantization_config=None, is_lora=True)


def test_a_folder_that_the_trainer_has_written_is_taken_by_all_engines_or_none(serve, rank, tmp_path):
    (one, _), (two, process) = serve(), serve()
    engines = layercast.slime.Engines([one, two], timeout=20)
    args = argparse.Namespace(update_weight_disk_dir=str(tmp_path))
    serving.save_policy(tmp_path / "weight_v000001", seed=6)
    metrics = engines.post_write(args, str(tmp_path / "weight_v000001"), [])
    assert metrics["layercast/version"] == 1 and metrics["layercast/bytes"] > 0
    for endpoint in (one, two):
        assert layercast.verify(endpoint, tmp_path / "weight_v000001").equal
    process.kill()
    process.wait()
    serving.save_policy(tmp_path / "weight_v000002", seed=7)
    with pytest.raises(layercast.Error, match=two):
        engines.post_write(args, str(tmp_path / "weight_v000002"), [])
    assert layercast.verify(one, tmp_path / "weight_v000001").equal
    engines.broadcast.close()


def test_without_slime_in_the_process_nothing_is_imported():
    layercast.slime.Engines(["tcp://127.0.0.1:9"]).init(argparse.Namespace())
    assert not {"slime", "miles"} & set(sys.modules)
