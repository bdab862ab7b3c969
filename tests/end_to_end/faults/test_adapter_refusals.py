"""What users get wrong with LoRA adapters: it is refused, by name, and nothing changes."""

import shutil

import pytest

import adapters
import program as layercast_program
from adapter_setting import AdapterSetting


@pytest.fixture(scope="module")
def kept(checkpoint_cache):
    return adapters.Kept(checkpoint_cache)


@pytest.fixture(scope="module")
def setting(program, start_shared, checkpoint, kept):
    """One engine for all: whatever is refused changes nothing in it."""
    setting = AdapterSetting(program, start_shared, kept, kept.base(checkpoint("llama", "a")))
    setting.serve("--tp", 2, max_rank=16)
    setting.load("policy", 0)
    return setting


@pytest.fixture(autouse=True)
def unchanged(setting):
    before = setting.list(), setting.answer(), setting.answer(None)
    yield
    assert (setting.list(), setting.answer(), setting.answer(None)) == before


@pytest.fixture
def changed(setting, tmp_path):
    """changed(r=9) -> a folder like a good one, but for these fields of its configuration."""

    def write(**fields):
        shutil.copytree(setting.folder(1, "query_value"), tmp_path / "changed")
        return adapters.edit(tmp_path / "changed", lambda tensors: tensors, **fields)

    return write


def refused(setting, folder, code, *said, name="policy"):
    error = setting.load_from("--path", folder, name=name, status=1)["error"]
    assert error["code"] == code, error
    assert all(words in error["message"] for words in said), error


REFUSED_FIELDS = [
    ("peft_type", "LOHA"), ("peft_type", "ADALORA"), ("use_dora", True), ("lora_bias", True), ("bias", "all"), ("bias", "lora_only"),
    ("modules_to_save", ["norm"]), ("trainable_token_indices", [1]), ("trainable_token_indices", {"embed_tokens": [1]}),
    *(("init_lora_weights", way) for way in ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "of_tomorrow")),
    ("alora_invocation_tokens", [1]), ("use_qalora", True), ("use_bdlora", {"nblocks": 2}), ("layer_replication", [[0, 2]]),
    ("arrow_config", {"top_k": 2}), ("kasa_config", {"beta": 1}), ("monteclora_config", {"n": 1}), ("velora_config", {"n": 1}),
    ("megatron_config", {"tensor_model_parallel_size": 2}), ("of_tomorrow", True),
]


@pytest.mark.parametrize("field, value", REFUSED_FIELDS, ids=str)
def test_a_field_that_is_not_served_is_named(field, value, setting, changed):
    refused(setting, changed(**{field: value}), "unsupported", f"{field}: ")


@pytest.mark.parametrize("field, value", [("r", 9), ("r", 0), ("lora_alpha", "much"), ("use_rslora", "yes"),
                                          ("rank_pattern", {"[": 4})], ids=str)
def test_a_field_that_is_wrong_is_named(field, value, setting, changed):
    refused(setting, changed(**{field: value}), "invalid_argument", "rank 9" if (field, value) == ("r", 9) else f"{field}: ")


NO_EFFECT = [("init_lora_weights", way) for way in (False, "gaussian", "orthogonal", "eva", "mica")] + [
    ("lora_dropout", 0.5), ("inference_mode", False), ("task_type", "CAUSAL_LM"), ("exclude_modules", ["o_proj"]),
    ("layers_to_transform", [0]), ("layers_pattern", "layers"), ("fan_in_fan_out", True), ("base_model_name_or_path", "somebody/else"),
    ("of_tomorrow", None), ("of_tomorrow", []), ("eva_config", {"rho": 2}), ("target_modules", ["q_proj", "v_proj", "nowhere"])]


def test_fields_that_do_not_act_change_nothing(program, start, kept, setting, changed):
    own = AdapterSetting(program, start, kept, setting.base)
    own.serve()
    plain = own.load_from("--path", setting.folder(1, "query_value"))
    slot, answer = own.list()[0]["digests"], own.answer()
    for field, value in NO_EFFECT:
        folder = changed(**{field: value})
        assert own.load_from("--path", folder)["version"]["digest"] == plain["version"]["digest"], field
        assert own.list()[0]["digests"] == slot and own.answer()["logprobs"] == answer["logprobs"], field
        shutil.rmtree(folder)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_file_that_is_not_there_is_named(file, setting, changed):
    folder = changed()
    (folder / file).unlink()
    refused(setting, folder, "not_found", str(folder), file)


def test_a_folder_that_is_none_or_a_checkpoints_is_named(setting, tmp_path):
    refused(setting, tmp_path / "nowhere", "not_found", str(tmp_path / "nowhere"))
    refused(setting, setting.base, "not_found", str(setting.base), "adapter_config.json")


def test_two_files_of_tensors_are_one_too_many(setting, changed):
    folder = changed()
    shutil.copy(folder / "adapter_model.safetensors", folder / "adapter_model.bin")
    refused(setting, folder, "invalid_argument", "adapter_model.bin", "adapter_model.safetensors")


def test_added_tokens_are_refused_by_their_file(setting, changed):
    folder = changed()
    (folder / "new_embeddings.safetensors").write_bytes(b"")
    refused(setting, folder, "unsupported", "new_embeddings.safetensors")


def test_a_rank_that_no_slot_holds(setting, tmp_path):
    folder = adapters.make(setting.base, tmp_path / "large", "query_value", rank_pattern={"v_proj": 17})
    refused(setting, folder, "invalid_argument", "v_proj", "at most 16", "17")


@pytest.mark.parametrize("spec, said", [("gemma3", ("layers.2.",)), ("mixtral", ("mlp.experts",)),
                                        ("qwen2_untied", ("[160, 320]", "[160, 160]"))])
def test_an_adapter_of_another_model(spec, said, setting, kept, checkpoint):
    refused(setting, kept.adapter(kept.base(checkpoint(spec, "a")), "all-linear"), "invalid_argument", *said)


def test_a_vision_tower_is_not_served(program, start, kept, checkpoint, tmp_path):
    base = kept.base(checkpoint("gemma3_vision", "a"))
    own = AdapterSetting(program, start, kept, base)
    own.serve()
    folder = adapters.make(base, tmp_path / "vision", {"target_modules": ["q_proj"]})
    assert {True, False} == {"vision_tower" in name for name in adapters.read(folder)}
    refused(own, folder, "invalid_argument", "vision_tower", "not served")
    adapters.edit(folder, lambda tensors: {name: tensor for name, tensor in tensors.items() if "vision_tower" not in name})
    own.load_from("--path", folder)
    own.assert_is_peft(own.answer(), folder)


@pytest.mark.parametrize("module, shape", [("norm", (80, 80)), ("mixer.conv1d", (208, 1))])
def test_what_has_no_low_rank_form(module, shape, program, start, kept, checkpoint, tmp_path):
    import torch

    own = AdapterSetting(program, start, kept, kept.base(checkpoint("mamba2", "a")))
    own.serve()
    folder = shutil.copytree(own.folder(0, "query_value"), tmp_path / "odd")
    path = f"base_model.model.backbone.layers.0.{module}"
    factors = {f"{path}.lora_A.weight": torch.ones(8, shape[1]), f"{path}.lora_B.weight": torch.ones(shape[0], 8)}
    adapters.edit(folder, lambda _: factors)
    refused(own, folder, "invalid_argument", f"layers.0.{module}")


def test_an_embedding_with_more_tokens_than_the_base(setting, tmp_path):
    import torch

    folder = adapters.make(setting.base, tmp_path / "wider", "ends")

    def widen(tensors):
        name = next(name for name in tensors if "lora_embedding_A" in name)
        return {**{key: value for key, value in tensors.items() if "base_layer" not in key},
                name: torch.cat([tensors[name], torch.ones(len(tensors[name]), 2)], 1)}

    refused(setting, adapters.edit(folder, widen), "invalid_argument", "1003", "1005")


def test_a_copy_of_another_base(setting, tmp_path):
    """PEFT adds the base's embedding and head to the file. If they differ, the base was trained too."""
    folder = adapters.make(setting.base, tmp_path / "trained", "ends")
    name = next(name for name in adapters.read(folder) if name.endswith("lm_head.base_layer.weight"))

    def train(tensors):
        tensors[name][7, 3] += 1
        return tensors

    error = setting.load_from("--path", adapters.edit(folder, train), status=1)["error"]
    assert "lm_head" in error["message"], error


@pytest.mark.parametrize("version", ["0.17.0", "0.18.1", None])
def test_stacked_experts_of_an_older_peft(version, program, start, kept, checkpoint, tmp_path):
    """Before 0.19.1 the same names meant another function."""
    setting = AdapterSetting(program, start, kept, kept.base(checkpoint("qwen3_moe", "a")))
    setting.serve()
    folder = shutil.copytree(setting.folder(0, "experts"), tmp_path / "older")
    adapters.edit(folder, lambda tensors: tensors, peft_version=version)
    if version is None:  # the shapes fit one reading alone
        setting.load_from("--path", folder)
    else:
        refused(setting, folder, "unsupported", version, "0.19.1")


# ---- engines, names and versions ------------------------------------------------------------------------------------

def test_an_engine_without_slots_says_which_flag_gives_it_some(program, start, setting):
    engine = start("serve", "--model", setting.base)
    commands = [("adapter", action, "--engine", engine.endpoint, "--name", "policy", *words)
                for action, words in (("load", ("--path", setting.folder(0))), ("unload", ()), ("pin", ()))]
    outcomes = [program.run(*command, status=1).json["outcomes"][0]["error"] for command in commands]
    outcomes.append(program.refused(*setting.asking("policy", engine=engine)))
    for error in outcomes:
        assert error["code"] == "failed_precondition" and "--adapter-slots" in error["message"]


def test_names_that_are_not_there(program, setting):
    verify = ("verify", "--engine", setting.engine.endpoint, "--adapter", "nobody", "--model", setting.folder(0))
    errors = [program.refused(*command) for command in (setting.asking("nobody"), verify)]
    errors += [setting.call(action, "nobody", status=1)["error"] for action in ("unload", "pin", "unpin")]
    for error in errors:
        assert error["code"] == "not_found" and "'nobody'" in error["message"] and "'policy'" in error["message"], error


@pytest.mark.parametrize("name", ["a/b", "a,b", "*", "a b", " ", "line\n", "\x7f"])
def test_names_that_are_none(name, setting):
    """What means something in a version or in a list."""
    said = "control characters" if name.strip("\n\x7f") != name else "slashes, commas, asterisks and blanks"
    refused(setting, setting.folder(0), "invalid_argument", said, name=name)


def test_layers_that_the_slots_have_no_room_for(program, start, kept, setting):
    narrow = AdapterSetting(program, start, kept, setting.base)
    narrow.serve("--adapter-modules", "qkv_proj")
    error = narrow.load("policy", 0, status=1)["error"]
    assert error["code"] == "unsupported" and "adapter modules" in error["message"]
    narrow.load_from("--path", setting.folder(1, "query_value"))


def test_what_a_publisher_has_not(program, start, setting):
    base = start("publish", "--model", setting.base)
    two = ("--adapter", f"one={setting.folder(0)}", "--adapter", f"two={setting.folder(1)}")
    both = start("publish", *two, "--lineage", "run", "--step", 3)

    def error(publisher, *words):
        return setting.load_from("--publisher", publisher.endpoint, *words, status=1)["error"]

    assert "has no adapters" in error(base)["message"]
    several = error(both)
    assert several["code"] == "invalid_argument" and "'one'" in several["message"] and "'two'" in several["message"]
    missing = error(both, "--adapter", "three")
    assert missing["code"] == "not_found" and "'three'" in missing["message"] and "'one'" in missing["message"]
    assert "run@9" in error(both, "--adapter", "one", "--version", "run@9")["message"]


@pytest.mark.parametrize("words, said", [
    (("--adapter-slots", 2, "--adapter-modules", "zz_proj"), "'zz_proj'"), (("--adapter-slots", 2, "--adapter", "policy"), "NAME=DIR"),
    (("--adapter", "policy={good}"), "--adapter-slots"),
    (("--adapter-slots", 2, "--adapter", "policy=/nowhere/to/be/found"), "/nowhere/to/be/found"),
    (("--adapter-slots", 2, "--max-adapter-rank", 513), "--max-adapter-rank"),
    (("--adapter-slots", 2, "--adapter-switch", "wait"), "'wait'"),
    (("--adapter-slots", 2, "--max-adapter-rank", 4, "--adapter", "policy={good}"), "at most 4"),
    (("--adapter-slots", 4096, "--max-adapter-rank", 512, "--adapter-dtype", "f32"), "gate_up_proj")], ids=lambda value: str(value)[:60])
def test_engines_that_do_not_start(words, said, start, setting):
    with pytest.raises(layercast_program.ProgramFailed) as failed:
        start("serve", "--model", setting.base, *(str(word).format(good=setting.folder(0)) for word in words))
    assert said in str(failed.value).partition("stderr")[0]


def test_publishers_that_do_not_start(program, setting):
    good = setting.folder(0)
    for words, status, said in ((("--adapter", f"a={good}", "--adapter", f"a={good}"), 2, "'a' twice"),
                                (("--adapter", "policy"), 2, "NAME=DIR"), (("--adapter", "a=/nowhere"), 1, "/nowhere"),
                                ((), 2, "--adapter")):
        assert said in program.refused("publish", *words, status=status)["message"]
