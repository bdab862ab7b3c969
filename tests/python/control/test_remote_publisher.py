"""Versions that a publisher keeps, seen from inside it and from elsewhere; and an engine that goes back to one."""

import os

import layercast
import numpy
import program as layercast_program
import pytest
import safetensors.numpy


def weights(value):
    return {"a": numpy.full((64, 64), value, numpy.float32), "same": numpy.full((64, 64), 0.5, numpy.float32)}


def steps(list_):
    return [kept.version.step for kept in list_.versions if not kept.evicted]


def test_versions_are_listed_pinned_and_evicted_from_inside_and_elsewhere():
    with layercast.Publisher(retained_versions=3) as publisher:
        first = publisher.publish(weights(1.0), step=1)
        elsewhere = layercast.RemotePublisher(publisher.endpoint)
        elsewhere.pin("policy@1")
        for step in range(2, 6):
            publisher.publish(weights(float(step)), step=step)
        kept = publisher.versions()
        assert steps(kept) == steps(elsewhere.versions()) == [1, 3, 4, 5] and kept.retained_versions == 3
        oldest = kept.versions[0]
        assert oldest.pinned and oldest.version == first.version and oldest.bytes == oldest.added_bytes == 2 * 64 * 64 * 4
        assert kept.versions[-1].added_bytes == 64 * 64 * 4 and kept.memory_bytes >= 5 * 64 * 64 * 4
        with pytest.raises(layercast.FailedPrecondition, match="is pinned"):
            publisher.evict(first.version)
        publisher.pin(first.version, False)
        assert steps(elsewhere.evict(elsewhere.versions().named("policy@4").version)) == [3, 5]
        assert first.wait(20)
        with pytest.raises(layercast.NotFound, match="policy@5"):
            elsewhere.pin(first.version.digest[:8])
    with pytest.raises(layercast.Unavailable, match=elsewhere.endpoint):
        elsewhere.versions()


def test_a_folder_is_published_where_that_is_allowed(tmp_path):
    safetensors.numpy.save_file(weights(1.0), tmp_path / "model.safetensors")
    with layercast.Publisher(allow_paths=[tmp_path]) as publisher:
        elsewhere = layercast.RemotePublisher(publisher.endpoint)
        version = elsewhere.publish_folder(tmp_path, step=7, lineage="run")
        assert (version.lineage, version.step) == ("run", 7)
        assert [kept.version for kept in publisher.versions().versions] == [version]
        with pytest.raises(layercast.PermissionDenied, match="expected the absolute path of something that is in"):
            elsewhere.publish_folder(tmp_path.parent, step=8)


def test_an_engine_goes_back_and_is_waited_for(policies, folder, tmp_path):
    program = layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path)
    engine = program.daemon("serve", "--model", folder, "--keep-previous", "--bind", "tcp://127.0.0.1:0")
    try:
        with layercast.Publisher() as publisher:
            controller = layercast.Controller(engine.endpoint)
            published = publisher.publish(policies(23), step=3)
            with pytest.raises(layercast.FailedPrecondition, match="policy@3 or a later version"):
                controller.generate([[3, 11, 4]], least_version=published.version)
            controller.reload(published)
            controller.wait_for_version(published.version, timeout=20)
            [sequence] = controller.generate([[3, 11, 4]], max_new=2, least_version=published.version)
            assert sequence.spans[0][2] == published.version
        [outcome] = controller.roll_back()
        assert outcome.previous == published.version and outcome.version.lineage == folder.name
        with pytest.raises(layercast.DeadlineExceeded, match="expected policy@3"):
            controller.wait_for_version(published.version, timeout=0.1)
    finally:
        engine.kill()
