"""Recordings of loaders, replayed, against the same loaders with real tensors."""

import random

import layercast
import pytest
import torch
from layercast import Box, Copy, Recording, TensorSpec
from layercast.dtypes import safetensors_name
from layercast.host.known_weights import LARGEST, known_weights, replayed
from layercast.host.loader_run import computed_values, prove_loader
from layercast.host.memory import Computed
from layercast.host.receivers import Receivers, memory_for
from layercast.host.recorder import record
from layercast.host.whole_sources import beside, whole_sources

SHAPES = {"a": (8, 6), "b": (8, 6), "c": (4, 12), "v": (6,), "n": ()}


def loaded_by(load, targets, sources):
    """What the loader's recording leaves in the targets, what the loader itself does, and what was recorded."""
    specs = [TensorSpec(name, safetensors_name(tensor.dtype), tuple(tensor.shape)) for name, tensor in sources.items()]
    given = {name: torch.nn.Parameter(tensor.clone(), False) for name, tensor in targets.items()}
    recorded = record(lambda tensors: load(dict(tensors), given), given, specs)
    assert all(torch.equal(given[name], tensor) for name, tensor in targets.items()), "a live tensor was written"
    load({name: tensor.clone() for name, tensor in sources.items()}, targets)
    return replayed(recorded.recording, sources), targets, recorded


def sources(dtype=torch.float32):
    torch.manual_seed(3)
    return {name: torch.randn(shape).to(dtype) for name, shape in SHAPES.items()}


def zeros(**shapes):
    return {f"m.{name}": torch.full(shape, 3.0) for name, shape in shapes.items()}


def of(shape, load, given=None):
    got, want, recorded = loaded_by(lambda s, t: load(s, t["m.w"]), zeros(w=shape), given or sources())
    return got.get("m.w"), want["m.w"], recorded


def filled(*pieces):
    def load(given, to):
        scratch = torch.empty(16, 6)
        for name, begin in pieces:
            scratch[begin : begin + 8] = given[name]
        to.copy_(scratch)

    return load


def in_turn(given, to):
    to.view(2, 8, 6)[0].copy_(given["a"])
    to.view(2, 8, 6)[1].copy_(given["b"])


LOADERS = {
    "cat": ((16, 6), lambda s, w: w.copy_(torch.cat([s["a"], s["b"]]))),
    "cat of columns": ((8, 12), lambda s, w: w.copy_(torch.cat([s["a"], s["b"]], dim=-1))),
    "stack": ((2, 8, 6), lambda s, w: w.copy_(torch.stack([s["a"], s["b"]]))),
    "stack within": ((8, 2, 6), lambda s, w: w.copy_(torch.stack((s["a"], s["b"]), 1))),
    "transposed and contiguous": ((6, 8), lambda s, w: w.copy_(s["a"].t().contiguous())),
    "reshaped after a transpose": ((48,), lambda s, w: w.copy_(s["a"].view(2, 4, 6).transpose(0, 1).reshape(-1))),
    "a clone of a slice": ((4, 3), lambda s, w: w.copy_(s["a"][2:6, 3:].clone())),
    "pieces of scratch": ((16, 6), filled(("a", 0), ("b", 8))),
    "pieces of scratch, the later first": ((16, 6), filled(("b", 8), ("a", 0))),
    "scratch that is written twice": ((16, 6), filled(("a", 0), ("b", 4), ("a", 8))),
    "a parameter that is written twice": ((8, 6), lambda s, w: (w.copy_(s["a"]), w.copy_(s["b"]))),
    "a parameter of which a part is written twice": ((8, 6), lambda s, w: (w.copy_(s["a"]), w[2:4].copy_(s["b"][:2]))),
    "zeros, then a part": ((8, 8), lambda s, w: (w.zero_(), w[:, :6].copy_(s["a"]))),
    "zeros of scratch, then a part": ((8, 8), lambda s, w: w.copy_(_padded(s["a"]))),
    "padded": ((10, 8), lambda s, w: w.copy_(torch.nn.functional.pad(s["a"], (1, 1, 0, 2)))),
    "spread": ((4, 6), lambda s, w: w.copy_(s["v"].expand(4, 6))),
    "repeated": ((16, 12), lambda s, w: w.copy_(s["a"].repeat(2, 2))),
    "heads that are repeated": ((16, 6), lambda s, w: w.copy_(torch.repeat_interleave(s["a"], 2, 0))),
    "a number for each": ((3,), lambda s, w: w.copy_(s["n"])),
    "through a wider dtype": ((8, 6), lambda s, w: w.copy_(s["a"].double().clone())),
    "parts of one parameter in turn": ((16, 6), in_turn),
    "copied from another parameter's part": ((16, 6), lambda s, w: (w[:8].copy_(s["a"]), w[8:].copy_(w[:8]))),
    "every second row": ((8, 6), lambda s, w: (w[::2].copy_(s["a"][:4]), w[1::2].copy_(s["a"][4:]))),
    "split and chunk": ((8, 6), lambda s, w: [t.copy_(p) for t, p in zip(w.split([2, 6]), s["b"].split([2, 6]))]),
    "no elements": ((8, 6), lambda s, w: (w[:0].copy_(s["a"][:0]), w.zero_())),
    "a source that is replaced by zeros": ((6,), lambda s, w: (s["v"].zero_(), w.copy_(s["v"]))),
}


def _padded(tensor):
    scratch = tensor.new_zeros(tensor.shape[0], tensor.shape[1] + 2)
    scratch[:, 1:-1] = tensor
    return scratch


@pytest.mark.parametrize("name", LOADERS)
def test_replays_what_the_loader_does(name):
    got, want, recorded = of(*LOADERS[name])
    assert recorded.computed == {} == recorded.refused
    assert torch.equal(got, want)


@pytest.mark.parametrize("name", LOADERS)
def test_a_receiver_takes_what_was_recorded(name):
    _, want, recorded = of(*LOADERS[name])
    buffers = {"m.w": torch.full(want.shape, 5.0)}
    with layercast.Receiver(recorded.recording, buffers=buffers) as receiver:
        receiver.reload_weights(list(sources().items()))
    assert torch.equal(buffers["m.w"], want)


COMPUTED = {
    "computed": ((8, 6), lambda s, w: w.copy_(-s["a"]), "a", "computed by aten.neg"),
    "computed in place": ((8, 6), lambda s, w: w.copy_(s["a"]).mul_(2), "a", "computed by aten.mul_"),
    "computed of the parameter": ((8, 6), lambda s, w: (w.copy_(s["a"]), w.copy_(-w.exp())), "a", "aten.neg"),
    "computed of two": ((8, 6), lambda s, w: w.copy_((s["a"] + s["b"]).t().t()), "ab", "computed by aten.add"),
    "computed of what was put together": ((16, 6), lambda s, w: w.copy_(-torch.cat([s["a"], s["b"]])), "ab", "neg"),
    "computed of scratch": ((16, 6), lambda s, w: filled(("a", 0), ("b", 8))(_negative(s), w), "ab", "aten.neg"),
    "computed of zeros and a part": ((8, 8), lambda s, w: w.copy_(_padded(s["a"]) * 2), "a", "aten.mul"),
    "computed into an argument": ((16, 6), lambda s, w: torch.cat([s["a"], s["b"]], out=w), "ab", "aten.cat.out"),
    "computed in a part": ((8, 6), lambda s, w: (w.copy_(s["a"]), w[0].copy_(s["v"] + 1)), "av", "aten.add"),
    "computed in two parts": (
        (16, 6),
        lambda s, w: (w.zero_(), w[:8].add_(s["a"]), w[8:].add_(s["b"])),
        "ab",
        "computed by aten.add_",
    ),
    "a source that is computed in place": ((8, 6), lambda s, w: w.copy_(s["a"].neg_()), "a", "computed by aten.neg_"),
    "filled with a number": ((8, 6), lambda s, w: (w.fill_(2), w[1:].copy_(s["a"][1:])), "a", "filled with 2.0"),
    "rounded on the way": ((8, 6), lambda s, w: w.copy_(s["a"].bfloat16()), "a", "rounded to torch.bfloat16, for a"),
    "rounded twice": ((8, 6), lambda s, w: w.copy_(s["a"].bfloat16().half()), "a", "and then to torch.float16"),
    "other bytes": ((8, 6), lambda s, w: w.copy_(s["a"].view(torch.int32)), "a", "float32 read as torch.int32"),
    "written as other bytes": (
        (8, 6),
        lambda s, w: w.view(torch.int32).copy_(s["a"].view(torch.int32)),
        "a",
        "torch.int32 written as torch.float32",
    ),
    "a diagonal": ((6,), lambda s, w: w.copy_(s["a"].diagonal()), "a", "'a': "),
}


def _negative(given):
    return {name: -tensor for name, tensor in given.items()}


@pytest.mark.parametrize("name", COMPUTED)
def test_says_of_which_sources_a_target_is_computed(name):
    shape, load, fed, words = COMPUTED[name]
    _, _, recorded = of(shape, load)
    assert list(recorded.computed) == ["m.w"] and recorded.refused == {}
    assert recorded.computed["m.w"].sources == set(fed) and words in recorded.computed["m.w"].why
    assert [spec.name for spec in recorded.fed()] == [name for name in SHAPES if name in fed]
    assert recorded.recording.parameters == () == recorded.recording.copies


def around(shape):
    """A model on meta, of one parameter."""
    model = torch.nn.Module()
    model.m = torch.nn.Module()
    model.m.w = torch.nn.Parameter(torch.empty(shape, device="meta"), False)
    return model


@pytest.mark.parametrize("name", COMPUTED)
def test_the_loader_computes_it_of_sources_that_a_receiver_took_whole(name):
    shape, load, _, _ = COMPUTED[name]
    _, want, recorded = of(shape, load)
    model, part = around(shape), beside(recorded, ())
    staged = memory_for(part)
    with layercast.Receiver(part, buffers=staged) as receiver:
        receiver.reload_weights(list(sources().items()))

    def run(given, fill=0):
        return computed_values(lambda s: load(dict(s), model.m.w), model, recorded, given, [torch.zeros(1)], fill)

    prove_loader(run, recorded, "a test's")
    for _ in range(2):  # a loader may change what it is given
        assert torch.equal(run(whole_sources(part, staged), 7)["m.w"], want)
    assert model.m.w.is_meta


def test_a_value_that_depends_on_the_order_of_its_sources_is_refused_by_name():
    def load(given, w):
        first, second = (given[name] for name in given if name in "ab")
        w.copy_(first - second)

    shape = (8, 6)
    _, _, recorded = of(shape, load)
    assert recorded.computed["m.w"].sources == {"a", "b"}
    model = around(shape)

    def run(given, fill):
        return computed_values(lambda s: load(dict(s), model.m.w), model, recorded, given, [torch.zeros(1)], fill)

    with pytest.raises(layercast.Unsupported, match="'m.w': .* a test's loader makes it of more .* their order"):
        prove_loader(run, recorded, "a test's")


def test_whole_sources_belong_to_the_layer_of_their_copies_and_have_names_of_their_own():
    def load(given, to):
        to["x.w"].copy_(given["a"])
        to["y.w"].copy_(given["a"] + given["b"])

    targets = {name: torch.zeros(8, 6) for name in ("x.w", "y.w")}
    _, _, recorded = loaded_by(load, targets, sources())
    assert [spec.name for spec in beside(recorded, ["x.w"]).parameters] == [
        "x.w", "x.layercast_source:0", "y.layercast_source:1"
    ]
    assert [spec.name for spec in beside(recorded, ()).parameters] == ["y.layercast_source:0", "y.layercast_source:1"]


def test_a_loader_that_would_write_what_is_served_is_refused_before_it_does():
    shape, load, _, _ = COMPUTED["computed"]
    _, _, recorded = of(shape, load)
    served = torch.zeros(8, 6)
    writes = [lambda s: served[2:].copy_(dict(s)["a"][2:]), lambda s: served.view(-1).add_(1)]
    for write in writes:
        with pytest.raises(layercast.Internal, match="a tensor .* that is served"):
            computed_values(write, around(shape), recorded, {"a": sources()["a"]}, [served])
    assert not served.any()


def test_what_is_left_to_a_loader_is_in_its_memory_before_anything_that_is_served_changes():
    targets = zeros(w=(8, 6)) | {"n.w": torch.zeros(8, 6)}
    _, _, recorded = loaded_by(
        lambda s, t: (t["m.w"].copy_(s["a"]), t["n.w"].copy_(-s["b"])), targets, given := sources()
    )
    live = {"m.w": torch.zeros(8, 6)}
    options = {"engine": "test", "quantization": "none"}
    receivers = Receivers(recorded.recording, live, part := beside(recorded, ()), **options)
    with layercast.Publisher(lineage="run") as publisher:
        publisher.publish(given, step=1)
        for attempt, given_up in ((1, True), (2, False)):
            receivers.stage([publisher.endpoint], lineage="run", step=1, attempt=attempt)
            receivers.prepare()
            assert torch.equal(whole_sources(part, receivers.staged)["b"], given["b"])
            assert not live["m.w"].any() and receivers.version is None
            if given_up:
                receivers.abort()
        receivers.commit()
        receivers.verify()
    assert torch.equal(live["m.w"], given["a"]) and receivers.version.step == 1
    receivers.close()


REFUSED = {
    "a part is left out": ((8, 6), lambda s, w: w[:7].copy_(s["a"][:7]), "no source fills 6 of its 48"),
    "values of its own": ((8, 6), lambda s, w: (w.copy_(s["a"]), w[0].copy_(torch.arange(6))), "loader's own"),
    "computed with values of its own": ((8, 6), lambda s, w: w.copy_(s["a"] * torch.arange(6)), "computed by aten.mul"),
    "computed of what it served": ((8, 6), lambda s, w: w.copy_(w + s["a"]), "computed by aten.add"),
    "added to what it served": ((8, 6), lambda s, w: w.add_(s["a"]), "computed by aten.add_"),
    "accumulated": (
        (8, 6),
        lambda s, w: (w.copy_(s["a"]), w.add_(s["b"])),
        "accumulated by aten.add_.Tensor, in the order in which 'a' and 'b' come",
    ),
    "random": ((8, 6), lambda s, w: w.copy_(torch.rand_like(s["a"])), "random, by aten.rand_like"),
    "scratch with a hole": ((16, 6), filled(("a", 0)), "nothing was written into"),
    "zeros alone": ((8, 6), lambda s, w: w.zero_(), "zeros that come of no source"),
    "a number alone": ((8, 6), lambda s, w: w.fill_(2), "filled with 2.0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_is_not_made_of_sources_alone(name):
    shape, load, words = REFUSED[name]
    _, _, recorded = of(shape, load)
    assert list(recorded.refused) == ["m.w"] and words in recorded.refused["m.w"]
    assert recorded.computed == {} and recorded.fed() == ()
    assert recorded.recording.parameters == () == recorded.recording.copies


def test_a_tensor_that_takes_the_place_of_a_parameters_is_a_copy_of_it():
    target = torch.nn.Parameter(torch.empty(8, 6, device="meta"), False)

    def load(tensors):
        target.data = dict(tensors)["a"][:, :]

    whole = Box((0, 0), (8, 6))
    recorded = record(load, {"m.w": target}, [TensorSpec("a", "F32", (8, 6))])
    assert recorded.recording.copies == (Copy("a", "m.w", whole, whole),)


def test_writes_boxes_that_can_come_in_parts():
    _, _, recorded = of(*LOADERS["pieces of scratch"])
    whole = Box((0, 0), (8, 6))
    assert recorded.recording.copies == (Copy("a", "m.w", whole, whole), Copy("b", "m.w", whole, Box((8, 0), (8, 6))))


def test_a_cast_to_the_parameters_dtype_is_one_copy():
    given = {"a": torch.randn(8, 6)}
    targets = {"m.w": torch.zeros(8, 6, dtype=torch.bfloat16)}
    got, want, recorded = loaded_by(lambda s, t: t["m.w"].copy_(s["a"].bfloat16().float()), targets, given)
    assert recorded.computed == {} and torch.equal(got["m.w"], want["m.w"])


def test_parameters_that_nothing_fills_are_named_and_a_tensor_of_two_layers_is_left_to_the_loader_in_one():
    def load(given, to):
        to["x.w"].copy_(given["a"])
        to["x.bias"].copy_(given["v"])
        to["y.w"].copy_(given["a"])

    targets = {name: torch.zeros(8, 6) for name in ("x.w", "y.w", "z.w")} | {"x.bias": torch.zeros(6)}
    _, _, recorded = loaded_by(load, targets, sources())
    assert recorded.unwritten == ("z.w",)
    assert recorded.computed == {"y.w": Computed("'a' goes into 'x.w' too, of another layer", frozenset("a"))}
    assert [spec.name for spec in recorded.recording.parameters] == ["x.w", "x.bias"]


def test_five_axes_are_recorded_and_received():
    shape = (6, 3, 2, 2, 2)
    given = {"five": torch.randn(shape), "b": torch.randn(2, 3, 2, 2, 2)}
    got, want, recorded = of(shape, lambda s, w: (w[:4].copy_(s["five"][2:]), w[4:].copy_(s["b"])), given)
    assert recorded.computed == {} == recorded.refused and torch.equal(got, want)
    buffers = {"m.w": torch.full(shape, 5.0)}
    with layercast.Receiver(recorded.recording, buffers=buffers) as receiver:
        receiver.reload_weights(list(given.items()))
    assert torch.equal(buffers["m.w"], want)


def test_tensors_of_more_axes_than_a_box_has_are_refused():
    shape = (2, 3, 1, 2, 2, 1)
    _, _, recorded = of(shape, lambda s, w: w.copy_(s["six"]), {"six": torch.randn(shape)})
    assert "expected at most 5 axes, got [2, 3, 1, 2, 2, 1]" in recorded.refused["m.w"]


def test_a_loader_that_looks_at_values_is_refused():
    with pytest.raises(layercast.Unsupported, match="looks at the values of weights"):
        of((8, 6), lambda s, w: w.copy_(s["a"]) if s["n"].item() > 0 else None)


def _random_tensor(dice, given):
    """What a random chain of a loader's operators makes of the sources."""
    tensor = given[dice.choice("abcv")]
    for _ in range(dice.randint(0, 5)):
        kind = dice.choice(["view", "view", "clone", "reshape", "cat", "stack", "pad", "scratch", "expand", "cast"])
        d = dice.randrange(tensor.dim())
        if kind == "view":
            begin = dice.randrange(tensor.shape[d])
            tensor = tensor.narrow(d, begin, dice.randint(1, tensor.shape[d] - begin))
            tensor = tensor.transpose(d, dice.randrange(tensor.dim()))
        elif kind == "clone":
            tensor = tensor.clone() if dice.random() < 0.5 else tensor.contiguous()
        elif kind == "reshape":
            inner = dice.choice([n for n in range(1, tensor.numel() + 1) if tensor.numel() % n == 0])
            tensor = tensor.reshape(-1, inner)
        elif kind == "cat":
            tensor = torch.cat([tensor, tensor.narrow(d, 0, 1)], d)
        elif kind == "stack" and tensor.dim() < 3:
            tensor = torch.stack([tensor, tensor], d)
        elif kind == "pad":
            tensor = torch.nn.functional.pad(tensor, (dice.randint(0, 1), dice.randint(0, 2)))
        elif kind == "scratch":
            scratch = torch.zeros(tensor.shape)
            scratch.copy_(tensor)
            scratch.narrow(d, 0, 1).zero_()
            tensor = scratch
        elif kind == "expand" and tensor.dim() < 3:
            tensor = tensor.unsqueeze(0).expand(2, *tensor.shape)
        elif kind == "cast":
            tensor = tensor.to(torch.float64)
    return tensor


@pytest.mark.parametrize("seed", range(4))
def test_replays_random_loaders(seed):
    dice, refused, count = random.Random(seed), 0, 60
    for _ in range(count):
        state = dice.getstate()
        shape = tuple(_random_tensor(dice, sources()).shape)

        def load(given, to, state=state):
            again = random.Random()
            again.setstate(state)
            to.copy_(_random_tensor(again, given))
            to.narrow(0, 0, 1).copy_(to.narrow(0, shape[0] - 1, 1))

        got, want, recorded = of(shape, load)
        if recorded.computed or recorded.refused:
            refused += 1
        else:
            assert torch.equal(got, want), state
    assert refused < count / 5


def test_known_weights_tell_recipes_apart_that_differ_in_rounding_alone():
    """Also on a rank that has not the row of tiny values."""
    codes, scales = set(), set()
    for largest in LARGEST:
        part = Recording((TensorSpec("w", "BF16", (64, 64)),), (), (), {})
        weights = known_weights(part, largest)["w"][:32].float()
        amax = weights.amax(1, keepdim=True)
        one = torch.tensor(1.0)
        for scaled in (weights / (amax / 448), weights * (1 / (amax / 448)), weights * (448 / amax)):
            codes.add((largest, scaled.to(torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes()))
        scales |= {(largest, float(scale[0])) for scale in (amax / 448, amax * (one / 448), 1 / (448 / amax))}
    assert len({code for largest, code in codes if largest == LARGEST[0]}) == 3
    assert len({scale for largest, scale in scales if largest == LARGEST[1]}) == 3
