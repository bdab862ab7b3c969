"""A wheel is small, carries all that it links but the system's own, and works where nothing else is installed."""

import json
import re
import subprocess
import sys

import elf_files
from commands import ROOT, run

VERSION = re.search(r"project\(Layercast VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
SIZE_LIMIT = 20 << 20
# What every system of a manylinux tag has.
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libresolv.so.2", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1",
          "ld-linux-x86-64.so.2"}
# Of the driver, of the trainer's torch, or found by its path: bundled, each would be the second one of its process.
NEVER_BUNDLED = re.compile(r"cuda|nvrtc|nccl|libuc[pstm]|torch|libc10|libpython")


def test_the_wheel_is_small_and_names_the_oldest_system_it_runs_on(wheel, say):
    say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    tag = f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}" if sys.version_info < (3, 12) else "cp312-abi3"
    assert re.fullmatch(rf"layercast-{VERSION}-{tag}-manylinux_2_\d+_x86_64(\.manylinux\w+)*\.whl", wheel.name)
    assert wheel.stat().st_size < SIZE_LIMIT


def test_whatever_is_linked_is_in_the_wheel_or_is_the_systems(unpacked, say):
    files = elf_files.read_all(unpacked)
    bundled = {path.name for path in files if path.parent.name == "layercast.libs"}
    say(f"bundled: {', '.join(sorted(bundled))}")
    assert {"_native", "layercast", "layercast-rank"} <= {path.name.split(".")[0] for path in files}
    for path, file in files.items():
        assert file.needed <= bundled | SYSTEM, path.name
        assert all(folder.startswith("$ORIGIN") for folder in file.search_path), path.name
        if file.needed & bundled:
            assert any((path.parent / folder.replace("$ORIGIN", ".")).resolve() == unpacked / "layercast.libs"
                       for folder in file.search_path), path.name


def test_nothing_of_cuda_torch_or_ucx_is_linked_or_bundled(unpacked):
    names = {name for path, file in elf_files.read_all(unpacked).items() for name in {path.name, *file.needed}}
    assert not {name for name in names if NEVER_BUNDLED.search(name)}


def test_what_is_installed_is_stripped(unpacked):
    assert not {path.name for path, file in elf_files.read_all(unpacked).items() if file.has_symbols}


def test_the_bundled_zeromq_has_curve(environment, python):
    (library,) = environment.glob("lib/python3*/site-packages/layercast.libs/libzmq-*.so.5*")
    code = f"""
import ctypes
zmq = ctypes.CDLL({str(library)!r})
public, secret = ctypes.create_string_buffer(41), ctypes.create_string_buffer(41)
print(zmq.zmq_has(b"curve"), zmq.zmq_curve_keypair(public, secret), len(public.value), len(secret.value))
"""
    assert python("-c", code).split() == ["1", "0", "40", "40"]


def test_what_is_bundled_comes_with_its_licence(unpacked):
    (metadata,) = unpacked.glob("layercast-*.dist-info")
    assert (metadata / "licenses/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    for library in ("libcrypto", "libfmt", "libhwy", "libpcre2", "libsodium", "libspdlog", "libzmq"):
        assert list((unpacked / "layercast.libs").glob(f"{library}*")), library
        package = {"libcrypto": "libssl"}.get(library, library)
        (notice,) = (metadata / "licenses/bundled").glob(f"{package}*")
        assert "copyright" in notice.read_text().lower(), library


def test_importing_takes_neither_torch_nor_numpy(python, say):
    code = """
import sys, time
wall, cpu = time.perf_counter(), time.process_time()
import layercast
print(f"{(time.perf_counter() - wall) * 1e3:.0f} ms, {(time.process_time() - cpu) * 1e3:.0f} ms of them on the CPU")
print(sorted({"torch", "numpy", "asyncio", "ml_dtypes"} & set(sys.modules)))
"""
    python("-c", "import layercast")  # which writes the bytecode
    took, loaded = python("-c", code).splitlines()
    say(f"import layercast: {took}")
    assert loaded == "[]"


def test_everything_says_the_same_version(environment, python):
    assert python("-c", "import layercast; print(layercast.__version__)").strip() == VERSION
    assert VERSION in python("-m", "layercast", "--version")
    assert VERSION in run(environment / "bin/layercast", "--version", env={})
    assert python("-c", "import importlib.metadata as m; print(m.version('layercast'))").strip() == VERSION
    assert f"\n## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_command_is_the_program(environment):
    text = run(environment / "bin/layercast", "serve", "--help", env={})
    assert "--quantization" in text
    wrong = subprocess.run([environment / "bin/layercast", "serf"], capture_output=True, text=True, env={})
    assert (wrong.returncode, "expected a subcommand" in wrong.stderr) == (2, True)


def test_pip_knows_what_it_is(environment):
    shown = run(sys.executable, "-m", "pip", "--python", environment / "bin/python", "show", "layercast")
    fields = dict(re.findall(r"^([\w-]+): ?(.*)$", shown, re.MULTILINE))
    assert (fields["Name"], fields["Version"], fields["Requires"]) == ("layercast", VERSION, "")
    metadata = next(environment.glob("lib/python3*/site-packages/layercast-*.dist-info/METADATA")).read_text()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert (ROOT / "README.md").read_text().splitlines()[0] in metadata


PUBLISHES = """
import json, layercast, pathlib, struct, subprocess, sys
values = [0.5, -1.25, 3.0, 1e-3, 7.0, -2.0]
data = struct.pack("<6f", *values) + struct.pack("<3H", 0x3f80, 0xbf80, 0x4000)
header = json.dumps({
    "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b.weight": {"dtype": "BF16", "shape": [3], "data_offsets": [24, 30]},
}).encode()
pathlib.Path("model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
checkpoint = layercast.Checkpoint("model.safetensors")
assert {name: bytes(checkpoint[name].data) for name in checkpoint} == {"a.weight": data[:24], "b.weight": data[24:]}
with layercast.Publisher() as publisher:
    published = publisher.publish(dict(checkpoint), step=3)
    command = [sys.executable, "-m", "layercast", "status", "--publisher", publisher.endpoint, "--json"]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(json.dumps({"digest": published.version.digest, "loaded": sorted({"torch", "numpy"} & set(sys.modules))}))
"""


def test_it_publishes_a_dict_where_neither_torch_nor_numpy_is_installed(python):
    status, known = [json.loads(line) for line in python("-c", PUBLISHES).splitlines() if line]
    assert (status["tensors"], status["bytes"], status["version"]["step"]) == (2, 30, 3)
    assert status["version"]["digest"] == str(known["digest"])
    assert known["loaded"] == []
