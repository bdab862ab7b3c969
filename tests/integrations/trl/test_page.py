"""The blocks of docs/trainers.md run as they are printed, but for endpoints, and for what a CPU needs."""

import pathlib
import re

import cpu_attention
import layercast
import test_async_grpo
import toy

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "trainers.md"


def block_of(section):
    (found,) = re.findall(rf"^## {section}\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return found


def names():
    from datasets import Dataset

    prompts = Dataset.from_list(toy.prompts(40))
    return {"layercast": layercast, "prompts": prompts, "reward": toy.reward, "tokenizer": toy.tokenizer()}


def test_the_block_of_async_grpo(serve, folder, tmp_path, monkeypatch):
    from trl.experimental.async_grpo import AsyncGRPOTrainer

    cpu_attention.install(monkeypatch)
    monkeypatch.chdir(folder.parent)
    block = block_of("TRL: AsyncGRPOTrainer")
    for port in ("7800", "7801"):
        block = block.replace(f"tcp://127.0.0.1:{port}", serve()[0])
    space = {**names(), "args": test_async_grpo.config(tmp_path), "AsyncGRPOTrainer": AsyncGRPOTrainer}
    exec(block, space)
    assert space["trainer"].state.global_step == 4 and space["transfer"].metrics["layercast/version"] == 5


def test_the_block_of_grpo(serve, tmp_path, monkeypatch):
    from trl import GRPOConfig, GRPOTrainer

    monkeypatch.chdir(tmp_path)
    on_a_cpu = "use_cpu=True, bf16=False, max_steps=2, max_completion_length=3, report_to=[], use_vllm=True"
    block = block_of("TRL: GRPOTrainer").replace("tcp://127.0.0.1:7800", serve()[0])
    block = block.replace("use_vllm=True", on_a_cpu)
    space = {**names(), "policy": toy.policy(), "GRPOConfig": GRPOConfig, "GRPOTrainer": GRPOTrainer}
    exec(block, space)
    assert space["engines"].metrics["layercast/version"] == space["trainer"].state.global_step == 2
