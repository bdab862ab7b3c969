"""A trainer that gathers its tensors, as verl's engines do: rollout workers get them, or engines take them."""

import layercast
import pytest
import safetensors.torch
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

RUN = {"rollouts": 2}


def holds(taken, folder):
    """Whether a rollout worker was given the folder's tensors, each once."""
    _, names, tensors = taken
    saved = safetensors.torch.load_file(folder / "model.safetensors")
    assert len(names) == len(set(names)) and set(names) == set(saved)
    for name, tensor in saved.items():
        assert torch.equal(tensors[name].to(tensor.dtype).view(torch.uint8), tensor.view(torch.uint8)), name
    return True


def test_verl_finds_the_engine_and_it_has_all_that_verl_asks_for(run):
    ours = CheckpointEngineRegistry.get("layercast")
    assert ours is layercast.verl.CheckpointEngine
    for name in CheckpointEngine.__abstractmethods__ | {"wire_format"}:
        assert hasattr(ours, name), name


def test_rollout_workers_are_given_what_the_trainer_would_save(run, tmp_path):
    for step in (1, 4):
        run.trainer.learn(step)
        metrics = run.manager.update_weights(global_steps=step)
        assert set(metrics) == {"layercast/version", "layercast/publish_s"} and metrics["layercast/version"] == step
        folder = run.saved(tmp_path / str(step))
        for taken in run.rollouts.taken():
            assert taken[0] == step and holds(taken, folder)


def test_tensors_come_in_buckets_and_in_the_dtype_that_is_asked_for(run, tmp_path):
    run.trainer.engine_options(dtype="bfloat16")
    run.rollouts.engine_options(bucket_size=20_000)
    run.trainer.learn(5)
    run.manager.update_weights(global_steps=5)
    folder = run.saved(tmp_path)
    for taken in run.rollouts.taken():
        assert holds(taken, folder) and {tensor.dtype for tensor in taken[2].values()} == {torch.bfloat16}


def test_a_step_that_verl_says_twice_or_not_at_all_is_a_version_all_the_same(run):
    steps = []
    for said in (7, 7, None, 3, 20):
        steps.append(run.manager.update_weights(global_steps=said)["layercast/version"])
    assert steps == [7, 8, 9, 10, 20]


def test_only_the_trainers_first_rank_publishes(run):
    run.trainer.learn(30)
    run.manager.update_weights(global_steps=30)
    (steps, size), others = run.trainer.published()
    assert steps[-1] == 30 and size > 0 and others == ([], 0)


def test_a_tensor_that_may_not_be_published_is_named_and_the_next_sync_works(run, tmp_path):
    run.trainer.spoil("model.norm.weight")
    with pytest.raises(layercast.Corrupt, match="model.norm.weight"):
        run.manager.update_weights(global_steps=40)
    run.trainer.learn(41)
    run.manager.update_weights(global_steps=41)
    assert all(holds(taken, run.saved(tmp_path)) for taken in run.rollouts.taken())


def test_all_engines_take_a_version_and_rollout_workers_nothing(run, serve, tmp_path):
    engines = [serve()[0], serve()[0]]
    run.options(engines=engines)
    run.trainer.learn(50)
    metrics = run.manager.update_weights(global_steps=50)
    assert metrics["layercast/version"] == 50 and metrics["layercast/engines"] == 2
    assert metrics["layercast/bytes"] > 0 and metrics["layercast/reload_s"] > metrics["layercast/commit_s"] > 0
    assert all(isinstance(value, float) for value in metrics.values())
    folder = run.saved(tmp_path)
    for engine in engines:
        assert layercast.Controller(engine).status()["version"]["step"] == 50 and layercast.verify(engine, folder)
    assert [(taken[0], taken[1]) for taken in run.rollouts.taken()] == [(50, [])] * 2


def test_an_engine_that_fails_is_raised_to_verl_and_no_other_one_commits(run, serve, tmp_path):
    (staying, _), (dying, process) = serve(), serve()
    run.options(engines=[staying, dying])
    run.trainer.learn(60)
    run.manager.update_weights(global_steps=60)
    folder = run.saved(tmp_path)
    process.kill()
    process.wait()
    run.trainer.learn(61)
    with pytest.raises(layercast.Unavailable, match=dying):
        run.manager.update_weights(global_steps=61)
    assert layercast.Controller(staying).status()["version"]["step"] == 60 and layercast.verify(staying, folder)
    run.options(engines=[staying])
    assert run.manager.update_weights(global_steps=61)["layercast/version"] == 61
