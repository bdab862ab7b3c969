"""ActorPPOTrainer of OpenRLHF's wheel, on a CPU: what engines in FP8 serve after its broadcast is the folder that it would save."""

import subprocess
import sys

import layercast
import layercast.openrlhf
import pytest
import serving
import torch
from layercast.program import answer_of


def test_the_trainers_broadcast_is_a_version_that_engines_serve(serve, trainer_of, tmp_path):
    engines = [serve()[0], serve()[0]]
    layercast.openrlhf.patch_trainer(engines)
    module = serving.save_policy(tmp_path / "trained", seed=4)
    trainer = trainer_of(module)
    trainer._init_vllm_sync_group("nccl")  # its constructor calls it: no group of NCCL's is made
    assert trainer.layercast_metrics() == {}
    metrics = trainer.broadcast_to_vllm()
    assert metrics == trainer.layercast_metrics() and metrics["layercast/version"] == 1
    assert all(isinstance(value, float) for value in metrics.values())
    for engine in engines:
        assert layercast.verify(engine, tmp_path / "trained").equal
    trainer._layercast.close()


def test_adapters_are_merged_into_what_engines_serve(serve, trainer_of, tmp_path):
    from peft import LoraConfig, get_peft_model

    engine, _ = serve()
    layercast.openrlhf.patch_trainer([engine])
    config = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    module = get_peft_model(serving.save_policy(tmp_path / "unused", seed=4), config)
    trainer = trainer_of(module)
    trainer.broadcast_to_vllm()
    module.merge_and_unload().save_pretrained(tmp_path / "merged")
    assert layercast.verify(engine, tmp_path / "merged").equal
    trainer._layercast.close()


def test_where_one_engine_is_dead_the_trainer_raises_and_the_other_keeps_its_version(serve, trainer_of, tmp_path):
    (living, _), (dying, process) = serve(), serve()
    layercast.openrlhf.patch_trainer([living, dying], timeout=20)
    module = serving.save_policy(tmp_path / "trained", seed=4)
    trainer = trainer_of(module)
    trainer.broadcast_to_vllm()
    process.kill()
    process.wait()
    with torch.no_grad():
        module.lm_head.weight.mul_(2)
    with pytest.raises(layercast.Error, match=dying):
        trainer.broadcast_to_vllm()
    assert answer_of("status", "--engine", living)["version"]["step"] == 1
    assert layercast.verify(living, tmp_path / "trained").equal
    trainer._layercast.close()


def test_under_zero_3_deepspeed_gathers_each_parameter_and_rank_0_publishes_it(serve, trainer_of, tmp_path, monkeypatch):
    import deepspeed

    entered = []

    class Gathered:
        """Of DeepSpeed's, what broadcast asks: whole parameters within the with. These are whole already."""

        def __init__(self, parameters, enabled):
            assert enabled
            entered.extend(parameters)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(deepspeed.zero, "GatheredParameters", Gathered)
    engine, _ = serve()
    layercast.openrlhf.patch_trainer([engine])
    module = serving.save_policy(tmp_path / "trained", seed=4)
    trainer = trainer_of(module, zero_stage=3)
    trainer.broadcast_to_vllm()
    assert [*map(id, entered)] == [*map(id, module.parameters())]
    assert layercast.verify(engine, tmp_path / "trained").equal
    trainer._layercast.close()


def test_install_puts_derived_actors_where_openrlhf_looks_for_its_own(actors):
    ppo_actor, vllm_engine = actors
    theirs = ppo_actor.PolicyModelActor, vllm_engine.RolloutRayActor
    layercast.openrlhf.install(["tcp://127.0.0.1:9"])
    assert vllm_engine.RolloutRayActor is theirs[1]  # engines that are named take its place
    layercast.openrlhf.install()
    for actor, their in zip((ppo_actor.PolicyModelActor, vllm_engine.RolloutRayActor), theirs, strict=True):
        assert issubclass(actor.__ray_metadata__.modified_class, their.__ray_metadata__.modified_class)
    assert hasattr(vllm_engine.RolloutRayActor.__ray_metadata__.modified_class, "layercast")


def test_the_module_runs_openrlhfs_own_command_line_with_the_derived_actors():
    program = """if True:
        import runpy, sys
        from openrlhf.trainer.ray import ppo_actor
        theirs = ppo_actor.PolicyModelActor
        sys.argv = ["layercast.openrlhf", "--help"]
        try:
            runpy.run_module("layercast.openrlhf", run_name="__main__")
        except SystemExit as ended:
            assert ended.code == 0 and ppo_actor.PolicyModelActor is not theirs
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0 and "--vllm.num_engines" in ran.stdout, ran.stderr[-2000:]
