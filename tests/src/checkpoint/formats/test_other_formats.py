"""The loaders of `mistral` and `gguf` against files that the formats' own writers made of a checkpoint."""

import json
import os
import subprocess

import gguf
import pytest
import safetensors.torch
import torch

import other_formats

DRIVER = os.environ["LAYERCAST_CHECKPOINT_DRIVER"]
PROGRAM = os.environ["LAYERCAST_PROGRAM"]


def read(path, scratch, load_format="auto"):
    subprocess.run([DRIVER, "copy", str(path), str(scratch / "read.safetensors"), load_format], check=True)
    return safetensors.torch.load_file(scratch / "read.safetensors")


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        assert torch.equal(got[name].view(torch.uint8), tensor.contiguous().view(torch.uint8)), name


def refusal(path, load_format="auto"):
    done = subprocess.run([PROGRAM, "inspect", str(path), "--load-format", load_format, "--json"], capture_output=True,
                          text=True)
    assert done.returncode == 1, done
    return json.loads(done.stdout)["error"]["message"]


@pytest.mark.parametrize("spec", ["llama", "mixtral"])
def test_consolidated_files_hold_the_same_tensors(tmp_path, checkpoint, spec):
    folder = checkpoint(spec, "a")
    out = other_formats.write_mistral(folder, tmp_path / "mistral")
    assert_same(read(out, tmp_path), other_formats.read_all(folder))
    # Beside files of Hugging Face's they are a copy.
    (out / "model.safetensors").write_bytes(b"broken")
    assert_same(read(out, tmp_path, "mistral"), other_formats.read_all(folder))
    assert "model.safetensors': expected at least 8 bytes" in refusal(out)


def config_said(path):
    return json.loads(subprocess.run([DRIVER, "config", str(path)], check=True, capture_output=True, text=True).stdout)


def test_params_json_says_what_the_model_computes_by(tmp_path, checkpoint):
    folder = checkpoint("llama", "a")
    config = other_formats.config_of(folder)
    out = other_formats.write_mistral(folder, tmp_path / "mistral")
    said = {name: config[name] for name in ("num_attention_heads", "num_key_value_heads", "rms_norm_eps")}
    assert config_said(out) == said | {"rope_theta": other_formats.rope_theta(config)}
    params = json.loads((out / "params.json").read_text())
    more = {"head_dim": 40, "sliding_window": 24, "moe": {"num_experts": 5, "num_experts_per_tok": 2}}
    (out / "params.json").write_text(json.dumps(params | more))
    assert config_said(out) == said | {"rope_theta": other_formats.rope_theta(config), "head_dim": 40,
                                       "sliding_window": 24, "num_experts_per_tok": 2}
    assert config_said(folder) == config


def test_a_gguf_says_what_the_model_computes_by(tmp_path, checkpoint):
    folder = checkpoint("llama", "a")
    config = other_formats.config_of(folder)
    other_formats.write_gguf(folder, tmp_path / "gguf", "BF16", parts=2)
    said = {name: config[name] for name in ("num_attention_heads", "num_key_value_heads", "rms_norm_eps")}
    assert config_said(tmp_path / "gguf") == said | {"rope_theta": other_formats.rope_theta(config)}

    def write(fill):
        writer = gguf.GGUFWriter(tmp_path / "one.gguf", "llama")
        writer.add_head_count(4)
        fill(writer)
        writer.add_tensor("output_norm.weight", torch.ones(4).numpy())
        for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
            step()
        writer.close()
        return config_said(tmp_path / "one.gguf")

    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    assert write(lambda writer: None) == heads | {"rope_theta": 10000.0}  # as llama.cpp takes it

    def scaled(writer):
        writer.add_key_length(40)
        writer.add_expert_used_count(2)
        writer.add_rope_freq_base(1e6)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(512)

    yarn = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 512}
    assert write(scaled) == heads | {"head_dim": 40, "num_experts_per_tok": 2, "rope_theta": 1e6, "rope_scaling": yarn}


def test_consolidated_files_that_make_no_sense(tmp_path, checkpoint):
    out = other_formats.write_mistral(checkpoint("llama", "a"), tmp_path / "mistral")
    params = json.loads((out / "params.json").read_text())
    for change, said in (({"n_heads": 7}, "'model.layers.0.self_attn.q_proj.bias': expected rows for 7 heads"),
                         ({"n_heads": -1}, "params.json': n_heads: expected a number of heads, got -1"),
                         ({"n_kv_heads": "two"}, 'n_kv_heads: expected a number of heads, got "two"')):
        (out / "params.json").write_text(json.dumps(params | change))
        assert said in refusal(out)
    (out / "params.json").write_text('{"n_heads": NaN, "norm_eps": -Infinity}')
    assert "params.json': n_heads: expected a number of heads, got NaN" in refusal(out)
    (out / "params.json").write_text("[")
    assert "params.json': expected a JSON object" in refusal(out)
    (out / "params.json").write_text('{"n_heads": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert "params.json': expected a JSON object of at most 32 levels" in refusal(out)
    (out / "params.json").unlink()
    assert "params.json': cannot open" in refusal(out)
    (out / "params.json").write_text(json.dumps(params))
    safetensors.torch.save_file({"layers.0.attention.wx.weight": torch.ones(2, 2)}, out / "consolidated.safetensors")
    assert "tensor 'layers.0.attention.wx.weight': expected a name of Mistral's and Mixtral's models" in refusal(out)


def test_an_index_of_consolidated_files(tmp_path, checkpoint):
    """Its names are Mistral's own, as those in the files are."""
    folder = checkpoint("llama", "a")
    out = other_formats.write_mistral(folder, tmp_path / "mistral", files=2)
    index = out / "consolidated.safetensors.index.json"
    first, second = (f"consolidated-0000{i}-of-00002.safetensors" for i in (1, 2))
    written = json.loads(index.read_text())["weight_map"]
    assert set(written.values()) == {first, second}
    assert_same(read(out, tmp_path), other_formats.read_all(folder))
    name = "layers.0.attention.wq.weight"
    other = {first: second, second: first}[written[name]]
    for change, said in (({name: other}, f"'{name}': expected in '{other}', got it in '{written[name]}'"),
                         ({"layers.9.attention.wq.weight": first}, "'layers.9.attention.wq.weight': expected in "
                          f"'{first}', got nothing of that name"),
                         ({"nothing.we.know": second}, f"'nothing.we.know': expected in '{second}', got nothing of that"),
                         ({"norm.bias": "absent.safetensors"}, "referenced in index but missing: 'absent.safetensors'")):
        index.write_text(json.dumps({"weight_map": written | change}))
        assert said in refusal(out)
    index.write_text(json.dumps({"weight_map": {n: file for n, file in written.items() if n != name}}))
    assert "tensor 'model.layers.0.self_attn.q_proj.weight': expected in the weight_map of consolidated." in refusal(out)
    index.write_text(json.dumps({"weight_map": {}}))
    assert "consolidated.safetensors.index.json': weight_map: expected tensors, got none" in refusal(out)
    index.unlink()
    assert_same(read(out, tmp_path), other_formats.read_all(folder))
    (out / first).unlink()
    assert f"got none called '{first}'" in refusal(out)


@pytest.mark.parametrize("load_format, field, kv_field", [
    ("mistral", "params.json': n_heads", "params.json': n_kv_heads"),
    ("gguf", "model.gguf': llama.attention.head_count", "model.gguf': llama.attention.head_count_kv")])
def test_head_counts_that_are_not_those_of_config_json(tmp_path, checkpoint, load_format, field, kv_field):
    """Rows are put into order by them: other numbers make other weights, which fit as well."""
    folder, out = checkpoint("llama", "a"), tmp_path / "said"
    config = other_formats.config_of(folder)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    said = {"num_attention_heads": heads // 2, "num_key_value_heads": 1}
    if load_format == "gguf":
        other_formats.write_gguf(folder, out, "F16", said=said)
    else:
        other_formats.write_mistral(folder, out, said=said)
    done = subprocess.run([PROGRAM, "inspect", str(out), "--json"], capture_output=True, text=True)
    problems = json.loads(done.stdout)["problems"]
    assert done.returncode == 1 and len(problems) == 2
    for problem, where, name, expected, got in ((problems[0], field, "num_attention_heads", heads, heads // 2),
                                                (problems[1], kv_field, "num_key_value_heads", kv_heads, 1)):
        assert f"{where}: expected the {expected} that {name} of '{out}/config.json' is, got {got}" in problem
    for text in (None, "{", "[]", "{}", '{"num_attention_heads": "eight"}'):  # nothing there to be held against
        (out / "config.json").unlink(missing_ok=True)
        if text is not None:
            (out / "config.json").write_text(text)
        subprocess.run([PROGRAM, "inspect", str(out), "--json"], capture_output=True, check=True)
    (out / "config.json").write_text(json.dumps({"text_config": config}))
    assert f"{field}: expected the {heads} that num_attention_heads of" in refusal(out)


@pytest.mark.parametrize("spec", ["llama", "qwen2", "qwen3", "mixtral", "qwen2_moe_blocks", "qwen3_moe_stacked"])
@pytest.mark.parametrize("encoding", ["F32", "F16", "BF16", "Q8_0"])
def test_every_encoding_of_gguf(tmp_path, checkpoint, spec, encoding):
    held = other_formats.write_gguf(checkpoint(spec, "a"), tmp_path / "gguf", encoding)
    assert_same(read(tmp_path / "gguf", tmp_path), held)


@pytest.mark.parametrize("name", ["model.safetensors", "consolidated.safetensors", "pytorch_model.bin", "model.gguf"])
def test_what_git_lfs_leaves_in_the_place_of_weights(tmp_path, name):
    (tmp_path / "params.json").write_text('{"n_heads": 2}')
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4976698672\n")
    assert f"{name}': expected weights, got a pointer of git-lfs" in refusal(tmp_path)


def test_a_gguf_in_parts(tmp_path, checkpoint):
    held = other_formats.write_gguf(checkpoint("llama", "a"), tmp_path / "gguf", "Q8_0", parts=3)
    assert_same(read(tmp_path / "gguf", tmp_path), held)
    for file in (tmp_path / "gguf").glob("*-of-*"):
        read(file, tmp_path)  # by itself, where it lies
    (tmp_path / "gguf" / "model-00003-of-00003.gguf").rename(tmp_path / "gguf" / "model-00003-of-00004.gguf")
    assert ("model-00001-of-00003.gguf': split.count: expected 3 files, got none called 'model-00003-of-00003.gguf'"
            in refusal(tmp_path / "gguf"))
    assert ("model-00003-of-00004.gguf': part 3 of 3: expected a name that ends in -00003-of-00003.gguf"
            in refusal(tmp_path / "gguf" / "model-00003-of-00004.gguf"))
    (tmp_path / "gguf" / "model-00001-of-00003.gguf").unlink()
    assert "model-00001-of-00003.gguf': cannot open" in refusal(tmp_path / "gguf")


def test_a_gguf_whose_parts_hold_another_number_of_tensors(tmp_path):
    folder = tmp_path / "gguf"
    folder.mkdir()

    def write(**said):
        for part, name in enumerate(("output", "output_norm")):
            split = {"split.no": part, "split.count": 2} | {key.replace("_", "."): n for key, n in said.items()}
            write_one(folder / f"a-{part + 1:05d}-of-00002.gguf", f"{name}.weight", torch.ones(1, 32), "F32", split)

    write(split_tensors_count=2)
    assert len(read(folder, tmp_path)) == 2
    write()  # not every writer says it
    assert len(read(folder, tmp_path)) == 2
    write(split_tensors_count=3)
    assert ("a-00001-of-00002.gguf': split.tensors.count: expected 3 tensors in the 2 parts, got 2" in refusal(folder))
    write(split_tensors_count=-2)
    assert "a-00001-of-00002.gguf': expected the entry split.tensors.count, got none that is a whole number" in refusal(folder)


def test_what_a_gguf_says_of_its_parts(tmp_path):
    folder = tmp_path / "gguf"
    folder.mkdir()

    def write(part, parts):
        write_one(folder / "a.gguf", "output.weight", torch.ones(1, 32), "F32", {"split.no": part, "split.count": parts})

    for part, parts in ((0, 0), (0, 1), (2, 0)):  # put together again, or never cut
        write(part, parts)
        assert_same(read(folder, tmp_path), {"lm_head.weight": torch.ones(1, 32)})
    write(2, 2)
    assert "a.gguf': split.no: expected a number below the 2 parts, got 2" in refusal(folder)
    write(0, 65535)
    assert "a.gguf': part 1 of 65535: expected a name that ends in -00001-of-65535.gguf" in refusal(folder)


def write_one(path, name, tensor, encoding, numbers=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_head_count(2)
    for key, number in (numbers or {}).items():
        (writer.add_int32 if key == "split.tensors.count" else writer.add_uint16)(key, number)
    kind = gguf.GGMLQuantizationType[encoding]
    writer.add_tensor(name, gguf.quantize(tensor.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_what_gguf_may_hold_and_we_do_not_read(tmp_path, checkpoint):
    folder = checkpoint("qwen2", "a")
    other_formats.write_gguf(folder, tmp_path / "a", "F32", architecture="gemma2")
    said = refusal(tmp_path / "a")
    assert "general.architecture: expected llama, qwen2, qwen2moe, qwen3 or qwen3moe, got 'gemma2'" in said
    for name, shape, said in (("ffn_up_exps", (2, 3), "expected a matrix of each expert, 65536 at most, got [2, 3]"),
                              ("ffn_up_exps", (3, 0, 32), "expected a matrix of each expert, 65536 at most, got [3, 0, 32]"),
                              ("ffn_up_exps", (65537, 1, 1), "65536 at most, got [65537, 1, 1]"),
                              ("ffn_up_exp", (2, 3), "expected a name of a model of the Llama family")):
        write_one(tmp_path / "b.gguf", f"blk.0.{name}.weight", torch.ones(shape), "F32")
        message = refusal(tmp_path / "b.gguf")
        assert f"tensor 'blk.0.{name}.weight': " in message and said in message
    write_one(tmp_path / "b.gguf", "output.weight", torch.ones(2, 32), "Q4_0")
    assert "tensor 'output.weight': expected F32, F16, BF16 or Q8_0, got Q4_0" in refusal(tmp_path / "b.gguf")


@pytest.mark.parametrize("empty_first", [True, False])
def test_a_gguf_whose_empty_tensor_lies_where_another_begins(tmp_path, empty_first):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_head_count(1)
    names = ("output.weight", "output_norm.weight")
    for name, empty in zip(names, (empty_first, not empty_first)):
        writer.add_tensor(name, torch.ones((0, 32) if empty else (2, 32)).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if not empty_first:  # the writer puts it behind: bring its offset back to where the other begins
        path = tmp_path / "a.gguf"
        head = bytearray(path.read_bytes())
        at = head.index(names[1].encode()) + len(names[1]) + 4 + 2 * 8 + 4
        assert int.from_bytes(head[at : at + 8], "little") == 2 * 32 * 4
        head[at : at + 8] = bytes(8)
        path.write_bytes(head)
    held = read(tmp_path / "a.gguf", tmp_path)
    assert sorted(tuple(tensor.shape) for tensor in held.values()) == [(0, 32), (2, 32)]


def test_a_gguf_cut_anywhere_in_its_head_is_refused(tmp_path, checkpoint):
    other_formats.write_gguf(checkpoint("qwen2", "a"), tmp_path / "gguf", "F16")
    path = tmp_path / "gguf" / "model.gguf"
    whole = path.read_bytes()
    for size in [*range(0, 600, 7), len(whole) // 2, len(whole) - 40]:
        path.write_bytes(whole[:size])
        assert "model.gguf'" in refusal(path, "gguf"), size
