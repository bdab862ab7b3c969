"""What the tests on Ray's wheel share: a cluster of this machine, a run, and its engines."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[2] / "examples"
sys.path[:0] = [str(HERE), str(EXAMPLES)]
# The processes of Ray inherit it.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

import layercast  # noqa: E402
import pytest  # noqa: E402
import ray  # noqa: E402
import rl_loop  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def cluster(tmp_path_factory):
    """Ray on this machine, with more cores than it has, since nothing here computes much."""
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    ray.init(num_cpus=16, include_dashboard=False, object_store_memory=200 << 20)
    yield
    ray.shutdown()


@pytest.fixture
def run(request):
    """The name of a run that has a registry."""
    with layercast.ray.run(request.node.name):
        yield request.node.name


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy")
    rl_loop.new_policy().save_pretrained(path)
    return str(path)


@pytest.fixture
def start(run, folder):
    """start(name, options of serve, model=..., restarts=..., **more) -> an engine's actor, which Ray restarts."""
    started = []

    def actor(name, *options, model=folder, restarts=4, **more):
        how = ray.remote(max_restarts=restarts, max_task_retries=restarts, max_concurrency=4, num_cpus=0)
        kind = how(layercast.ray.EngineActor)
        started.append(kind.options(name=f"{run}-{name}").remote(run, model, options, **more))
        return started[-1]

    yield actor
    for one in started:
        ray.kill(one)


@pytest.fixture
def publisher(run):
    """publisher(rank=..., ranks=..., secret=...) -> a publisher's actor, which Ray restarts."""
    started = []

    def actor(**options):
        kind = ray.remote(max_restarts=4, max_task_retries=4, num_cpus=0)(layercast.ray.PublisherActor)
        started.append(kind.remote(run, **options))
        return started[-1]

    yield actor
    for one in started:
        ray.kill(one)
