"""A controller's canary, from Python."""

import os

import layercast
import program as layercast_program
import pytest

ANSWERS = [[3, 11, 4]]


@pytest.fixture
def engines(folder, tmp_path):
    program = layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path)
    started = []
    for _ in range(2):
        started.append(program.daemon("serve", "--model", folder, "--keep-previous", "--bind", "tcp://127.0.0.1:0"))
    yield [engine.endpoint for engine in started]
    for engine in started:
        engine.kill()


def test_a_canary_is_promoted_or_goes_back_at_its_end(engines, policies):
    with layercast.Publisher() as publisher, layercast.Controller(engines) as controller:
        controller.reload(publisher.publish(policies(23), step=3))
        before = controller.generate(ANSWERS, max_staleness=0)[0].spans[0][2]
        published = publisher.publish(policies(24), step=4)
        with controller.canary(publisher, canaries=engines[0], trial=60) as canary:
            assert canary.version == published.version and canary.others == engines[1:]
            assert [outcome.version for outcome in canary.canaries] == [published.version]
            assert canary.wait(0) is None
            assert [controller.status(engine)["version"]["step"] for engine in (0, 1)] == [4, 3]
        assert controller.status()["trial"]["state"] == "rolled_back"
        assert controller.generate(ANSWERS)[0].spans[0][2] == before
        with pytest.raises(layercast.FailedPrecondition, match="1 steps behind"):
            controller.generate(ANSWERS, max_staleness=0, heard_within=0)
        with controller.canary(published, canaries=[engines[1]]) as canary:
            outcomes = canary.promote()
            assert [outcome.version for outcome in outcomes] == [published.version] * 2
            with pytest.raises(layercast.FailedPrecondition, match="promoted or rolled back already"):
                canary.roll_back()
        assert [controller.status(engine)["version"]["step"] for engine in (0, 1)] == [4, 4]
        with pytest.raises(layercast.FailedPrecondition, match="already"):
            controller.canary(published, canaries=engines[0])
        with pytest.raises(layercast.InvalidArgument, match="expected one of the controller's engines"):
            controller.canary(published, canaries="tcp://127.0.0.1:1")
    with pytest.raises(layercast.Unsupported, match="vLLM server"):
        layercast.Controller("http://127.0.0.1:1").canary(published, canaries="http://127.0.0.1:1")
