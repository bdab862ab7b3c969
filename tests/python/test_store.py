"""A durable store from Python: written by a publisher, looked after, and taken by a receiver and by engines."""

import os

import layercast
import numpy
import program as layercast_program
import pytest
import torch


def weights(value):
    return {"a": numpy.full((64, 64), value, numpy.float32), "same": numpy.full((64, 64), 0.5, numpy.float32)}


def steps(list_):
    return [kept.version.step for kept in list_.versions]


def test_a_store_outlives_its_publisher_which_goes_on_with_it(tmp_path):
    with layercast.Publisher(store=tmp_path / "store", store_versions=3) as publisher:
        first = publisher.publish(weights(1.0), step=1)
        assert first.wait_stored(60) and publisher.versions().versions[0].stored
        publisher.publish(weights(2.0), step=2)  # is waited for by the publisher's end
    store = layercast.Store(tmp_path / "store")
    listed = store.versions()
    assert steps(listed) == [1, 2] and listed.versions[0].version == first.version
    assert 64 * 64 * 4 <= listed.versions[1].added_bytes < 2 * 64 * 64 * 4  # one tensor: the other is the first one's
    store.pin("policy@1")
    with pytest.raises(layercast.FailedPrecondition, match="is pinned"):
        store.evict(first.version)
    with layercast.Publisher(store=tmp_path / "store", store_versions=1) as again:
        assert steps(again.versions()) == [1, 2]
        with pytest.raises(layercast.InvalidArgument, match="the store has policy@2"):
            again.publish(weights(9.0), step=2)
        assert again.publish(weights(3.0), step=3).wait_stored(60)
    assert steps(store.versions()) == [1, 3]
    assert steps(store.pin(first.version, False)) == [1, 3]
    assert steps(store.evict("policy@1")) == [3]
    assert list(store.check().values()) == [[]]
    with pytest.raises(layercast.NotFound, match="is no store"):
        layercast.Store(tmp_path / "none").versions()


def test_a_publisher_without_a_store_has_nothing_stored(publisher):
    assert not publisher.publish(weights(1.0), step=1).wait_stored(60)
    assert not publisher.versions().versions[0].stored


def test_a_receiver_takes_a_stored_version_as_a_publisher_would_have_given_it(policies, buffers, folder, tmp_path):
    served = {}
    for name in ("publisher", "store"):
        served[name] = buffers(folder, quantization="fp8_per_channel")
    receivers = {name: layercast.Receiver(folder, quantization="fp8_per_channel", buffers=held) for name, held in served.items()}
    with layercast.Publisher(store=tmp_path / "store") as publisher:
        published = [publisher.publish(policies(seed), step=seed) for seed in (1, 2)]
        receivers["publisher"].reload_weights(published[0])
    store = layercast.Store(tmp_path / "store")
    report = receivers["store"].reload_weights(store, lineage="policy", step=1)
    assert report.version == published[0].version and report.to_dict()["channel"]["name"] == "store"
    for name, tensor in served["store"].items():
        assert torch.equal(tensor.view(torch.uint8), served["publisher"][name].view(torch.uint8)), name
    assert receivers["store"].reload_weights(store).version == published[1].version
    for receiver in receivers.values():
        receiver.close()


def test_a_controller_has_engines_take_a_stored_version(folder, policy, tmp_path):
    with layercast.Publisher(store=tmp_path / "store") as publisher:
        version = publisher.publish(policy, step=7).version
    program = layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path)
    engine = program.daemon("serve", "--model", folder, "--bind", "tcp://127.0.0.1:0")
    try:
        controller, store = layercast.Controller(engine.endpoint), layercast.Store(tmp_path / "store")
        assert controller.reload(store)[0].version == version
        assert controller.reload(store, version=version)[0].version == version
        with pytest.raises(layercast.NotFound, match="at step 8"):
            controller.reload(store, version=layercast.Version("policy", 8, "0" * 32))
    finally:
        engine.kill()
