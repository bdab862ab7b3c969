"""Actors of trainers and engines, one by one: asked, asked twice, killed, asked the impossible."""


import actors
import layercast
import psutil
import pytest
import ray
from layercast.integrations import ray_registry


def get(call):
    return ray.get(call, timeout=actors.SECONDS)


def test_engines_take_what_was_published_and_say_what_it_cost(run, start, publisher):
    engines = [start("a", "--quantization", "fp8_per_channel"), start("b", "--tp", "2")]
    trainer = publisher()
    published = get(trainer.publish.remote(actors.weights(1), step=1))
    assert published["layercast/version"] == 1 and published["layercast/publish_s"] > 0
    metrics = layercast.ray.reload(run, 1)
    assert metrics["layercast/engines"] == 2 and metrics["layercast/version"] == 1
    assert metrics["layercast/bytes"] > 200_000 and metrics["layercast/reload_s"] > metrics["layercast/commit_s"] > 0
    assert [actors.serves(engine) for engine in engines] == [1, 1]
    (answer,) = get(engines[0].generate.remote([[4, 0, 7, 10]], max_new=3))
    assert len(answer.tokens) == 3 and [version.step for _, _, version in answer.spans] == [1]


def test_a_call_that_is_made_again_changes_nothing(run, start, publisher):
    engine, trainer = start("a"), publisher()
    weights = actors.weights(1)
    assert get(trainer.publish.remote(weights, step=1)) == get(trainer.publish.remote(weights, step=1))
    assert get(engine.reload.remote(1)) == get(engine.reload.remote(1))  # with the same times: nothing was taken anew


def test_an_engine_that_joins_later_serves_the_newest_version_from_the_start(run, start, publisher):
    trainer = publisher()
    for step in (1, 2):
        get(trainer.publish.remote(actors.weights(step), step=step))
    assert actors.serves(start("late")) == 2


def test_an_engine_actor_that_is_killed_comes_back_with_the_newest_version(run, start, publisher):
    engine, trainer = start("a"), publisher()
    get(trainer.publish.remote(actors.weights(1), step=1))
    layercast.ray.reload(run, 1)
    before = get(engine.endpoint.remote())
    actors.kill(engine)
    (answer,) = get(engine.generate.remote([[4, 0, 7, 10]], max_new=3))
    assert [version.step for _, _, version in answer.spans] == [1]
    registered = get(ray.get_actor(run).engines.remote())
    assert list(registered.values()) == [get(engine.endpoint.remote())] != [before]


def test_an_engine_that_ends_without_its_actor_is_started_again(run, start, publisher):
    engine, trainer = start("a"), publisher()
    get(trainer.publish.remote(actors.weights(1), step=1))
    layercast.ray.reload(run, 1)
    (served,) = [child for child in psutil.Process(actors.pid_of(engine)).children() if "serve" in child.cmdline()]
    served.kill()
    served.wait(actors.SECONDS)
    assert actors.serves(engine) == 1
    assert layercast.ray.reload(run, 1)["layercast/version"] == 1


def test_a_trainer_that_is_killed_takes_its_versions_with_it_and_publishes_again(run, start, publisher):
    engine, trainer = start("a"), publisher()
    get(trainer.publish.remote(actors.weights(1), step=1))
    layercast.ray.reload(run, 1)
    actors.kill(trainer)
    get(trainer.__ray_ready__.remote())
    assert get(ray.get_actor(run).newest.remote()) is None
    actors.kill(engine)
    assert actors.serves(engine) == 0  # its checkpoint
    get(trainer.publish.remote(actors.weights(2), step=1))
    assert layercast.ray.reload(run, 1)["layercast/version"] == 1
    assert actors.serves(engine) == 1


def test_an_engine_whose_publisher_is_gone_starts_all_the_same(run, start, publisher):
    trainer = publisher()
    get(trainer.publish.remote(actors.weights(1), step=1))
    ray.kill(trainer)  # for good: nobody tells the registry
    assert actors.serves(start("a")) == 0


def test_a_version_counts_when_all_ranks_have_published_it(run, start, publisher):
    engine = start("a")
    weights = list(actors.weights(1).items())
    first, second = publisher(rank=0, ranks=2), publisher(rank=1, ranks=2)
    get(first.publish.remote(dict(weights[::2]), step=1, rank=(0, 2)))
    with pytest.raises(layercast.NotFound, match="version 1: expected parts of 2 ranks, got 1"):
        layercast.ray.reload(run, 1)
    assert actors.serves(engine) == 0
    get(second.publish.remote(dict(weights[1::2]), step=1, rank=(1, 2)))
    assert layercast.ray.reload(run, 1)["layercast/version"] == 1


def test_engines_leave_of_their_own_will_and_by_ending(run, start, publisher):
    staying, leaving, dying = start("staying"), start("leaving"), start("dying")
    get([engine.endpoint.remote() for engine in (staying, leaving, dying)])
    get(leaving.leave.remote())
    ray.kill(dying)
    get(publisher().publish.remote(actors.weights(1), step=1))
    assert layercast.ray.reload(run, 1)["layercast/engines"] == 1
    assert list(get(ray.get_actor(run).engines.remote())) == [f"{run}-staying"]
    get(staying.leave.remote())
    with pytest.raises(layercast.FailedPrecondition, match=f"engine '{run}-staying' has left run '{run}'"):
        get(staying.generate.remote([[1]]))
    with pytest.raises(layercast.NotFound, match=f"run '{run}': expected engines, got none"):
        layercast.ray.reload(run, 1)


def test_an_engine_that_ends_for_good_during_a_reload_leaves_the_run(run, start, publisher, monkeypatch):
    staying, dying = start("staying"), start("dying", restarts=0)
    get([engine.endpoint.remote() for engine in (staying, dying)])
    get(publisher().publish.remote(actors.weights(1), step=1))
    get_actor = ray.get_actor

    def found_and_killed(name):
        actor = get_actor(name)
        if name.endswith("dying"):
            actors.kill(actor)
        return actor

    monkeypatch.setattr(ray, "get_actor", found_and_killed)
    assert layercast.ray.reload(run, 1)["layercast/engines"] == 1
    assert list(get(get_actor(run).engines.remote())) == [f"{run}-staying"]
    assert actors.serves(staying) == 1


def test_a_refused_version_is_refused_by_name_and_the_engine_serves_what_it_did(run, start, publisher):
    engine, trainer = start("a"), publisher()
    weights = actors.weights(1)
    get(trainer.publish.remote(weights, step=1))
    layercast.ray.reload(run, 1)
    weights.pop("model.norm.weight")
    get(trainer.publish.remote(weights, step=2))
    with pytest.raises(layercast.Error, match="model.norm.weight"):
        layercast.ray.reload(run, 2)
    assert actors.serves(engine) == 1


def test_what_nobody_has_is_refused_by_name(run, start, tmp_path):
    with pytest.raises(layercast.NotFound, match="run 'nobody': expected its registry"):
        layercast.ray.reload("nobody", 1)
    with pytest.raises(layercast.NotFound, match="version 7: expected parts of all ranks, got 0; known are"):
        get(start("a").reload.remote(7))
    with pytest.raises(ray.exceptions.ActorDiedError, match=str(tmp_path / "none")):
        get(start("b", model=str(tmp_path / "none")).status.remote())


def test_an_engine_without_a_name_and_a_rank_too_many_are_refused(run, folder, publisher):
    with pytest.raises(ray.exceptions.ActorDiedError, match="expected the engine's actor to have a name"):
        get(ray.remote(layercast.ray.EngineActor).remote(run, folder).status.remote())
    with pytest.raises(ray.exceptions.ActorDiedError, match="rank: expected one of 0 to 1, got 2"):
        get(publisher(rank=2, ranks=2).__ray_ready__.remote())


def test_a_registry_that_has_ended_is_named(run, start):
    engine = start("a")
    get(engine.endpoint.remote())
    ray.kill(ray.get_actor(run))
    with pytest.raises(layercast.Unavailable, match=f"run '{run}': its registry has ended"):
        get(engine.reload.remote(1))


def test_with_a_secret_or_insecure_endpoints_are_at_the_nodes_address(run, start, publisher):
    engine, trainer = start("a", insecure=True), publisher(insecure=True)
    get(trainer.publish.remote(actors.weights(1), step=1))
    layercast.ray.reload(run, 1)
    address = ray.util.get_node_ip_address()
    (endpoint,) = get(ray.get_actor(run).newest.remote()).endpoints
    assert f"//{address}:" in endpoint and f"//{address}:" in get(engine.endpoint.remote())


def test_a_cluster_of_several_nodes_needs_a_secret_or_insecure(monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True}, {"Alive": True}, {"Alive": False}])
    with pytest.raises(layercast.FailedPrecondition, match="expected one, or insecure=True, in a cluster of 2 nodes"):
        ray_registry.bind_address("", False)


def test_the_registry_offers_whole_versions_of_the_newest_steps_alone():
    sync, version = layercast.ray.WeightSync(), layercast.Version("run", 0)
    assert sync.newest() is None
    for step in range(6):
        sync.published(step, 0, 2, ("tcp://0", version))
        sync.published(step, 1, 2, None)
    sync.published(6, 0, 2, ("tcp://0", version))
    assert sync.newest().version.step == 5 and sync.newest().endpoints == ["tcp://0"]
    with pytest.raises(layercast.NotFound):
        sync.version(6)
    with pytest.raises(layercast.NotFound):
        sync.version(1)
    sync.publisher_started(1)
    assert sync.newest() is None
