"""A trainer whose ranks publish what they hold: verl's FSDP2 engine hands over its module, and nothing is gathered."""

import layercast
import pytest
import safetensors.torch
import test_whole
import torch

RUN = {"rollouts": 1, "shards": True}


def test_engines_put_the_ranks_shards_together(run, serve, tmp_path):
    engine, _ = serve()
    run.options(engines=[engine], dtype="bfloat16")
    for step in (1, 2):
        run.trainer.learn(step)
        assert run.manager.update_weights(global_steps=step)["layercast/version"] == step
    folder = run.saved(tmp_path)
    assert layercast.verify(engine, folder)
    whole = sum(2 * tensor.numel() for tensor in safetensors.torch.load_file(folder / "model.safetensors").values())
    for steps, size in run.trainer.published():
        assert steps == [1, 2] and 0.4 * whole < size < 0.6 * whole


def test_rollout_workers_are_given_whole_tensors(run, tmp_path):
    run.options(dtype="bfloat16")
    run.trainer.learn(10)
    run.manager.update_weights(global_steps=10)
    (taken,) = run.rollouts.taken()
    assert test_whole.holds(taken, run.saved(tmp_path)) and {tensor.dtype for tensor in taken[2].values()} == {torch.bfloat16}


def test_what_one_rank_cannot_publish_raises_on_all_and_the_next_sync_works(run, tmp_path):
    run.trainer.spoil("model.layers.1.input_layernorm.weight")
    with pytest.raises(layercast.Corrupt, match="model.layers.1.input_layernorm.weight"):
        run.manager.update_weights(global_steps=20)
    run.trainer.learn(21)
    run.manager.update_weights(global_steps=21)
    (taken,) = run.rollouts.taken()
    assert test_whole.holds(taken, run.saved(tmp_path))
