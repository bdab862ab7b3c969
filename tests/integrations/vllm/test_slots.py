"""Slots that Layercast fills, of vLLM's own layers and managers on every rank of a model: each byte is what vLLM's own load of
the same PEFT folder leaves."""

import contextlib
import copy
import json
import math
import types

import layercast
import layercast.vllm
import models
import peft
import pytest
import safetensors.torch
import torch
import transformers
from layercast.vllm.adapter_paths import path_of
from layercast.vllm.lora_adapters import LoraAdapters
from layercast.vllm.sync import Engine

RANKS = [(0, 1), (0, 2), (1, 2)]
LINEAR = ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
CONFIGS = {
    "llama": {"target_modules": LINEAR, "rank_pattern": {"v_proj": 3}, "use_rslora": True},
    "llama_tied": {"target_modules": ["q_proj", "k_proj", "embed_tokens"]},
    "qwen3": {"target_modules": [*LINEAR, "lm_head"], "alpha_pattern": {"o_proj": 5}},
    "phi3": {"target_modules": ["qkv_proj", "gate_up_proj", "o_proj"]},
}
SIZES = {"enable_lora": True, "max_loras": 2, "max_cpu_loras": 3, "max_lora_rank": 16}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """folders(name) -> the model's folder, and those of three adapters of one form."""
    made = {}

    def of(name):
        if name not in made:
            model = tmp_path_factory.mktemp(name)
            models.saved(name, model)
            base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
            adapters = [tmp_path_factory.mktemp(f"{name}-{seed}") for seed in range(3)]
            for seed, folder in enumerate(adapters):
                torch.manual_seed(seed)
                config = peft.LoraConfig(**{"r": 8, "lora_alpha": 11, "init_lora_weights": False, **CONFIGS[name]})
                peft.get_peft_model(copy.deepcopy(base), config).save_pretrained(folder)
            made[name] = model, adapters
        return made[name]

    return of


class Worker:
    """One rank of vLLM's, of its own classes but for processes and forward passes."""

    def __init__(self, config):
        from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager

        self.rank = 0
        self.manager = LRUCacheWorkerLoRAManager(config, torch.device("cpu"), {"embed_tokens": "", "lm_head": ""})
        self.model = self.manager.create_lora_manager(models.built(config), config)
        self.model_runner = types.SimpleNamespace(lora_manager=self.manager)
        self.engine, self.others = Engine(self._answers), False

    def _answers(self, op, arguments):
        """And, if there are ``others``, those of a rank that has all that this one has not."""
        mine = layercast.vllm._answer(self, op, arguments)
        has_all = {name: [] for name in mine.get("unused", {})}
        return [mine, {**mine, "rank": 1, "unused": has_all}] if self.others else [mine]

    @property
    def registry(self):
        return self.manager._adapter_manager

    def use(self, *requests):
        """What a forward pass does with adapters before it computes."""
        from vllm.lora.layers import LoRAMapping

        ids = tuple(request.lora_int_id for request in requests)
        self.manager.set_active_adapters(set(requests), LoRAMapping(ids, ids))

    def slot(self, number):
        """All stacked tensors of the slot that an id is in, by name; None: it is in none."""
        if number not in self.registry.lora_index_to_id:
            return None
        index = self.registry.lora_index_to_id.index(number)
        found = {}
        for path, layer in self.registry.modules.items():
            for name, held in layer.__dict__.items():
                if name.endswith("_stacked") and isinstance(held, (torch.Tensor, tuple)) or name == "adapter_enabled":
                    several = held if isinstance(held, tuple) else (held,)
                    found |= {f"{path}.{name}.{i}": one[index].clone() for i, one in enumerate(several)}
        return found


@contextlib.contextmanager
def worker_of(folder, tp_rank=0, tp_size=1, **options):
    with models.rank_of(folder, tp_rank=tp_rank, tp_size=tp_size, **SIZES | options) as config:
        yield Worker(config)


def request(name, number, path):
    from vllm.lora.request import LoRARequest

    return LoRARequest(name, number, str(path))


def load(worker, publisher, folder, step, **options):
    """Loads a version; returns the request that means it."""
    published = publisher.publish_adapters({"policy": folder}, step=step)
    answer = worker.engine.load_adapter(name="mine", endpoint=publisher.endpoint, **options)[0]
    assert answer["adapters"]["mine"]["step"] == step
    return request("mine", options.get("number") or 1, path_of("mine", published.version.digest))


def same(a, b):
    assert a.keys() == b.keys() and a
    return [name for name in a if not torch.equal(a[name], b[name])] == []


@pytest.mark.parametrize(("tp_rank", "tp_size"), RANKS)
@pytest.mark.parametrize("options", [{}, {"fully_sharded_loras": True}], ids=["", "sharded"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_slot_holds_what_vllm_loads_of_the_folder(folders, name, options, tp_rank, tp_size):
    model, adapters = folders(name)
    with worker_of(model, tp_rank, tp_size, **options) as worker, layercast.Publisher() as publisher:
        for number, folder in enumerate(adapters):
            worker.use(request("file", 10, folder))
            theirs = worker.slot(10)
            worker.manager.remove_adapter(10)
            for layer in worker.registry.modules.values():  # what an older adapter may have left
                layer.reset_lora(0)
            ours = load(worker, publisher, folder, number, number=20 + number)
            assert same(worker.slot(20 + number), theirs) and any(tensor.any() for tensor in theirs.values())
            worker.use(ours)
            assert same(worker.slot(20 + number), theirs)
            held = LoraAdapters.of(worker)._names["mine"].newest
            assert held.images is not None  # written by copies, and not left to vLLM
            taken = sum(math.prod(copy.source_box.extent) for copy in held.images[0].recording.copies)
            whole = sum(math.prod(spec.shape) for spec in held.reading.factors)
            assert taken < whole if tp_size == 2 else taken <= whole


def test_what_cannot_be_written_by_copies_is_left_to_vllm(folders, monkeypatch):
    model, (folder, *_) = folders("llama")
    monkeypatch.setattr("layercast.vllm.adapter_staging.plan_slot", lambda *_: None)
    with worker_of(model) as worker, layercast.Publisher() as publisher:
        ours = load(worker, publisher, folder, 0, number=20)
        worker.use(request("file", 10, folder))
        worker.manager.remove_adapter(20)
        worker.use(ours)  # the scale is in B once
        assert same(worker.slot(20), worker.slot(10))
        assert LoraAdapters.of(worker)._names["mine"].newest.images is None


def test_older_versions_stay_while_requests_mean_them(folders):
    model, adapters = folders("llama")
    with worker_of(model) as worker, layercast.Publisher() as publisher:
        first = load(worker, publisher, adapters[0], 0, number=20)
        worker.use(first)
        of_first = worker.slot(20)
        second = load(worker, publisher, adapters[1], 1, number=21)
        assert worker.slot(21) is not None  # in the slot that nobody needed, before its first request
        worker.use(first, second)  # which are equal to vLLM
        assert same(worker.slot(20), of_first) and not same(worker.slot(21), of_first)
        of_second = worker.slot(21)
        third = load(worker, publisher, adapters[2], 2, number=22)
        assert worker.slot(22) is None  # both slots are needed
        worker.use(second, third)
        worker.use(first, second)  # written again, from what the worker keeps
        assert same(worker.slot(20), of_first) and same(worker.slot(21), of_second)
        worker.engine.retire_adapter("mine", second.lora_path.partition("?")[2])
        worker.use(first, third)
        assert same(worker.slot(20), of_first) and worker.slot(21) is None
        with pytest.raises(Exception, match="mine"):
            worker.use(second)


@pytest.mark.parametrize("follows", [False, True])
def test_an_upsert_keeps_the_pin(folders, follows):
    model, adapters = folders("llama")
    with worker_of(model, max_loras=3, max_cpu_loras=3) as worker, layercast.Publisher() as publisher:
        path = path_of("mine")
        load(worker, publisher, adapters[0], 0)
        pinned = request("mine", 1, path)
        worker.use(pinned)
        worker.manager.pin_adapter(1)
        load(worker, publisher, adapters[1], 1, number=0 if follows else 2)
        now = 1 if follows else 2
        for other in range(10, 16):
            worker.use(request(f"file-{other}", other, adapters[2]))
        assert worker.slot(now) is not None and now in worker.manager.list_adapters()
        assert worker.registry._registered_adapters.pinned_items == {now}
        worker.manager.remove_all_adapters()  # as after a base of vLLM's own calls
        assert worker.slot(now) is not None and worker.registry._active_adapters.pinned_items == {now}


def test_a_version_that_two_servers_named_stays_until_neither_does(folders):
    model, adapters = folders("llama")
    with worker_of(model) as worker, layercast.Publisher() as publisher:
        one = load(worker, publisher, adapters[0], 0, number=20)
        worker.engine.load_adapter(name="mine", endpoint=publisher.endpoint, number=21)
        load(worker, publisher, adapters[1], 1, number=22)
        digest = one.lora_path.partition("?")[2]
        worker.engine.retire_adapter("mine", digest)
        worker.use(request("mine", 21, one.lora_path))
        worker.engine.retire_adapter("mine", digest)
        assert worker.slot(20) is worker.slot(21) is None
        assert digest not in LoraAdapters.of(worker)._names["mine"].versions


def test_factors_of_other_shapes_are_refused(folders):
    model, (folder, *_) = folders("llama")
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    wide = {name: torch.cat([tensor, tensor], 1) if "o_proj.lora_A" in name else tensor for name, tensor in tensors.items()}
    with worker_of(model) as worker, layercast.Publisher() as publisher:
        publisher.publish_adapters({"policy": (config, wide)}, step=0)
        with pytest.raises(layercast.InvalidArgument, match="adapter 'policy'.*128"):
            worker.engine.load_adapter(name="mine", endpoint=publisher.endpoint)


def test_requests_under_way_go_on_with_the_new_version_where_that_is_asked_for(folders):
    model, adapters = folders("llama")
    with worker_of(model) as worker, layercast.Publisher() as publisher:
        first = load(worker, publisher, adapters[0], 0, number=20)
        worker.use(first)
        second = load(worker, publisher, adapters[1], 1, number=21, pause_mode="keep")
        worker.use(first, second)
        assert same(worker.slot(20), worker.slot(21))


def test_what_a_rank_would_not_apply_is_refused_unless_another_does(folders):
    model, (folder, *_) = folders("llama")
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    elsewhere = {name.replace("layers.1.", "layers.7."): tensor for name, tensor in tensors.items()}
    with worker_of(model) as worker, layercast.Publisher() as publisher:
        publisher.publish_adapters({"policy": (config, elsewhere)}, step=0)
        with pytest.raises(layercast.InvalidArgument, match="layers.7"):
            worker.engine.load_adapter(name="mine", endpoint=publisher.endpoint)
        assert worker.engine.adapters()[0]["adapters"] == {}
        worker.others = True  # the last stage of a pipeline, which has that layer
        worker.engine.load_adapter(name="mine", endpoint=publisher.endpoint)
        assert worker.engine.adapters()[0]["adapters"]["mine"]["step"] == 0
