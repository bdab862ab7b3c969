"""What files and peers call things is shown so that it acts on no terminal, and begins no line of its own: on standard
output, on standard error, in logs, and in JSON, which has escapes of its own."""

import json
import struct
import subprocess
import unicodedata

import pytest

# NUL is not among them where a name is to be published: manifests refuse it.
BAD = ["\x01", "\x1b]0;title\x07\x1b[2J", "\r", "\x7f", "\x85", "\x9b1m", "\u2028", "\u2029", "\u202e", "\u2066",
       "\ninspect: forged"]
NAMES = [f"layer{bad}weight" for bad in BAD]


def write_checkpoint(path, names):
    """By hand: other writers refuse such names."""
    header = {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<f", 1.0) * len(names))


def assert_plain(output):
    """All of it printable, in lines that are the program's own."""
    text = output.decode()  # valid UTF-8
    for line in text.split("\n"):
        bad = [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
        assert bad == [], repr(line)
        assert not line.startswith("inspect: forged"), text
    return text


def run(program, *arguments, status=0):
    done = subprocess.run([str(program.path), *map(str, arguments)], capture_output=True, timeout=60)
    assert done.returncode == status, done
    return assert_plain(done.stdout), assert_plain(done.stderr)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, folders):
    """A checkpoint with tensors of such names beside those that a model wants."""
    folder = tmp_path_factory.mktemp("hostile")
    for file in folders["a"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    write_checkpoint(folder / "more\x1b[2J\u202e.safetensors", NAMES)
    return folder


def test_inspect(program, tmp_path):
    write_checkpoint(tmp_path / "a\x1b[2J\n.safetensors", ["nul\0", *NAMES])
    (tmp_path / "pytorch_model\x85.bin").write_bytes(b"")
    output, _ = run(program, "inspect", tmp_path)
    lines = output.splitlines()
    assert len(lines) == len(NAMES) + 1 + len(["a sum", "not read", "agree"])  # no version: a NUL is in it
    assert "a\\x1b[2J\\x0a.safetensors  layer\\x0ainspect: forgedweight  [1] f32" in output
    assert "nul\\x00" in output and "layer\\xe2\\x80\\xaeweight" in output and "pytorch_model\\xc2\\x85.bin" in output


def test_json_has_escapes_of_its_own(program, tmp_path):
    write_checkpoint(tmp_path / "model.safetensors", ["nul\0", "\u00e9", *NAMES])
    output, _ = run(program, "inspect", tmp_path, "--json")
    assert output.isascii() and len(output.splitlines()) == 1
    assert [tensor["name"] for tensor in json.loads(output)["tensors"]] == ["nul\0", "\u00e9", *NAMES]


def test_messages_and_warnings(program, tmp_path):
    write_checkpoint(tmp_path / "1.safetensors", NAMES)
    write_checkpoint(tmp_path / "2.safetensors", [NAMES[-1]])
    _, errors = run(program, "inspect", tmp_path, status=1)
    assert "tensor 'layer\\x0ainspect: forgedweight': expected once" in errors
    weight_map = {name: "1.safetensors" for name in NAMES[:-1]} | {NAMES[-1]: "2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    _, warned = run(program, "inspect", tmp_path)
    assert "warning: " in warned and "'layer\\x0ainspect: forgedweight' of '1.safetensors'" in warned
    for argument in (tmp_path / "no\x1b[2Jfolder\x85", "\udcff\u202e"):
        _, errors = run(program, "inspect", argument, status=1)
        assert "no such checkpoint folder" in errors and "\\x" in errors
    _, errors = run(program, "inspect", tmp_path, "--no\x1b[2Jsuch\n\u202e", status=2)
    assert "\\x1b" in errors


def test_plan(program, hostile):
    output, errors = run(program, "plan", "--model", hostile, status=1)
    for name in ("layer\\x1b]0;title\\x07\\x1b[2Jweight", "layer\\x7fweight", "layer\\xc2\\x85weight"):
        assert name in errors
    assert "layer\\x01weight" in errors


def test_reload_and_the_log_and_status_of_the_engine(program, start, folders, hostile):
    engine = start("serve", "--model", folders["a"], "--tp", 1)
    _, errors = run(program, "reload", "--engine", engine.endpoint, "--model", hostile, status=1)
    assert "layer\\x01weight" in errors
    output, _ = run(program, "status", "--engine", engine.endpoint)
    assert "last reload failed" in output and "layer\\x01weight" in output
    run(program, "verify", "--engine", engine.endpoint, "--model", hostile, status=1)
    engine.kill()
    assert_plain(engine.log.read_bytes())


def test_publish_and_status_of_the_publisher(program, start, tmp_path):
    folder = tmp_path / "run\x1b[2J\n\x85\u202e"
    folder.mkdir()
    write_checkpoint(folder / "model.safetensors", NAMES)
    publisher = start("publish", "--model", folder)
    assert publisher.version["lineage"] == "run\\x1b[2J\\x0a\\xc2\\x85\\xe2\\x80\\xae"
    output, _ = run(program, "status", "--publisher", publisher.endpoint)
    assert "run\\x1b[2J\\x0a\\xc2\\x85\\xe2\\x80\\xae@0" in output
    _, errors = run(program, "publish", "--model", folder, "--lineage", "a\x9bb", status=2)
    assert "'a\\xc2\\x9bb': expected UTF-8 without control characters" in errors
