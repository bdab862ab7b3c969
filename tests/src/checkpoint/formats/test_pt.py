"""The loader of `pt` against torch: files that torch.save writes, read as torch.load reads them, and what is refused."""

import collections
import json
import os
import subprocess

import pytest
import safetensors.torch
import torch

DRIVER = os.environ["LAYERCAST_CHECKPOINT_DRIVER"]
PROGRAM = os.environ["LAYERCAST_PROGRAM"]

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e8m0fnu,
          torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int16, torch.uint16, torch.float16, torch.bfloat16,
          torch.int32, torch.uint32, torch.float32, torch.complex64, torch.float64, torch.int64, torch.uint64]


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def read(path, scratch):
    """What our reader makes of it, through a safetensors file."""
    subprocess.run([DRIVER, "copy", str(path), str(scratch / "read.safetensors"), "pt"], check=True)
    return safetensors.torch.load_file(scratch / "read.safetensors")


def assert_reads(tensors, scratch, file="pytorch_model.bin", **options):
    torch.save(tensors, scratch / file, **options)
    loaded = torch.load(scratch / file, weights_only=False)  # ours; torch itself reads protocol 4 no other way
    got = read(scratch / file, scratch)
    assert got.keys() == loaded.keys()
    for name, tensor in loaded.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        assert raw(got[name]) == raw(tensor.detach()), name


def refusal(path, *, status=1):
    done = subprocess.run([PROGRAM, "inspect", str(path), "--load-format", "pt", "--json"], capture_output=True, text=True)
    assert done.returncode == status, done
    return json.loads(done.stdout)["error"]


def bits(dtype, *shape):
    size = torch.empty(shape, dtype=dtype).nbytes
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8)
    return data.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


def some_tensors():
    weight = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {"a": weight, "view": weight[1:3, 2:5], "tied": weight, "b": torch.ones(3, dtype=torch.bfloat16)}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_dtype_and_shape(tmp_path, protocol):
    tensors = {f"t.{i}.{str(dtype)[6:]}": bits(dtype, *shape)
               for i, shape in enumerate([(3, 2), (), (0,), (5,), (1, 1, 3)]) for dtype in DTYPES}
    assert_reads(tensors, tmp_path, pickle_protocol=protocol)


def test_views_of_every_kind(tmp_path):
    base = torch.randn(4, 6, 5)
    assert_reads({"whole": base, "transposed": base.transpose(0, 2), "permuted": base.permute(1, 2, 0), "row": base[2],
                  "column": base[:, 3], "steps": base[::2, 1::2, ::3], "diagonal": base[0].diagonal(),
                  "tied": base, "expanded_ones": torch.ones(1, 1).expand(1, 1), "empty": base[:, 6:],
                  "bf16": base.to(torch.bfloat16).mT, "bytes": bits(torch.uint8, 4, 6)[..., 1::4],
                  "unsqueezed": base.unsqueeze(2), "single": base[:, :1]}, tmp_path)


def test_parameters_ordered_dicts_and_modules(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    assert_reads(module.state_dict(), tmp_path)
    assert_reads(collections.OrderedDict((name, p) for name, p in module.named_parameters()), tmp_path)
    assert_reads({"p": torch.nn.Parameter(torch.randn(3, 4).t(), requires_grad=False)}, tmp_path, file="p.pt")


def test_the_state_dict_of_a_training_script(tmp_path):
    module = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    torch.save({"epoch": 3, "loss": 0.25, "model": module.state_dict(), "optimizer": optimizer.state_dict()},
               tmp_path / "last.pt")
    got = read(tmp_path / "last.pt", tmp_path)
    assert {name: raw(tensor) for name, tensor in got.items()} == {
        name: raw(tensor) for name, tensor in module.state_dict().items()}


def test_a_file_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        assert_reads(some_tensors(), tmp_path)
    finally:
        torch.serialization.set_crc32_options(True)


@pytest.mark.parametrize("files", [1, 3])
def test_a_checkpoint_of_transformers_has_the_same_digests_as_its_safetensors(tmp_path, checkpoint, files):
    folder = checkpoint("llama", "a")
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors.torch.load_file(file))
    names = sorted(tensors)
    weight_map = {}
    for i in range(files):
        file = f"pytorch_model-{i + 1:05d}-of-{files:05d}.bin" if files > 1 else "pytorch_model.bin"
        part = {name: tensors[name] for name in names[i::files]}
        torch.save(part, tmp_path / file)
        weight_map.update(dict.fromkeys(part, file))
    if files > 1:
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(
            {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": weight_map}))
    (tmp_path / "optimizer.bin").write_bytes(b"no weights")

    def digests(path):
        done = subprocess.run([PROGRAM, "inspect", str(path), "--json"], capture_output=True, text=True, check=True)
        report = json.loads(done.stdout)
        assert report["problems"] == [] and report["warnings"] == []
        return {t["name"]: t["digest"] for t in report["tensors"]}

    assert digests(tmp_path) == digests(folder)


class Evil:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_anything_executable_is_refused_by_name(tmp_path):
    marker = tmp_path / "ran"  # protocol 2 gives modules the names that they had in Python 2
    for function, name in ((os.system, "posix.system"), (eval, "__builtin__.eval"), (print, "__builtin__.print"),
                           (subprocess.check_output, "commands.check_output")):
        torch.save({"w": torch.ones(2), "x": Evil(function, f"touch {marker}")}, tmp_path / "a.bin")
        error = refusal(tmp_path / "a.bin")
        assert f"the global '{name}' is none that a state dict needs: refused" in error["message"], error
        assert error["code"] == "unsupported"
    assert not marker.exists()


def test_what_is_no_plain_tensor_is_refused_by_name(tmp_path):
    dense = torch.eye(3)
    for what, said in (
            (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
            (dense.to_sparse(), "torch._utils._rebuild_sparse_tensor"),
            (torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8), "torch._utils._rebuild_qtensor"),
            (torch.zeros(2, dtype=torch.complex128), "torch.ComplexDoubleStorage"),
            (torch.ones(1).expand(1000), "expected it inside a storage of 1 elements"),
            (torch.view_as_complex(torch.ones(2, 2)).conj(), "expected no metadata"),
            ([dense], "expected a tensor, got a list of 1"),
            (7, "expected a tensor, got the integer 7"),
            ("text", "expected a tensor, got the text 'text'")):
        torch.save({"x": what}, tmp_path / "a.bin")
        assert said in refusal(tmp_path / "a.bin")["message"], what


def test_other_forms_are_refused_with_a_way_out(tmp_path):
    torch.save(some_tensors(), tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    assert "torch.load it, and torch.save it again" in refusal(tmp_path / "old.bin")["message"]
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "script.pt")
    assert "is a TorchScript program" in refusal(tmp_path / "script.pt")["message"]


def test_damage_anywhere_is_an_error_or_changes_nothing(tmp_path):
    torch.save(some_tensors(), tmp_path / "small.bin")
    done = subprocess.run([DRIVER, "damage", str(tmp_path / "small.bin"), "pt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bits mean nothing" in done.stdout
