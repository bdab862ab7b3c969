"""Adapters that a whole vLLM engine takes of a publisher: the bytes in its stacked tensors, and what is generated, are those
of its own add_lora from the same folder."""

import copy
import json
import pathlib
import subprocess
import sys
import threading

import layercast
import pytest
import torch
from conftest import child_environment

CASE = pathlib.Path(__file__).with_name("adapter_case.py")


@pytest.fixture(scope="module")
def adapters(policies, tmp_path_factory):
    """Folders whose scales are no powers of two and whose ranks differ by module."""
    from peft import LoraConfig, get_peft_model

    folders = []
    for seed in range(3, 8):
        torch.manual_seed(seed)
        config = LoraConfig(r=8, lora_alpha=11, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
                            rank_pattern={"v_proj": 3}, use_rslora=seed == 4, init_lora_weights=False)
        folders.append(tmp_path_factory.mktemp(f"adapter-{seed}"))
        get_peft_model(copy.deepcopy(policies("llama", 1)[0]), config).save_pretrained(folders[-1])
    return folders


@pytest.mark.parametrize("tp", [1, 2])
def test_an_adapter_of_a_publisher_is_what_vllm_loads_of_its_folder(policies, adapters, tp):
    arguments = [str(policies("llama", seed)[1]) for seed in (1, 2)] + [*map(str, adapters[:2]), str(tp)]
    ran = subprocess.run([sys.executable, str(CASE), *arguments], env=child_environment(VLLM_ALLOW_INSECURE_SERIALIZATION="1"),
                         capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    said = json.loads([line for line in ran.stdout.splitlines() if line.startswith("{")][-1])
    assert said["ours"] == said["theirs"] and said["ours"][0] != said["ours"][1] and None not in said["ours"][0]
    assert said["tokens"] == said["their_tokens"]
    assert len({json.dumps(tokens) for tokens in (said["base"], *said["tokens"])}) == 3  # no stale block of the prefix cache
    assert said["again"] == said["ours"][1]  # the scale is in B once
    assert said["on_other"] == said["on_other_theirs"] != said["tokens"][1]
    assert said["back"] == said["on_other_ours"] == said["ours"][1]
    assert said["held"] == [{}] * tp
    assert [code for code, _ in said["errors"]] == [
        "not_found", "invalid_argument", "not_found", "invalid_argument", "invalid_argument", "failed_precondition"]
    words = ("'other', 'policy'", "endpoint", "9", "16", "layers.7", "bases@0")
    for word, (_, message) in zip(words, said["errors"], strict=True):
        assert word in message


class Asking(threading.Thread):
    """A client that asks without a pause. What it got, and what went wrong."""

    def __init__(self, server, model):
        super().__init__()
        self.answers, self.wrong = set(), []
        self._server, self._model, self._ended = server, model, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()

    def run(self):
        while not self._ended.is_set():
            try:
                self.answers.add(tuple(ask(self._server, self._model)))
            except Exception as error:  # a lost or refused request is what is counted
                self.wrong.append(repr(error))


def ask(server, model):
    body = {"model": model, "token_ids": [1, 5, 7, 3] * 12}
    body["sampling_params"] = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "detokenize": False}
    answer = server.post("inference/v1/generate", body)
    if "choices" not in answer:
        raise LookupError(str(answer))
    return answer["choices"][0]["token_ids"]


UPSERTS = 50


def test_a_server_takes_versions_of_an_adapter_under_load(policies, adapters, serve):
    a, b = policies("llama", 1), policies("llama", 2)
    options = ["--enable-lora", "--max-loras", "3", "--max-lora-rank", "16", "--enable-prefix-caching", "--lora-modules"]
    server = serve(a[1], options=[*options, *(f"file-{number}={folder}" for number, folder in enumerate(adapters))])
    of_files = [tuple(ask(server, f"file-{number}")) for number in range(len(adapters))]
    assert len(set(of_files)) == len(adapters)
    with layercast.Publisher() as publisher, layercast.Controller([server.url]) as controller:
        with pytest.raises(LookupError, match="mine"):
            ask(server, "mine")
        published = publisher.publish_adapters({"policy": adapters[0]}, step=0)
        (outcome,) = controller.load_adapter("mine", publisher=published)
        assert (outcome.version, outcome.previous) == (published.version, None)
        assert tuple(ask(server, "mine")) == of_files[0]
        with Asking(server, "mine") as mine, Asking(server, "mine") as more, Asking(server, "policy") as base:
            for step in range(1, UPSERTS + 1):
                published = publisher.publish_adapters({"policy": adapters[step % len(adapters)]}, step=step)
                (outcome,) = controller.load_adapter("mine", publisher=published)
                assert outcome.version == published.version and outcome.previous.step == step - 1
                assert tuple(ask(server, "mine")) == of_files[step % len(adapters)]
        assert mine.wrong == more.wrong == base.wrong == [] and len(base.answers) == 1
        assert mine.answers | more.answers <= set(of_files) and len(mine.answers) > 1  # each answer is of one version
        assert controller.list_adapters()["adapters"][0]["name"] == "mine"
        published = publisher.publish_adapters({"mine": adapters[1]}, base=b[0], step=UPSERTS + 1)
        with Asking(server, "mine") as mine:
            controller.reload(published, adapters=["mine"])
            together = tuple(ask(server, "mine"))
        assert together == tuple(ask(server, "file-1")) not in of_files
        assert mine.wrong == [] and mine.answers <= {of_files[UPSERTS % len(adapters)], together}
        for step, pause_mode in enumerate(("keep", "abort"), UPSERTS + 3):
            publisher.publish_adapters({"mine": adapters[step % len(adapters)]}, step=step)
            with Asking(server, "mine") as mine:
                asked = {"name": "mine", "endpoint": publisher.endpoint, "step": step, "pause_mode": pause_mode}
                assert server.post("layercast/load_adapter", asked)["adapters"]["mine"]["step"] == step
                assert ask(server, "mine") == ask(server, f"file-{step % len(adapters)}")
            assert mine.wrong == []
        published = publisher.publish_adapters({"mine": adapters[0]}, step=UPSERTS + 5)
        controller.load_adapter("mine", publisher=published)
        controller.reload(publisher.publish(b[0], step=1, lineage="base"))
        assert tuple(ask(server, "mine")) == tuple(ask(server, "file-0")) != of_files[0]
        with pytest.raises(layercast.InvalidArgument, match="base model"):
            controller.load_adapter("policy", publisher=published)
        with pytest.raises(layercast.NotFound, match="nobody"):
            controller.load_adapter("mine", publisher=published, adapter="nobody")
        controller.unload_adapter("mine")
        with pytest.raises(LookupError, match="mine"):
            ask(server, "mine")
        with pytest.raises(layercast.NotFound, match="mine"):
            controller.unload_adapter("mine")
