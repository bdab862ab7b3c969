"""SkyRL's own worker code sends its policy to engines that serve FP8: their bytes are those of the folder that it would save."""

import pathlib

import layercast
import pytest
import serving
import skyrl_worker
import torch
from layercast.program import answer_of

HERE = pathlib.Path(__file__).resolve().parent



@pytest.fixture
def installed():
    """install(engines), undone afterwards."""
    from skyrl.backends.skyrl_train import weight_sync

    theirs = weight_sync.get_transfer_strategy_cls
    yield layercast.skyrl.install
    weight_sync.get_transfer_strategy_cls = theirs



def test_two_ranks_of_fsdp2_send_what_they_hold_and_a_failure_raises_on_both(serve, tmp_path):
    engines = [serve()[0], serve()[0]]
    ranks = serving.torchrun(HERE / "skyrl_ranks_case.py", *engines, tmp_path)
    assert len(ranks) == 2
    for rank in ranks:
        assert rank["metrics"]["layercast/version"] == 1 and rank["metrics"]["layercast/bytes"] > 0
        assert "nan" in rank["raised"].lower()
    for engine in engines:
        assert layercast.verify(engine, tmp_path / "trained").equal


def test_the_engines_are_the_servers_of_skyrls_client_and_each_is_told_nothing_beforehand(serve, installed, tmp_path):
    installed()
    client = skyrl_worker.Client([serve()[0], serve()[0]])
    module = serving.save_policy(tmp_path / "trained", seed=4)
    with serving.one_rank(tmp_path):
        worker = skyrl_worker.worker(module, client)
        metrics = skyrl_worker.send(worker)
        worker._weight_transfer_sender.teardown()
    assert client.told == [{}, {}]
    assert all(isinstance(value, float) for value in metrics.values())
    assert metrics == worker._weight_transfer_sender.metrics
    for engine in client.server_urls:
        assert layercast.verify(engine, tmp_path / "trained").equal


def test_where_one_engine_is_dead_no_engine_has_the_version_and_the_worker_raises(serve, installed, tmp_path):
    (living, _), (dying, process) = serve(), serve()
    installed([living, dying], timeout=20)
    with serving.one_rank(tmp_path):
        worker = skyrl_worker.worker(serving.save_policy(tmp_path / "trained", seed=4), skyrl_worker.Client(["http://unused"]))
        process.kill()
        process.wait()
        with pytest.raises(layercast.Error, match=dying):
            skyrl_worker.send(worker)
        worker._weight_transfer_sender.teardown()
    assert (answer_of("status", "--engine", living).get("version") or {}).get("step") != 1


def test_a_chunk_that_fails_on_its_way_raises_and_the_next_send_succeeds(serve, installed, tmp_path):
    engine, _ = serve()
    installed([engine])
    module = serving.save_policy(tmp_path / "trained", seed=4)
    with serving.one_rank(tmp_path):
        worker = skyrl_worker.worker(module, skyrl_worker.Client([engine]))
        with torch.no_grad():
            kept = module.lm_head.weight[3, 5].item()
            module.lm_head.weight[3, 5] = float("inf")
        with pytest.raises(layercast.Corrupt, match="lm_head.weight"):
            skyrl_worker.send(worker)
        with torch.no_grad():
            module.lm_head.weight[3, 5] = kept
        assert skyrl_worker.send(worker)["layercast/version"] == 2
        worker._weight_transfer_sender.teardown()
    assert layercast.verify(engine, tmp_path / "trained").equal
