"""Run by test_nodes.py, a process of its own: a cluster of several Ray nodes on this machine, of which one is killed in the middle of
a run. Arguments: the policy's folder, a secret's file. Prints a line of JSON at the end."""

import json
import sys

import actors
import layercast
import psutil
import ray
from ray.cluster_utils import Cluster

folder, secret = sys.argv[1:]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"trainer": 1}, "include_dashboard": False,
                                                       "object_store_memory": 100 << 20})
nodes = [cluster.add_node(num_cpus=1, resources={"engines": 1}, object_store_memory=100 << 20) for _ in range(3)]
ray.init(address=cluster.address)


def get(call):
    return ray.get(call, timeout=120)


def where(engine):
    return get(engine.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id()))


with layercast.ray.run("nodes"):
    kind = ray.remote(max_restarts=4, max_task_retries=-1, max_concurrency=4, num_cpus=1,
                      resources={"engines": 1})(layercast.ray.EngineActor)
    engines = [kind.options(name=f"engine-{index}").remote("nodes", folder, secret=secret) for index in range(2)]
    trainer = ray.remote(num_cpus=1, resources={"trainer": 1})(layercast.ray.PublisherActor).remote("nodes", secret=secret)
    get(trainer.publish.remote(actors.weights(1), step=1))
    layercast.ray.reload("nodes", 1)
    get(trainer.publish.remote(actors.weights(2), step=2))
    process = psutil.Process(actors.pid_of(engines[0]))
    at, endpoint = where(engines[0]), get(engines[0].endpoint.remote())
    (lost,) = [node for node in nodes if node.node_id == at]
    cluster.remove_node(lost, allow_graceful=False)  # engine 0 serves version 1, and 2 is published: nobody has told it
    process.wait(60)
    (answer,) = get(engines[0].generate.remote([[4, 0, 7, 10]], max_new=3))
    line = {"moved": where(engines[0]) != at, "endpoint": get(engines[0].endpoint.remote()) != endpoint,
            "back_with": [version.step for _, _, version in answer.spans], "other": actors.serves(engines[1])}
    line["registered"] = get(ray.get_actor("nodes").engines.remote()) == {
        f"engine-{index}": get(engine.endpoint.remote()) for index, engine in enumerate(engines)}
    line["reloaded"] = layercast.ray.reload("nodes", 2)
    line["serve"] = [actors.serves(engine) for engine in engines]
    print(json.dumps(line), flush=True)
ray.shutdown()
cluster.shutdown()
