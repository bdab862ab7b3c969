"""What a publisher takes and refuses."""

import pickle
import traceback
import urllib.request

import layercast
import numpy
import pytest
import torch


def weights(value=1.0):
    return {"a": torch.full((2, 3), value), "b": torch.full((4,), value)}


def test_a_version_has_the_name_it_was_given_and_the_digest_of_its_bytes(publisher):
    first = publisher.publish(weights(), step=3)
    assert first.seconds > 0 and first.readers == 0 and not first.released
    again = publisher.publish(weights(), step=4, lineage="other")
    changed = publisher.publish(weights(2.0), step=5)
    assert (first.version.lineage, first.version.step) == ("policy", 3)
    assert (again.version.lineage, again.version.step) == ("other", 4)
    assert first.version.digest == again.version.digest != changed.version.digest
    assert first.version == layercast.Version("policy", 3, first.version.digest)


def test_tensors_of_torch_and_numpy_make_the_same_version(publisher):
    arrays = {name: tensor.numpy() for name, tensor in weights().items()}
    one, other = publisher.publish(weights(), step=1), publisher.publish(arrays, step=2)
    assert one.version.digest == other.version.digest


@pytest.mark.parametrize("step", [0, 4, 5])
def test_an_older_step_is_refused(publisher, step):
    publisher.publish(weights(), step=5)
    with pytest.raises(layercast.InvalidArgument, match=f"expected a step after 5, got {step}"):
        publisher.publish(weights(), step=step)
    publisher.publish(weights(), step=6)


@pytest.mark.parametrize("pieces, error, words", [
    ([("a", torch.ones(2)), ("a", torch.ones(2))], layercast.InvalidArgument, "'a': .* got two"),
    ({"a": torch.tensor([[1.0, 2.0], [float("nan"), 1.0]])}, layercast.Corrupt, r"'a' .*\[1, 0\]"),
    ({"a": numpy.array([1.0, float("inf")])}, layercast.Corrupt, r"'a' .*\[1\]"),
    ({"a": "ones"}, layercast.InvalidArgument, "'a': expected a dense tensor .* got a str"),
    ({"a": None}, layercast.InvalidArgument, "'a': .* got a NoneType"),
    (["a"], layercast.InvalidArgument, r"expected \(name, tensor\), got 'a'"),
    ([("a",)], layercast.InvalidArgument, r"expected \(name, tensor\), got \('a',\)"),
    ([(1, numpy.ones(2))], layercast.InvalidArgument, r"expected \(name, tensor\), got \(1,"),
    ([("a", torch.ones(2), "half")], layercast.InvalidArgument, r"'a': expected a part as \(whole shape, offsets\)"),
    ([("a", torch.ones(2), ([4], [3]))], layercast.InvalidArgument, "'a'"),
    ({}, layercast.InvalidArgument, "without a single tensor"),
], ids=["twice", "NaN", "infinity", "a str", "None", "no pair", "one", "no name", "no part", "beyond", "nothing"])
def test_what_is_no_version_is_refused_and_changes_nothing(publisher, pieces, error, words):
    with pytest.raises(error, match=words):
        publisher.publish(pieces, step=1)
    publisher.publish(weights(), step=1)  # the step was not used up


@pytest.mark.parametrize("options, words", [
    ({"step": -1}, "step: expected an integer of 0 or more, got -1"),
    ({"step": "7"}, "step: expected an integer of 0 or more, got '7'"),
    ({"step": 1, "lineage": 3}, "lineage: expected a string, got 3"),
    ({"step": 1, "rank": (2, 2)}, "rank"),
], ids=["negative", "text", "number", "rank"])
def test_an_option_of_the_wrong_type_is_named(publisher, options, words):
    with pytest.raises(layercast.InvalidArgument, match=words):
        publisher.publish(weights(), **options)


@pytest.mark.parametrize("options, error, words", [
    ({"endpoint": "here"}, layercast.InvalidArgument, "endpoint 'here'"),
    ({"endpoint": "tcp://0.0.0.0:0"}, layercast.InvalidArgument, "other hosts"),
    ({"threads": 0}, layercast.InvalidArgument, "threads: expected 1 to 1024, got 0"),
    ({"threads": "many"}, layercast.InvalidArgument, "threads: expected an integer of 0 or more, got 'many'"),
    ({"peer_timeout": -1}, layercast.InvalidArgument, "peer_timeout: expected seconds, 0 or more, got -1"),
    ({"peer_timeout": float("nan")}, layercast.InvalidArgument, "peer_timeout: .* got nan"),
    ({"channels": ["pigeon"]}, layercast.Unsupported, "no channel 'pigeon'"),
    ({"chanels": ["zmq"]}, TypeError, "chanels"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_a_publisher_refuses_options_that_cannot_work(options, error, words):
    with pytest.raises(error, match=words):
        layercast.Publisher(**options)


def test_a_misspelt_option_is_refused_by_every_call(publisher):
    with pytest.raises(TypeError, match="linage"):
        publisher.publish(weights(), step=1, linage="run")
    with pytest.raises(TypeError, match="linage"), publisher.borrowed(weights(), step=1, linage="run"):
        pass


def test_two_publishers_cannot_have_one_endpoint(publisher):
    with pytest.raises(layercast.Unavailable, match=publisher.endpoint.rpartition(":")[2]):
        layercast.Publisher(publisher.endpoint)


def failing(error):
    yield "a", torch.ones(2)
    raise error


def test_what_an_iterator_raises_comes_out_with_its_traceback(publisher):
    error = KeyError("of the trainer")
    with pytest.raises(KeyError) as raised:
        publisher.publish(failing(error), step=1)
    assert raised.value is error
    assert "failing" in [frame.name for frame in traceback.extract_tb(raised.tb)]
    publisher.publish(iter(weights().items()), step=1)


def test_an_iterator_can_be_neither_streamed_nor_borrowed(publisher):
    with pytest.raises(layercast.InvalidArgument, match="cannot be streamed"):
        publisher.publish(iter(weights().items()), step=1, stream=True)
    with pytest.raises(layercast.InvalidArgument, match="cannot be borrowed"):
        with publisher.borrowed(iter(weights().items()), step=1):
            pass


def test_a_publish_within_the_walk_of_another_is_refused(publisher):
    def nested():
        yield "a", torch.ones(2)
        publisher.publish(weights(), step=2)

    with pytest.raises(layercast.FailedPrecondition):
        publisher.publish(nested(), step=1)


def test_a_closed_publisher_says_so():
    publisher = layercast.Publisher()
    published = publisher.publish(weights(), step=1)
    publisher.close()
    publisher.close()
    assert repr(publisher) == "Publisher(closed)" and published.released
    for call in (lambda: publisher.publish(weights(), step=2), lambda: publisher.endpoint):
        with pytest.raises(layercast.FailedPrecondition, match="the publisher is closed"):
            call()


def test_a_version_is_released_once_it_is_withdrawn_or_evicted(publisher):
    versions = [publisher.publish(weights(), step=step) for step in range(3)]
    assert versions[0].wait(timeout=30) and not versions[1].wait(timeout=0)
    versions[2].withdraw()
    assert versions[2].wait(timeout=30)


def test_publishers_and_receivers_are_not_pickled(publisher, receiver):
    for resource in (publisher, receiver):
        with pytest.raises(layercast.FailedPrecondition, match="of one process"):
            pickle.dumps(resource)


def test_errors_are_also_the_builtin_ones_that_one_would_catch(publisher):
    for error, builtin in ((layercast.InvalidArgument, ValueError), (layercast.NotFound, LookupError),
                           (layercast.DeadlineExceeded, TimeoutError), (layercast.Unavailable, ConnectionError),
                           (layercast.Unsupported, NotImplementedError), (layercast.Internal, RuntimeError)):
        assert issubclass(error, builtin) and issubclass(error, layercast.Error)
    with pytest.raises(ValueError):
        publisher.publish({}, step=1)


def test_a_publisher_tells_prometheus_what_it_offers_where_the_build_can():
    try:
        opened = layercast.Publisher(metrics_bind="127.0.0.1:0")
    except layercast.Unsupported as error:
        assert "this build has no metrics: prometheus-cpp" in str(error)
        return
    with opened as publisher:
        publisher.publish(weights(), step=3)
        with urllib.request.urlopen(f"http://{publisher.metrics_address}/metrics", timeout=20) as answer:
            assert b'layercast_publisher_offered_step{lineage="policy"} 3\n' in answer.read()
    with pytest.raises(layercast.InvalidArgument, match="--metrics-open"):
        layercast.Publisher(metrics_bind="0.0.0.0:0")
    assert layercast.Publisher().metrics_address == ""
