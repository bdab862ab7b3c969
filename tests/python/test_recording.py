"""A receiver that takes what was recorded of another loader, against the same copies made by torch; and its phases."""

from concurrent.futures import ThreadPoolExecutor

import layercast
import pytest
import torch
from layercast import Box, Copy, Recording, TensorSpec
from layercast.dtypes import torch_dtype
from layercast.host.known_weights import difference, known_weights, replayed
from layercast.offered import fetch, fetch_in_parts, offered, offered_in_time


def spec(name, *shape, dtype="BF16"):
    return TensorSpec(name, dtype, shape)


def box(*ranges):
    return Box(tuple(begin for begin, _ in ranges), tuple(end - begin for begin, end in ranges))


# A fused layer, padding, a transposed source, a row-parallel one, experts, and a tensor that nobody takes.
RECORDING = Recording(
    sources=(
        spec("q", 8, 16), spec("k", 4, 16), spec("o", 16, 32), spec("up", 16, 24), spec("e.0", 6, 8), spec("e.1", 6, 8),
        spec("embed", 10, 16), spec("scale"), spec("unused", 3),
    ),
    parameters=(
        spec("model.embed.weight", 16, 16), spec("model.qk.weight", 12, 16), spec("model.o.weight", 16, 16),
        spec("model.up.weight", 24, 16), spec("model.experts.w13_weight", 2, 6, 8), spec("model.norm.scale", 1),
    ),
    copies=(
        Copy("embed", "model.embed.weight", box((0, 10), (0, 16)), box((0, 10), (0, 16))),
        Copy("q", "model.qk.weight", box((0, 8), (0, 16)), box((0, 8), (0, 16))),
        Copy("k", "model.qk.weight", box((0, 4), (0, 16)), box((8, 12), (0, 16))),
        Copy("o", "model.o.weight", box((0, 16), (16, 32)), box((0, 16), (0, 16))),
        Copy("up", "model.up.weight", box((0, 16), (0, 24)), box((0, 24), (0, 16)), transposed=True),
        Copy("e.0", "model.experts.w13_weight", box((0, 6), (0, 8)), box((0, 1), (0, 6), (0, 8))),
        Copy("e.1", "model.experts.w13_weight", box((0, 6), (0, 8)), box((1, 2), (0, 6), (0, 8))),
        Copy("scale", "model.norm.scale", box(), box((0, 1))),
    ),
    zeros={"model.embed.weight": (box((10, 16), (0, 16)),)},
)  # fmt: skip


def shadows(recording, **options):
    specs = layercast.buffer_specs(recording, **options)
    return {one.name: torch.full(one.shape, 3.0).to(torch_dtype(one.dtype)) for one in specs}


def test_places_every_element_where_the_loader_did():
    sources, buffers = known_weights(RECORDING), shadows(RECORDING)
    with layercast.Receiver(RECORDING, buffers=buffers) as receiver:
        report = receiver.reload_weights(sources)
        assert [skipped["name"] if isinstance(skipped, dict) else skipped for skipped in report.skipped] != []
        receiver.verify()
    assert difference(buffers, replayed(RECORDING, sources)) == ""


@pytest.mark.parametrize("stream", [False, True])
def test_takes_versions_of_a_publisher(publisher, stream):
    sources, buffers = known_weights(RECORDING), shadows(RECORDING)
    published = publisher.publish(sources, step=4, stream=stream)
    with layercast.Receiver(RECORDING, buffers=buffers) as receiver:
        assert receiver.reload_weights(published).version == published.version
    assert difference(buffers, replayed(RECORDING, sources)) == ""


def test_quantizes_what_the_recording_says_alone():
    of = Recording(RECORDING.sources, RECORDING.parameters, RECORDING.copies, RECORDING.zeros, frozenset({"model.qk.weight"}))
    sources, buffers = known_weights(of), shadows(of, quantization="fp8_per_channel")
    with layercast.Receiver(of, buffers=buffers, quantization="fp8_per_channel") as receiver:
        receiver.reload_weights(sources)
    want = replayed(of, sources)
    weight = want.pop("model.qk.weight").float()
    scale = (weight.abs().amax(1, keepdim=True) / 448).clamp(min=1 / (448 * 512))
    want["model.qk.weight"] = (weight / scale).to(torch.float8_e4m3fn)
    want["model.qk.weight_scale"] = scale
    assert difference(buffers, want) == ""


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": None}, layercast.InvalidArgument, "missing.*'k'|missing.*k"),
        ({"q": torch.zeros(7, 16, dtype=torch.bfloat16)}, layercast.InvalidArgument, r"expected \[8, 16\]"),
        ({"more": torch.zeros(2)}, layercast.InvalidArgument, "1 unexpected: 'more'"),
    ],
)
def test_refuses_what_was_not_recorded(change, error, words):
    sources = {name: tensor for name, tensor in (known_weights(RECORDING) | change).items() if tensor is not None}
    buffers = shadows(RECORDING)
    with layercast.Receiver(RECORDING, buffers=buffers) as receiver, pytest.raises(error, match=words):
        receiver.reload_weights(sources)
    assert all((tensor.float() == 3).all() for tensor in buffers.values())


@pytest.mark.parametrize(
    ("recording", "error", "words"),
    [
        (Recording((spec("a", 2), spec("a", 2)), (), (), {}), layercast.InvalidArgument, "'a' twice"),
        (
            Recording((spec("a", 2),), (spec("x.w", 4),), (Copy("a", "x.w", box((0, 2)), box((0, 4))),), {}),
            layercast.InvalidArgument,
            "as many elements",
        ),
        (
            Recording((spec("a", 2),), (spec("x.w", 4),), (Copy("a", "x.w", box((1, 3)), box((0, 2))),), {}),
            layercast.InvalidArgument,
            r"'a': expected a box of \[2\]",
        ),
        (
            Recording(
                (spec("a", 2),),
                (spec("x.w", 2), spec("y.w", 2)),
                tuple(Copy("a", name, box((0, 2)), box((0, 2))) for name in ("x.w", "y.w")),
                {},
            ),
            layercast.Unsupported,
            "layers x and y",
        ),
    ],
)
def test_refuses_recordings_that_cannot_be(recording, error, words):
    with pytest.raises(error, match=words):
        layercast.buffer_specs(recording)


def test_stages_beside_what_is_served_and_commits_when_told(publisher):
    sources, buffers = known_weights(RECORDING), shadows(RECORDING)
    served = {name: tensor.clone() for name, tensor in buffers.items()}
    with layercast.Receiver(RECORDING, buffers=buffers) as receiver:
        with pytest.raises(layercast.FailedPrecondition, match="nothing is staged"):
            receiver.commit()
        publisher.publish(sources, step=1)
        receiver.stage(publisher)
        assert difference(buffers, served) == ""
        receiver.abort()
        with pytest.raises(layercast.FailedPrecondition, match="nothing is staged"):
            receiver.prepare()
        receiver.stage(publisher)
        receiver.prepare()
        report = receiver.commit()
        assert report.version.step == 1 and receiver.version == report.version
    assert difference(buffers, replayed(RECORDING, sources)) == ""


def test_a_version_can_be_asked_for_and_fetched_whole(publisher):
    sources = known_weights(RECORDING)
    published = publisher.publish(sources, step=9)
    found = offered(publisher.endpoint)
    assert found.version == published.version and {one.name for one in found.specs} == sources.keys()
    version, tensors = fetch(publisher.endpoint)
    assert version == published.version
    assert all(torch.equal(tensors[name], tensor) for name, tensor in sources.items())
    with pytest.raises(layercast.NotFound):
        offered(publisher.endpoint, step=3)
    with pytest.raises(layercast.Error):
        offered("tcp://127.0.0.1:9", timeout=0.2)


def test_a_version_is_fetched_in_parts_of_so_many_bytes_or_one_tensor(publisher):
    sources = known_weights(RECORDING)
    publisher.publish(sources, step=9)
    parts = list(fetch_in_parts(publisher.endpoint, offered(publisher.endpoint), 600))
    assert [name for part in parts for name in part] == list(sources)
    sizes = [(len(part), sum(tensor.nbytes for tensor in part.values())) for part in parts]
    assert all(count == 1 or size <= 600 for count, size in sizes) and max(count for count, _ in sizes) > 1 < len(sizes)
    assert all(torch.equal(tensor, sources[name]) for part in parts for name, tensor in part.items())


def test_a_version_that_is_not_published_yet_is_waited_for(publisher):
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(offered_in_time, publisher.endpoint, lineage="policy", step=9, timeout=60)
        publisher.publish(known_weights(RECORDING), step=9)
        assert found.result().version.step == 9
    with pytest.raises(layercast.NotFound):
        offered_in_time(publisher.endpoint, lineage="policy", step=10, timeout=0.1)
