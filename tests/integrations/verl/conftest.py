"""What the tests on verl's wheel share: Ray on this machine, a folder, engines that serve it in FP8, and runs of verl's workers."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[2] / "examples"
sys.path[:0] = [str(HERE), str(HERE.parent / "shared"), str(EXAMPLES)]
# The processes of Ray inherit it.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
os.environ |= {"VERL_USE_EXTERNAL_MODULES": "cpu_platform", "VERL_ENGINE_DEVICE": "cuda"}  # its only FSDP2 engine

import pytest  # noqa: E402
import ray  # noqa: E402
import rl_loop  # noqa: E402
import serving  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def on_ray(tmp_path_factory):
    """Ray on this machine, with more cores than it has, since nothing here computes much."""
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    ray.init("local", num_cpus=16, include_dashboard=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A policy in bf16, and what verl wants beside it: a tokenizer."""
    path = tmp_path_factory.mktemp("policy")
    rl_loop.new_policy().to(torch.bfloat16).save_pretrained(path)
    tokenizer().save_pretrained(path)
    return str(path)


def tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {str(word): word for word in range(15)} | {"<unk>": 15}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="<unk>")), unk_token="<unk>")


@pytest.fixture(scope="session")
def serve(folder):
    """serve(options...) -> (endpoint, process) of an engine with FP8 weights."""
    with serving.serving(folder) as start:
        yield start


@pytest.fixture(scope="module")
def run(request, folder):
    """verl's trainer and rollout workers, as the module's RUN says."""
    import cluster

    made = cluster.Run(folder, **request.module.RUN)
    yield made
    made.close()
