"""GRPOTrainer of TRL's wheel, on a CPU, with rollouts of engines that serve FP8."""

import layercast
import pytest
import torch
import toy
from layercast.program import answer_of

STEPS = 60


def trainer_with(tmp_path, rewards=toy.reward, rollout_func=None, peft_config=None, **options):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    args = {"use_cpu": True, "bf16": False, "per_device_train_batch_size": 80, "num_generations": 8, "max_steps": 3,
            "max_completion_length": toy.LENGTH, "learning_rate": 5e-3, "report_to": [], "logging_steps": 1,
            "save_strategy": "no", "use_vllm": True, "vllm_mode": "server", "lr_scheduler_type": "constant",
            "beta": 0.0, "log_level": "error", "disable_tqdm": True}
    trainer = GRPOTrainer(toy.policy(), rewards, args=GRPOConfig(str(tmp_path / "out"), **args | options),
                          train_dataset=Dataset.from_list(toy.prompts(200)), processing_class=toy.tokenizer(),
                          rollout_func=rollout_func, peft_config=peft_config)
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    return trainer


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def mean(values):
    return sum(values) / len(values)


def test_the_trainer_learns_the_task_from_an_engine_in_fp8(serve, tmp_path):
    endpoint, _ = serve()
    with layercast.trl.generation(endpoint) as engines:
        trainer = trainer_with(tmp_path, max_steps=STEPS)
        trainer.train()
        engines.sync_weights()
        trainer.model.save_pretrained(tmp_path / "trained")
        assert layercast.verify(endpoint, tmp_path / "trained").equal
    rewards = logged(trainer, "reward")
    assert mean(rewards[:3]) < 0.3 and mean(rewards[-5:]) > 0.7
    assert len(logged(trainer, "sampling/sampling_logp_difference/mean")) == STEPS
    ratios = logged(trainer, "sampling/importance_sampling_ratio/mean")
    assert len(ratios) == STEPS and all(0.9 < ratio < 1.1 for ratio in ratios)


def test_without_syncs_the_trainers_own_metrics_say_that_the_engine_is_behind(serve, tmp_path):
    endpoint, _ = serve()
    with layercast.trl.generation(endpoint) as engines:
        trainer = trainer_with(tmp_path, max_steps=STEPS)
        engines.sync_weights = lambda: None
        trainer.train()
    assert mean(logged(trainer, "reward")[-5:]) < 0.3
    assert logged(trainer, "sampling/sampling_logp_difference/mean")[-1] > 0.3


@pytest.mark.parametrize("use_vllm", [True, False])
def test_rewards_see_each_samples_version_and_the_trainer_logs_what_syncs_cost(serve, tmp_path, use_vllm):
    seen = []

    def reward(completion_ids, digit, version, **columns):
        seen.append(set(version))
        return toy.reward(completion_ids, digit)

    with layercast.trl.generation([serve()[0], serve("--tp", "2")[0]]) as engines:
        trainer = trainer_with(tmp_path, reward, engines.rollout_func, use_vllm=use_vllm)
        trainer.train()
    assert seen == [{1}, {2}, {3}]
    assert logged(trainer, "layercast/version") == [1, 2, 3]
    assert min(logged(trainer, "layercast/bytes")) > 100_000
    for name in ("publish_s", "reload_s", "commit_s", "generate_s"):
        assert all(seconds > 0 for seconds in logged(trainer, f"layercast/{name}")), name
    assert bool(logged(trainer, "sampling/importance_sampling_ratio/mean")) == use_vllm


def test_adapters_are_merged_into_what_engines_serve(serve, tmp_path):
    from peft import LoraConfig

    endpoint, _ = serve()
    adapters = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    with layercast.trl.generation(endpoint) as engines:
        trainer = trainer_with(tmp_path, peft_config=adapters)
        trainer.train()
        engines.sync_weights()
        trainer.model.merge_and_unload().save_pretrained(tmp_path / "merged")
        assert layercast.verify(endpoint, tmp_path / "merged").equal
    assert any(norm > 0 for norm in logged(trainer, "grad_norm"))


def test_an_engines_sample_depends_on_its_seed_and_not_on_how_many_engines_there_are(serve, tmp_path):
    engines = [serve()[0], serve()[0], serve()[0]]
    answers = []
    for some in (engines[:1], engines):
        with layercast.trl.generation(some, seed=3) as made:
            trainer = trainer_with(tmp_path)
            prompts = [[number % 10, 10] for number in range(7)]
            answers.append(made.generate(prompts, None, 1)[1:3])
            assert made.generate(prompts, None, 1)[1:3] != answers[-1]
            assert trainer.vllm_generation is made
    assert answers[0] == answers[1]


def test_a_policy_with_a_nan_is_refused_and_the_engine_serves_what_it_did(serve, tmp_path):
    endpoint, _ = serve()
    with layercast.trl.generation(endpoint):
        trainer = trainer_with(tmp_path, max_steps=1)
        trainer.train()
        with torch.no_grad():
            trainer.model.lm_head.weight[3, 5] = float("nan")
        with pytest.raises(layercast.Corrupt, match="lm_head.weight"):
            trainer.vllm_generation.sync_weights()
    assert answer_of("status", "--engine", endpoint)["version"]["step"] == 1


def test_an_engine_that_dies_in_the_run_is_named_in_what_the_trainer_raises(serve, tmp_path):
    (living, _), (dying, process) = serve(), serve()

    def reward(completion_ids, **columns):
        process.kill()
        process.wait()
        return toy.reward(completion_ids, **columns)

    with layercast.trl.generation([living, dying], timeout=10):
        trainer = trainer_with(tmp_path, reward)
        with pytest.raises(layercast.Error, match=dying):
            trainer.train()
    assert answer_of("status", "--engine", living)["version"]["step"] == 1


@pytest.mark.parametrize("options, message", [
    ({"vllm_mode": "colocate"}, "vllm_mode: expected 'server'"),
    ({"min_p": 0.1}, "min_p: expected none"),
    ({"repetition_penalty": 1.1}, "repetition_penalty: expected none"),
    ({"vllm_structured_outputs_regex": "[0-9]"}, "structured_outputs_regex: expected none"),
])
def test_what_engines_cannot_do_is_refused_by_name_before_the_first_step(serve, tmp_path, options, message):
    with layercast.trl.generation(serve()[0]), pytest.raises(layercast.InvalidArgument, match=message):
        trainer_with(tmp_path, **options)


def test_an_engine_that_is_not_there_is_named_before_the_first_step(tmp_path):
    with layercast.trl.generation("tcp://127.0.0.1:9"), pytest.raises(layercast.Unavailable, match="127.0.0.1:9"):
        trainer_with(tmp_path)


@pytest.mark.parametrize("temperature, warns", [(1.0, False), (0.7, True)])
def test_trl_warns_where_log_probabilities_are_not_of_what_was_sampled(serve, tmp_path, caplog, temperature, warns):
    with layercast.trl.generation(serve()[0]):
        trainer_with(tmp_path, temperature=temperature, log_level="warning")
    assert ("raw_logprobs" in caplog.text) == warns


def test_trls_own_class_is_back_after_the_with(serve):
    from trl.trainer import grpo_trainer

    theirs = grpo_trainer.VLLMGeneration
    with layercast.trl.generation(serve()[0]):
        assert grpo_trainer.VLLMGeneration is not theirs
    assert grpo_trainer.VLLMGeneration is theirs


def test_two_ranks_publish_together_and_a_failure_of_one_raises_on_both(serve, torchrun, tmp_path):
    ranks = torchrun("ranks_case.py", serve()[0], tmp_path)
    assert len(ranks) == 2 and ranks[0]["same"]
    for rank in ranks:
        assert rank["versions"] == [[1], [2], [3]]
        assert len(rank["ratios"]) == 3 and all(0.8 < ratio < 1.2 for ratio in rank["ratios"])
        assert "nan" in rank["raised"].lower()
