"""One worker's LayercastEngine around a model whose loader computes: what syncs leave, and failed ones do not."""

import contextlib

import cpu_ops
import layercast
import models
import pytest
import torch
from layercast.host.known_weights import difference
from layercast.vllm.load_time import tensors_of
from safetensors.torch import save_file


def version(name, folder, seed):
    """A checkpoint's tensors, of other values for each seed."""
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(t.shape, generator=random).to(t.dtype) for name, t in models.saved(name, folder).items()}


def served(config, tensors, wrap=lambda load: load):
    """A model after vLLM's own load and processing. ``wrap``: of its ``load_weights``."""
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    model = models.built(config)
    model.load_weights = wrap(model.load_weights)
    model.load_weights(iter({name: tensor.clone() for name, tensor in tensors.items()}.items()))
    process_weights_after_loading(model, config.model_config, torch.device("cpu"))
    return model


def contents(model):
    return {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}


class Case:
    """A worker that serves version 1 of a model, while a publisher offers version 2."""

    def __init__(self, config, publisher, one, two, wrap):
        from layercast.vllm.worker import LayercastEngine

        cpu_ops.register()
        publisher.publish(two, step=2)
        self.publisher, self.two = publisher, two
        self._cold = contents(served(config, two, wrap))
        self.model = served(config, one, wrap)
        self.old = contents(self.model)
        self._addresses = {name: tensor.data_ptr() for name, tensor in tensors_of(self.model).items()}
        self.engine = LayercastEngine(config.weight_transfer_config, config, torch.device("cpu"), self.model)

    def stage(self):
        self.engine.answer("stage", endpoint=self.publisher.endpoint, attempt=1)
        self.engine.drain_pending()
        self.engine.answer("prepare")
        return self.engine.answer("make")

    def serves_old(self):
        return difference(contents(self.model), self.old) == ""

    def serves_new(self):
        assert {name: tensor.data_ptr() for name, tensor in tensors_of(self.model).items()} == self._addresses
        return difference(contents(self.model), self._cold) == ""


@pytest.fixture
def case(tmp_path):
    """case(name, wrap) -> Case."""
    with contextlib.ExitStack() as stack:

        def make(name, wrap=lambda load: load):
            one, two = (version(name, tmp_path, seed) for seed in (1, 2))
            config = stack.enter_context(models.rank_of(tmp_path))
            made = Case(config, stack.enter_context(layercast.Publisher()), one, two, wrap)
            stack.callback(made.engine.shutdown)
            return made

        yield make


@pytest.mark.parametrize("name", ["mamba2", "falcon_h1", "nemotron_h", "mamba", "zamba2"])
def test_a_sync_leaves_the_bytes_of_vllms_own_load(case, name):
    one = case(name)
    state = one.stage()
    assert one.serves_old()
    assert state["reloaded"] == {path: f"'{path}.A': computed by aten.neg.default" for path in state["reloaded"]} != {}
    one.engine.answer("commit", attempt=1)
    assert one.serves_new() and not one.serves_old()


def test_a_cold_load_shows_a_byte_that_a_loader_has_computed(case, tmp_path):
    one = case("mamba2")
    one.stage()
    one.engine.answer("commit", attempt=1)
    save_file(one.two, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert one.engine.answer("verify", model=str(tmp_path))["differences"] == []
    one.model.backbone.layers[1].mixer.A.view(torch.uint8)[6] ^= 1
    (found,) = one.engine.answer("verify", model=str(tmp_path))["differences"]
    assert (found["tensor"], found["offset"]) == ("backbone.layers.1.mixer.A", 6)


def test_a_loader_that_raises_leaves_the_old_version_and_the_next_sync_succeeds(case, monkeypatch):
    one = case("mamba2")
    one.engine.init_transfer_engine(one.engine.init_info_cls(one.publisher.endpoint))

    def raises(weights):
        raise RuntimeError(f"no room for {next(weights)[0]}")

    with monkeypatch.context() as patched:
        patched.setattr(one.model, "load_weights", raises)
        with pytest.raises(RuntimeError, match=r"no room for backbone.layers.0.mixer.A_log"):
            one.stage()
    assert one.serves_old() and not one.engine.status()["torn"]
    one.stage()
    one.engine.answer("commit", attempt=1)
    assert one.serves_new()


def test_one_source_of_a_computed_and_of_a_direct_target_gives_both(case):
    """The norm's weight is copied into the norm, which is adopted, and negated into D of a mixer."""

    def wrap(load):
        def load_weights(weights):
            given = {name: tensor for name, tensor in weights if name != "backbone.layers.0.mixer.D"}
            if "backbone.norm_f.weight" in given:
                mixer = load.__self__.backbone.layers[0].mixer
                mixer.D.data.copy_(-given["backbone.norm_f.weight"][:8])
            return load(iter(given.items()))

        return load_weights

    one = case("mamba2", wrap)
    state = one.stage()
    assert "backbone.norm_f" in state["adopted"] and "backbone.layers.0.mixer" in state["reloaded"]
    one.engine.answer("commit", attempt=1)
    assert one.serves_new()


def of_each_call(load):
    """Multiplies A by how often it was called."""
    calls = []

    def load_weights(weights):
        calls.append(1)
        return load((name, tensor * len(calls) if name.endswith("A_log") else tensor) for name, tensor in weights)

    return load_weights


def of_more(load):
    """Fills A when another tensor comes."""

    def load_weights(weights):
        given = dict(weights)
        late = {name: given.pop(name) for name in list(given) if name.endswith("A_log")}
        load(iter(given.items()))
        if given:
            load(iter(late.items()))

    return load_weights


@pytest.mark.parametrize("wrap", [of_each_call, of_more])
def test_what_depends_on_more_than_its_sources_is_refused_by_name(case, wrap):
    one = case("mamba2", wrap)
    with pytest.raises(layercast.Unsupported, match=r"'backbone\.layers\.\d\.mixer\.A'.*vLLM's loader"):
        one.stage()
    assert one.serves_old()


def test_a_value_of_the_loaders_own_is_refused_by_name(case):
    def wrap(load):
        def load_weights(weights):
            given = dict(weights)
            return load((name, given[name] + torch.ones(8) if name == one_of_them else given[name]) for name in given)

        return load_weights

    one_of_them = "backbone.layers.0.mixer.A_log"

    one = case("mamba2", wrap)
    with pytest.raises(layercast.Unsupported, match=r"'backbone\.layers\.0\.mixer\.A'.*of the version alone"):
        one.stage()
    assert one.serves_old()


def test_a_version_without_a_source_is_refused_by_name(case):
    one = case("mamba2")
    less = {name: tensor for name, tensor in one.two.items() if name != "backbone.layers.1.mixer.A_log"}
    one.publisher.publish(less, step=3)
    with pytest.raises(layercast.InvalidArgument, match=r"no tensor for 'backbone\.layers\.1\.mixer\.A'"):
        one.stage()
    assert one.serves_old()
