"""Engines started from every format (--load-format) serve what the oracle makes of the Hugging Face files that the format
was written from; and where they may start from nothing, they take the next version like any other."""

import shutil

import pytest
import safetensors.torch

import other_formats


@pytest.fixture(scope="module")
def folders(checkpoint):
    return {version: checkpoint("llama", version) for version in "ab"}


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("load_format", ["pt", "mistral", "layered", "auto"])
def test_other_files_of_the_same_weights(start, folders, tmp_path, assert_serves, program, tp, load_format):
    if load_format == "layered":
        model = folders["a"]
    elif load_format == "mistral":
        model = other_formats.write_mistral(folders["a"], tmp_path / "model")
    else:
        model = other_formats.write_pt(folders["a"], tmp_path / "model", files=2)
    engine = start("serve", "--model", model, "--load-format", load_format, "--tp", tp, "--quantization",
                   "fp8_per_channel")
    assert_serves(engine, folders["a"], "fp8_per_channel")
    assert program.reload(engine, "--model", folders["b"])["ok"]
    assert_serves(engine, folders["b"], "fp8_per_channel")


def test_files_that_say_other_heads_than_the_model_has(start, folders, tmp_path, assert_serves, program):
    config = other_formats.config_of(folders["b"])
    said = {"num_attention_heads": config["num_attention_heads"] // 2}
    other_formats.write_gguf(folders["b"], tmp_path / "gguf", "BF16", said=said)
    refusal = f"expected the {config['num_attention_heads']} that num_attention_heads of "
    mistral = other_formats.write_mistral(folders["b"], tmp_path / "mistral", said=said)
    for model in (mistral, tmp_path / "gguf"):
        assert refusal in program.run("serve", "--model", model, status=1).json["error"]["message"]
    engine = start("serve", "--model", folders["a"])
    for model, field in ((mistral, "params.json': n_heads: "), (tmp_path / "gguf", ".attention.head_count: ")):
        (model / "config.json").unlink()  # a file by itself is held against the model that the engine has
        outcome = program.reload(engine, "--model", model, status=1)
        assert field + refusal + "the model that is loaded is, got " in outcome["error"]["message"]
    assert_serves(engine, folders["a"], "none")


@pytest.mark.parametrize("spec", ["llama", "mixtral"])
def test_gguf_with_blocks_that_are_dequantized(start, checkpoint, tmp_path, assert_serves, program, spec):
    folder = checkpoint(spec, "a")
    held = other_formats.write_gguf(folder, tmp_path / "gguf", "Q8_0")
    shutil.copytree(folder, tmp_path / "values", ignore=shutil.ignore_patterns("*.safetensors*"))
    safetensors.torch.save_file(held, tmp_path / "values" / "model.safetensors")
    engine = start("serve", "--model", tmp_path / "gguf", "--quantization", "fp8_per_block")
    assert_serves(engine, tmp_path / "values", "fp8_per_block")
    equal = program.run("verify", "--engine", engine.endpoint, "--model", tmp_path / "gguf", "--load-format", "gguf")
    assert equal.json["equal"]


def test_each_rank_reads_its_own_file(start, folders, tmp_path, assert_serves, program):
    first = start("serve", "--model", folders["a"], "--tp", 2, "--quantization", "fp8_per_channel")
    program.export(first, tmp_path / "state")
    for load_format in ("auto", "sharded_state"):
        engine = start("serve", "--model", tmp_path / "state", "--load-format", load_format, "--tp", 2, "--quantization",
                       "fp8_per_channel")
        assert_serves(engine, folders["a"], "fp8_per_channel")
    assert program.reload(engine, "--model", folders["b"])["ok"]
    assert program.reload(engine, "--model", tmp_path / "state", "--load-format", "sharded_state")["ok"]
    assert_serves(engine, folders["a"], "fp8_per_channel")
    assert program.reload(engine)["ok"]  # what it was loaded from last
    assert_serves(engine, folders["a"], "fp8_per_channel")


def test_the_first_load_from_a_publisher(start, folders, tmp_path, assert_serves, program):
    pt = other_formats.write_pt(folders["a"], tmp_path / "pt")
    publisher = start("publish", "--model", pt, "--load-format", "pt", "--lineage", "run", "--step", 3)
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folders["a"] / "config.json", bare)
    engine = start("serve", "--model", bare, "--load-format", "remote", "--publisher", publisher.endpoint, "--tp", 2,
                   "--quantization", "fp8_per_channel")
    assert engine.version == publisher.version
    assert_serves(engine, folders["a"], "fp8_per_channel")


def served_digests(program, engine):
    return [rank["served_digest"] for rank in program.status(engine)["ranks"]]


@pytest.mark.parametrize("spec", ["llama", "deepseek_v3"])  # the latter's derived tensors come along
def test_the_first_load_and_the_next_from_another_engine(spec, start, checkpoint, tmp_path, assert_serves, program):
    folders = {version: checkpoint(spec, version) for version in "ab"}
    arguments = "--tp", 2, "--quantization", "fp8_per_channel"
    first = start("serve", "--model", folders["a"], *arguments)
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folders["a"] / "config.json", bare)
    second = start("serve", "--model", bare, "--load-format", "remote", "--from-engine", first.endpoint, *arguments)
    assert second.version == first.version
    assert served_digests(program, second) == served_digests(program, first)
    assert_serves(second, folders["a"], "fp8_per_channel")
    assert program.generate(second, [1, 2, 3]) == program.generate(first, [1, 2, 3])

    publisher = start("publish", "--model", folders["b"], "--lineage", "run", "--step", 3)
    assert program.reload(first, "--publisher", publisher.endpoint)["ok"]
    outcome = program.reload(second, "--from-engine", first.endpoint)
    assert outcome["version"] == publisher.version and outcome["report"]["channel"]["name"] == "shm"
    assert_serves(second, folders["b"], "fp8_per_channel")

    for other, said in ((("--tp", 1, "--quantization", "fp8_per_channel"), "tp expected 1, got 2"),
                        (("--tp", 2, "--quantization", "none"), "quantization expected none, got fp8_per_channel"),
                        (("--tp", 2, "--expert-parallel", "--quantization", "fp8_per_channel"),
                         "expert_parallel expected true, got false")):
        refused = program.run("serve", "--model", bare, "--load-format", "remote", "--from-engine", first.endpoint,
                              *other, status=1)
        assert said in refused.json["error"]["message"]
    for name in (first.endpoint, first.endpoint.replace("127.0.0.1", "localhost")):
        itself = program.run("reload", "--engine", first.endpoint, "--from-engine", name, status=1)
        refused = itself.json["engines"][0]
        assert "expected another engine, got this one" in refused["error"]["message"]
        assert refused["version"] == refused["previous"] == publisher.version


def test_scales_that_are_not_rounded_are_none_for_an_engine_that_rounds_them(start, folders, tmp_path, program):
    arguments = "--quantization", "fp8_per_block"
    engine = start("serve", "--model", folders["a"], *arguments)
    program.export(engine, tmp_path / "export")
    for source, said in ((("--model", folders["a"], "--load-format", "remote", "--from-engine", engine.endpoint),
                          "power_of_two_scales expected true, got false"),
                         (("--model", tmp_path / "export"), "expected scales that are powers of two, got ")):
        refused = program.run("serve", *source, *arguments, "--power-of-two-scales", status=1)
        assert said in refused.json["error"]["message"]


def test_secondary_weights_with_a_prefix(start, folders, tmp_path, assert_serves):
    tensors = other_formats.read_all(folders["a"])
    for part in ("main", "head"):
        (tmp_path / part).mkdir()
    shutil.copy(folders["a"] / "config.json", tmp_path / "main")
    inner = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    outer = {name: tensor for name, tensor in tensors.items() if name not in inner}
    safetensors.torch.save_file(outer, tmp_path / "main" / "model.safetensors")
    safetensors.torch.save_file({name.removeprefix("model."): t for name, t in inner.items()},
                                tmp_path / "head" / "model.safetensors")
    engine = start("serve", "--model", tmp_path / "main", "--secondary-weights", f"model.={tmp_path / 'head'}",
                   "--quantization", "fp8_per_channel")
    assert_serves(engine, folders["a"], "fp8_per_channel")


def test_an_engine_that_starts_empty(start, folders, tmp_path, assert_serves, program):
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(folders["a"] / "config.json", bare)
    engines = [start("serve", "--model", bare, "--load-format", "dummy", "--seed", seed, "--tp", 2, "--quantization",
                     "fp8_per_channel") for seed in (5, 5, 6)]
    assert (engines[0].version["lineage"], engines[0].version["step"]) == ("dummy", 5)
    served = [[rank["served_digest"] for rank in program.status(engine)["ranks"]] for engine in engines]
    assert served[0] == served[1] and served[0] != served[2]
    assert len(program.generate(engines[0], [1, 2, 3])["tokens"]) == 16
    publisher = start("publish", "--model", folders["b"])
    for source in (("--publisher", publisher.endpoint), ("--model", folders["b"])):
        assert program.reload(engines[2], *source)["ok"]
        assert_serves(engines[2], folders["b"], "fp8_per_channel")
