"""SGLang's released wheel on a CPU: its configuration published, a group of one rank, and a small model of its own."""

import os
import pathlib
import sys

import pytest

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import stand_ins  # noqa: E402

stand_ins.install()

import layercast  # noqa: E402
import scenes  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def process_of_a_scheduler(tmp_path_factory):
    """What SGLang's scheduler process does before it builds a model: publishes its arguments, makes its groups."""
    from sglang.srt.distributed import parallel_state
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    torch.set_num_threads(2)
    publish(ServerArgs(model_path="dummy", device="cpu"), role="scheduler", ranks=SpawnRanks(world_rank=0))
    at = tmp_path_factory.mktemp("group") / "store"
    parallel_state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method=f"file://{at}", backend="gloo"
    )
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="session", autouse=True)
def plugin(process_of_a_scheduler, tmp_path_factory):
    """The plug-in as SGLang finds it: an entry point of an installed distribution."""
    installed = tmp_path_factory.mktemp("installed")
    scenes.install_entry_point(installed)
    sys.path.insert(0, str(installed))
    from sglang.srt.plugins import load_plugins

    load_plugins()
    yield
    sys.path.remove(str(installed))


@pytest.fixture
def publisher():
    with layercast.Publisher(lineage="run") as made:
        yield made


@pytest.fixture
def model():
    """A Qwen2 that serves version 0, as SGLang loads it."""
    return scenes.loaded(scenes.qwen2(), scenes.checkpoint(0))
