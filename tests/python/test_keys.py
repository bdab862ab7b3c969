"""Keys from Python: a publisher and an engine's rank that know each other, and those who do not."""

import layercast
import pytest


@pytest.fixture
def secrets(tmp_path):
    """Two jobs' secrets."""
    files = [tmp_path / "job", tmp_path / "other"]
    for file in files:
        file.touch(mode=0o600)
        file.write_text(f"layercast-job-secret-1 {file.name.encode().hex():0<64}\n")
    return files


def test_a_receiver_takes_versions_of_a_publisher_with_the_same_secret(folder, buffers, policy, secrets):
    with layercast.Publisher("tcp://0.0.0.0:0", secret=secrets[0]) as publisher:
        publisher.publish(policy, step=1)
        endpoint = publisher.endpoint.replace("0.0.0.0", "127.0.0.1")
        with layercast.Receiver(folder, buffers=buffers(folder), secret=secrets[0]) as receiver:
            assert receiver.reload_weights(endpoint)
            assert receiver.version.step == 1
        with (layercast.Receiver(folder, buffers=buffers(folder), secret=secrets[1], peer_timeout=0.5) as stranger,
              pytest.raises(layercast.Error, match="another server key")):
            stranger.reload_weights(endpoint)


def test_the_environment_stands_for_what_is_not_given(folder, buffers, policy, secrets, monkeypatch):
    monkeypatch.setenv("LAYERCAST_SECRET", str(secrets[0]))
    with layercast.Publisher() as publisher, layercast.Receiver(folder, buffers=buffers(folder)) as receiver:
        publisher.publish(policy, step=1)
        receiver.reload_weights(publisher)
        with layercast.Receiver(folder, buffers=buffers(folder), insecure=True, peer_timeout=0.5) as plain:
            with pytest.raises(layercast.Error, match="wants keys, none given"):
                plain.reload_weights(publisher)


def test_what_is_no_key_is_refused_where_it_is_given(tmp_path, folder, buffers):
    with pytest.raises(layercast.InvalidArgument, match="--insecure"):
        layercast.Publisher("tcp://0.0.0.0:0")
    layercast.Publisher("tcp://0.0.0.0:0", insecure=True).close()
    for make in (lambda: layercast.Publisher(keys=tmp_path / "none"),
                 lambda: layercast.Controller("tcp://127.0.0.1:1", keys=tmp_path / "none"),
                 lambda: layercast.Receiver(folder, buffers=buffers(folder), keys=tmp_path / "none")):
        with pytest.raises(layercast.NotFound, match="none"):
            make()


@pytest.fixture
def signing(tmp_path):
    """A key of a publisher that signs (the test vector of RFC 8032, 7.1), and what trusts it."""
    key, trusted = tmp_path / "trainer", tmp_path / "trainer.public"
    key.touch(mode=0o600)
    key.write_text("layercast-signing-secret-1 4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb\n")
    trusted.touch(mode=0o644)
    trusted.write_text("layercast-signing-1 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\n")
    return key, trusted


def test_a_receiver_that_trusts_a_key_takes_what_is_signed_and_what_its_process_brings(folder, buffers, policy, signing):
    key, trusted = signing
    with (layercast.Publisher(sign=key) as signs, layercast.Publisher() as does_not,
          layercast.Receiver(folder, buffers=buffers(folder), trust=trusted) as receiver):
        signs.publish(policy, step=1)
        does_not.publish(policy, step=2)
        assert receiver.reload_weights(signs.endpoint)
        with pytest.raises(layercast.Error, match="is not signed"):
            receiver.reload_weights(does_not.endpoint)
        with pytest.raises(layercast.Error, match="nobody signs what comes from a path"):
            receiver.reload_weights(folder)
        assert receiver.version.step == 1
        receiver.reload_weights([(name, parameter.detach()) for name, parameter in policy.named_parameters()])
