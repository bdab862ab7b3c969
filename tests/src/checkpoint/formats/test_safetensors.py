"""Our reader and writer against the reference implementation: the safetensors library, and what transformers writes."""

import json
import os
import random
import struct
import subprocess

import pytest
import safetensors
import safetensors.torch
import torch

DRIVER = os.environ["LAYERCAST_CHECKPOINT_DRIVER"]
PROGRAM = os.environ["LAYERCAST_PROGRAM"]

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.int16,
          torch.uint16, torch.float16, torch.bfloat16, torch.int32, torch.uint32, torch.float32, torch.complex64,
          torch.float64, torch.int64, torch.uint64]


def copy(source, target):
    subprocess.run([DRIVER, "copy", str(source), str(target)], check=True)
    return target


def inspect(path):
    done = subprocess.run([PROGRAM, "inspect", str(path), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def same(left, right):
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype and tensor.shape == right[name].shape, name
        assert raw(tensor) == raw(right[name]), name


def bytes_as(dtype, *shape):
    size = torch.empty(shape, dtype=dtype).nbytes
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8)
    return data.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


def every_dtype():
    return {f"t.{i}.{str(dtype)[6:]}": bytes_as(dtype, *shape)
            for i, shape in enumerate([(3, 2), (), (0,), (5,)]) for dtype in DTYPES}


def test_a_file_of_the_reference_is_written_again_byte_for_byte(tmp_path):
    safetensors.torch.save_file(every_dtype(), tmp_path / "a.safetensors", metadata={"format": "pt"})
    copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("tensors", [{}, {"a": torch.ones(1)}, {'"\\\n\t\x01\x7f/é😀': torch.zeros(2)}],
                         ids=["empty", "one", "escapes"])
def test_corners_are_written_byte_for_byte(tmp_path, tensors):
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors")
    copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("spec", ["llama", "qwen2", "qwen3"])
def test_checkpoints_of_transformers(tmp_path, checkpoint, spec):
    folder = checkpoint(spec, "a")
    expected = {}
    for file in folder.glob("*.safetensors"):
        expected.update(safetensors.torch.load_file(file))
    same(expected, safetensors.torch.load_file(copy(folder, tmp_path / "all.safetensors")))

    report = inspect(folder)
    assert report["problems"] == []
    assert report["files"] == sorted(file.name for file in folder.glob("*.safetensors"))
    assert report["bytes"] == sum(tensor.nbytes for tensor in expected.values())
    names = {torch.bfloat16: "bf16", torch.float32: "f32", torch.float16: "f16"}
    assert {(t["name"], t["dtype"], tuple(t["shape"])) for t in report["tensors"]} == {
        (name, names[tensor.dtype], tuple(tensor.shape)) for name, tensor in expected.items()}
    # The same weights, cut into files in another way.
    digests = {t["name"]: t["digest"] for t in report["tensors"]}
    assert digests == {t["name"]: t["digest"] for t in inspect(tmp_path / "all.safetensors")["tensors"]}


def test_sharding_was_tried(checkpoint):
    assert (checkpoint("llama", "a") / "model.safetensors.index.json").exists()


def file_of(header, data=b"x"):
    encoded = header.encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


ENTRY = '"dtype":"U8","shape":[1],"data_offsets":[0,1]'


def checked(tmp_path, contents):
    """(name, dtype, bytes) of each tensor as our reader finds them; None where it refuses."""
    path = tmp_path / "checked"
    path.write_bytes(contents)
    fields = subprocess.run([DRIVER, "check", path], capture_output=True, text=True, check=True).stdout.split()[1:]
    if fields == ["refused"]:
        return None
    return {fields[i]: (fields[i + 1], contents[int(fields[i + 2]):int(fields[i + 3])])
            for i in range(0, len(fields), 4)}


def of_the_reference(contents):
    return {name: (info["dtype"], bytes(info["data"])) for name, info in safetensors.deserialize(contents)}


@pytest.mark.parametrize("header", [
    '{"__metadata__":null,"t":{%s}}' % ENTRY, '{"t":{%s,"note":1}}' % ENTRY, '{"t":{"note":{"dtype":[null]},%s}}' % ENTRY,
    ' \t\r\n{"t":{%s}}' % ENTRY, '{"t":{"note":%s,%s}}' % ("[" * 125 + "]" * 125, ENTRY)])
def test_what_the_reference_takes_beyond_the_format_we_take(tmp_path, header):
    assert checked(tmp_path, file_of(header)) == of_the_reference(file_of(header)) == {"t": ("U8", b"x")}


@pytest.mark.parametrize("header, data", [
    ('{"t":{%s},"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}' % ENTRY, b"x"),
    ('{"__metadata__":{"a":"1","a":"2"}}', b""), ('{"t":{"note":1,"note":2,%s}}' % ENTRY, b"x"),
    ('{"t":{"dtype":"U8","shape":[0,9223372036854775807,2],"data_offsets":[0,0]}}', b"")])
def test_what_only_the_reference_takes(tmp_path, header, data):
    of_the_reference(file_of(header, data))  # does not throw
    assert checked(tmp_path, file_of(header, data)) is None


@pytest.mark.parametrize("header", ['\ufeff{"t":{%s}}' % ENTRY, '{"t":{%s,"dtype":"U8"}}' % ENTRY,
                                    '{"t":{%s},"__metadata__":{},"__metadata__":{}}' % ENTRY,
                                    '{"t":{"note":%s,%s}}' % ("[" * 126 + "]" * 126, ENTRY)])
def test_what_both_refuse(tmp_path, header):
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(file_of(header))
    assert checked(tmp_path, file_of(header)) is None


def damaged(seed, source):
    """Bytes near `source`: its header edited, its length right again half of the time."""
    rng = random.Random(seed)
    size = struct.unpack("<Q", source[:8])[0]
    header, data = bytearray(source[8:8 + size]), source[8 + size:]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(header))
        kind = rng.randrange(4)
        if kind == 0:
            header[at] = rng.choice(b'0123456789[]{},:" ')
        elif kind == 1:
            header[at:at] = bytes([rng.choice(b'0123456789[]{},:" -.e\\\x00\xff')])
        elif kind == 2:
            del header[at:at + rng.randint(1, 3)]
        else:
            start = rng.randrange(len(header))
            header[at:at] = header[start:start + rng.randint(1, 60)]
    length = len(header) if rng.random() < 0.8 else size
    return struct.pack("<Q", length) + bytes(header) + data


def test_what_the_reference_refuses_we_refuse_and_the_rest_we_read_alike(tmp_path):
    source = safetensors.torch.save({"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16),
                                     "c": torch.ones(8, dtype=torch.uint8)}, metadata={"format": "pt"})
    files = {}
    for seed in range(1500):
        path = tmp_path / str(seed)
        path.write_bytes(damaged(seed, source))
        files[str(path)] = path
    lines = subprocess.run([DRIVER, "check", *files], capture_output=True, text=True, check=True).stdout.splitlines()
    accepted = 0
    for line in lines:
        path, *fields = line.split(" ")
        if fields == ["refused"]:
            continue
        accepted += 1
        contents = files[path].read_bytes()
        reference = of_the_reference(contents)
        ours = {fields[i]: (fields[i + 1], contents[int(fields[i + 2]):int(fields[i + 3])])
                for i in range(0, len(fields), 4)}
        assert ours == reference, path
    assert len(lines) == len(files)
    assert accepted > 10  # else the damage was always fatal, and nothing was compared
