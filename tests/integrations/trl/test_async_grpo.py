"""AsyncGRPOTrainer of TRL's wheel, on a CPU: weights go to engines that serve FP8, and samples come from them."""

import threading

import cpu_attention
import layercast
import pytest
import toy
from layercast.program import answer_of


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    cpu_attention.install(monkeypatch)


def config(tmp_path, **options):
    from trl.experimental.async_grpo import AsyncGRPOConfig

    args = {"use_cpu": True, "bf16": False, "per_device_train_batch_size": 40, "gradient_accumulation_steps": 2,
            "num_generations": 8, "max_steps": 4, "max_completion_length": toy.LENGTH, "learning_rate": 5e-3,
            "report_to": [], "logging_steps": 1, "save_strategy": "no", "lr_scheduler_type": "constant",
            "token_budget": 0, "queue_maxsize": 160, "heartbeat_stale_after_s": 60, "max_staleness": 4,
            "disable_tqdm": True, "log_level": "error"}
    return AsyncGRPOConfig(str(tmp_path / "out"), **args | options)


class Noted(layercast.trl.Rollouts):
    """Keeps each sample that it makes."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.samples = []

    def _put(self, sample):
        self.samples.append(sample)
        return super()._put(sample)


def trainer_with(folder, args, transfer, rollouts):
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl.experimental.async_grpo import AsyncGRPOTrainer

    trainer = AsyncGRPOTrainer(str(folder), args=args, train_dataset=Dataset.from_list(toy.prompts(10)),
                               processing_class=toy.tokenizer(), weight_transfer=transfer, rollout_worker=rollouts)
    trainer.remove_callback(PrinterCallback)
    return trainer


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def test_the_trainer_learns_the_task_and_each_sample_has_its_version(serve, folder, tmp_path):
    args = config(tmp_path, max_steps=60)
    endpoint, _ = serve()
    transfer = layercast.trl.Transfer(endpoint)
    rollouts = Noted(transfer, toy.prompts(10), toy.reward, toy.tokenizer(), args, prompts_per_call=10)
    trainer = trainer_with(folder, args, transfer, rollouts)
    trainer.train()
    rewards = logged(trainer, "reward")
    assert sum(rewards[:3]) / 3 < 0.3 and sum(rewards[-5:]) / 5 > 0.8
    assert all(0.7 < ratio < 1.4 for ratio in logged(trainer, "ratio"))
    versions = [sample.model_version for sample in rollouts.samples]
    assert versions == sorted(versions) and versions[0] == 1 and len(set(versions)) > 20
    assert all(sample.metrics["layercast/sampled_version"] == sample.model_version for sample in rollouts.samples)
    assert not [thread for thread in threading.enumerate() if thread.name == "layercast-rollouts"]
    trainer.model.save_pretrained(tmp_path / "trained")
    assert layercast.verify(endpoint, tmp_path / "trained").equal


def test_the_trainer_logs_what_its_syncs_cost(serve, folder, tmp_path):
    args = config(tmp_path)
    transfer = layercast.trl.Transfer([serve()[0], serve("--tp", "2")[0]])
    trainer = trainer_with(folder, args, transfer, layercast.trl.Rollouts(transfer, toy.prompts(10), toy.reward,
                                                                         toy.tokenizer(), args))
    trainer.train()
    assert logged(trainer, "layercast/version")[-1] == 1 + args.max_steps
    for name in ("publish_s", "reload_s", "commit_s", "bytes", "generated_tok_s"):
        assert all(value > 0 for value in logged(trainer, f"layercast/{name}")), name


def test_of_two_ranks_the_first_publishes_for_both(serve, folder, torchrun, tmp_path):
    endpoint, _ = serve()
    ranks = torchrun("async_ranks_case.py", endpoint, folder, tmp_path)
    assert [rank["versions"] for rank in ranks] == [[1, 2, 3, 4], []]
    assert ranks[0]["logged"][-1] == 5
    assert answer_of("status", "--engine", endpoint)["version"]["step"] == 5


def test_a_paused_transfer_leaves_its_engine_answering(serve, folder):
    endpoint, _ = serve()
    with layercast.trl.Transfer(endpoint) as transfer, layercast.Controller(endpoint) as engine:
        transfer.init_weight_transfer()
        for step in (1, 2):
            transfer.pause()
            (answer,) = engine.generate([[4, 10]], max_new=3)
            transfer.send_weights(iter(toy.policy(step).state_dict().items()))
            (next_answer,) = engine.generate([[4, 10]], max_new=3)
            transfer.resume()
            assert answer.spans[0][2].step == step - 1 and next_answer.spans[0][2].step == step


def test_a_reload_that_fails_raises_where_the_trainer_syncs_and_all_engines_keep_their_version(
        serve, folder, tmp_path, monkeypatch):
    args = config(tmp_path)
    sound = serve()[0]
    monkeypatch.setenv("LAYERCAST_FAILPOINTS", "rank0:commit.prepare=throw@1")
    failing = serve()[0]
    transfer = layercast.trl.Transfer([sound, failing])
    trainer = trainer_with(folder, args, transfer, layercast.trl.Rollouts(transfer, toy.prompts(10), toy.reward,
                                                                         toy.tokenizer(), args))
    with pytest.raises(layercast.Error, match="commit.prepare") as raised:
        trainer.train()
    assert "send_weights" in [entry.name for entry in raised.traceback]
    assert [answer_of("status", "--engine", engine)["version"]["step"] for engine in (sound, failing)] == [1, 1]


def test_an_engine_that_dies_ends_the_run_and_is_named(serve, folder, tmp_path):
    args = config(tmp_path)
    (living, _), (dying, process) = serve(), serve()

    def reward(completion_ids, digit, **columns):
        process.kill()
        process.wait()
        return toy.reward(completion_ids, digit)

    transfer = layercast.trl.Transfer([living, dying], timeout=10)
    rollouts = layercast.trl.Rollouts(transfer, toy.prompts(10), reward, toy.tokenizer(), args)
    with pytest.raises(layercast.Error, match=dying):
        trainer_with(folder, args, transfer, rollouts).train()


def test_a_reward_function_that_raises_ends_the_run(serve, folder, tmp_path):
    def reward(**columns):
        raise ZeroDivisionError("of the reward")

    args = config(tmp_path)
    transfer = layercast.trl.Transfer(serve()[0])
    rollouts = layercast.trl.Rollouts(transfer, toy.prompts(10), reward, toy.tokenizer(), args)
    with pytest.raises(ZeroDivisionError, match="of the reward"):
        trainer_with(folder, args, transfer, rollouts).train()


def test_an_engine_that_is_not_there_is_named_before_the_first_step(folder, tmp_path):
    args = config(tmp_path)
    transfer = layercast.trl.Transfer("tcp://127.0.0.1:9")
    rollouts = layercast.trl.Rollouts(transfer, toy.prompts(10), toy.reward, toy.tokenizer(), args)
    with pytest.raises(layercast.Unavailable, match="127.0.0.1:9"):
        trainer_with(folder, args, transfer, rollouts).train()


def test_sampling_of_which_engines_tell_no_log_probabilities_is_refused(tmp_path):
    args = config(tmp_path, temperature=0.7)
    with layercast.trl.Transfer("tcp://127.0.0.1:9") as transfer:
        with pytest.raises(layercast.InvalidArgument, match="temperature: expected 1.0.*got 0.7"):
            layercast.trl.Rollouts(transfer, toy.prompts(1), toy.reward, toy.tokenizer(), args)


def test_conversations_are_rendered_by_the_tokenizers_template(serve, folder, tmp_path):
    tokenizer = toy.tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    talk = [{"prompt": [{"role": "user", "content": row["prompt"]}], "digit": row["digit"]} for row in toy.prompts(10)]
    args = config(tmp_path, max_steps=1)
    transfer = layercast.trl.Transfer(serve()[0])
    rollouts = Noted(transfer, talk, toy.reward, tokenizer, args)
    trainer_with(folder, args, transfer, rollouts).train()
    for number, sample in enumerate(rollouts.samples[:80]):
        digit = number // args.num_generations
        assert sample.input_ids[:2].tolist() == [digit, 10] and sample.completion_mask.tolist()[:3] == [0, 0, 1]
        assert sample.completion[0]["role"] == "assistant" and sample.group_id == digit


def test_a_dataset_without_rows_is_refused(serve, folder, tmp_path):
    args = config(tmp_path)
    transfer = layercast.trl.Transfer(serve()[0])
    rollouts = layercast.trl.Rollouts(transfer, [], toy.reward, toy.tokenizer(), args)
    with pytest.raises(layercast.InvalidArgument, match="dataset: expected rows with a prompt"):
        trainer_with(folder, args, transfer, rollouts).train()
