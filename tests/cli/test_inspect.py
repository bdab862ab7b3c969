"""The program's conventions (docs/cli.md), as `layercast inspect` keeps them."""

import json
import os
import pty
import subprocess

import pytest
import safetensors.torch
import torch

PROGRAM = os.environ["LAYERCAST_PROGRAM"]


def run(*arguments, status):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, done
    return done


def run_json(*arguments, status):
    done = run(*arguments, "--json", status=status)
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout
    return json.loads(lines[0]), done.stderr


@pytest.fixture
def folder(tmp_path):
    safetensors.torch.save_file({"b": torch.ones(2, 3), "a": torch.zeros(4, dtype=torch.bfloat16)},
                                tmp_path / "1.safetensors")
    safetensors.torch.save_file({"c": torch.arange(3)}, tmp_path / "2.safetensors")
    return tmp_path


def write_index(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_a_good_folder(folder):
    report, errors = run_json("inspect", folder, status=0)
    assert errors == ""
    assert report["files"] == ["1.safetensors", "2.safetensors"]
    assert [(t["name"], t["dtype"], t["shape"], t["file"]) for t in report["tensors"]] == [
        ("b", "f32", [2, 3], "1.safetensors"), ("a", "bf16", [4], "1.safetensors"), ("c", "i64", [3], "2.safetensors")]
    assert report["bytes"] == 24 + 8 + 24
    assert report["problems"] == [] and "error" not in report
    assert all(len(t["digest"]) == 32 for t in report["tensors"]) and len(report["digest"]) == 32


def test_text_for_people(folder):
    done = run("inspect", folder, status=0)
    assert "3 tensors, 56 bytes, 2 files" in done.stdout
    assert "index, headers and files agree" in done.stdout
    assert "b  [2, 3] f32" in done.stdout


def test_digests_depend_on_the_bytes_alone(folder, tmp_path):
    before, _ = run_json("inspect", folder, status=0)
    again, _ = run_json("inspect", folder, status=0)
    assert before == again
    safetensors.torch.save_file({"c": torch.arange(3) + 1}, folder / "2.safetensors")
    after, _ = run_json("inspect", folder, status=0)
    assert [x["digest"] == y["digest"] for x, y in zip(before["tensors"], after["tensors"])] == [True, True, False]
    assert before["digest"] != after["digest"]


def test_copies_that_the_index_passes_over_are_told_in_one_line_and_change_nothing(folder):
    write_index(folder, {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"})
    without, errors = run_json("inspect", folder, status=0)
    assert errors == "" and without["warnings"] == []
    safetensors.torch.save_file({"c": torch.arange(3), "a": torch.ones(7), "b": torch.ones(2, 3)},
                                folder / "2.safetensors")
    (folder / "3.safetensors").write_bytes(b"broken, and in no index")
    report, errors = run_json("inspect", folder, status=0)
    assert len(errors.splitlines()) == 1
    assert "2 copies in other files passed over" in errors and "of '2.safetensors'" in errors
    assert len(report["warnings"]) == 1 and report["warnings"][0] in errors
    assert report["ignored"] == ["3.safetensors"] and report["problems"] == []
    assert [report[key] for key in ("tensors", "bytes", "digest")] == [
        without[key] for key in ("tensors", "bytes", "digest")]
    assert "index, headers and files agree" in run("inspect", folder, status=0).stdout


@pytest.mark.parametrize("load_format", ["pt", "mistral"])
def test_the_other_indexes_decide_between_copies_too(tmp_path, load_format):
    name = "layers.0.attention.wo.weight"  # one of Mistral's
    right, stale = {name: torch.ones(2, 3)}, {name: torch.zeros(4), "norm.weight": torch.zeros(1)}
    if load_format == "mistral":
        files, index = ["consolidated-1.safetensors", "consolidated-2.safetensors"], "consolidated.safetensors.index.json"
        (tmp_path / "params.json").write_text('{"n_heads": 2}')
        save = safetensors.torch.save_file
    else:
        files, index = ["pytorch_model-1.bin", "pytorch_model-2.bin"], "pytorch_model.bin.index.json"
        save = torch.save
    save(stale, tmp_path / files[0])
    save(right, tmp_path / files[1])
    weight_map = {key: files[0] for key in stale} | {key: files[1] for key in right}
    (tmp_path / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    report, errors = run_json("inspect", tmp_path, status=0)
    assert "1 copy in other files passed over" in errors
    assert sorted((t["shape"], t["file"]) for t in report["tensors"]) == [([1], files[0]), ([2, 3], files[1])]


def test_an_index_may_hold_what_python_writes_for_floats(folder):
    (folder / "model.safetensors.index.json").write_text(
        '{"metadata": {"total_size": NaN, "loss": [-Infinity]}, "weight_map": '
        '{"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}')
    report, errors = run_json("inspect", folder, status=0)
    assert errors == "" and len(report["tensors"]) == 3
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": NaN}}')
    done = run("inspect", folder, status=1)
    assert "weight_map: 'a': expected the name of a file in the same folder" in done.stderr
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": nan}}')
    assert "not JSON at byte" in run("inspect", folder, status=1).stderr


def test_an_index_that_disagrees_is_told_in_full(folder):
    write_index(folder, {"a": "1.safetensors", "b": "2.safetensors", "d": "2.safetensors", "e": "3.safetensors"})
    report, errors = run_json("inspect", folder, status=1)
    said = "\n".join(report["problems"])
    assert "missing: '3.safetensors'" in said
    assert "tensor 'b': expected in '2.safetensors', got it in '1.safetensors'" in said
    assert "tensor 'd': expected in '2.safetensors', got nothing of that name" in said
    assert "tensor 'c': expected in the weight_map" in said
    assert len(report["problems"]) == 4
    assert report["error"]["code"] == "not_found" and report["error"]["message"] in errors
    assert len(report["tensors"]) == 3 and report["digest"] is None


def test_files_that_the_index_does_not_mention_are_no_problem(folder):
    write_index(folder, {"a": "1.safetensors", "b": "1.safetensors"})
    report, _ = run_json("inspect", folder, status=0)
    assert report["files"] == ["1.safetensors"] and report["ignored"] == ["2.safetensors"]


def test_a_broken_file_beside_a_good_one(folder):
    whole = (folder / "2.safetensors").read_bytes()
    (folder / "2.safetensors").write_bytes(whole[:-1])
    report, errors = run_json("inspect", folder, status=1)
    assert report["error"]["code"] == "corrupt"
    assert "2.safetensors': tensor 'c': data_offsets [0, 24]" in report["problems"][0]
    assert [t["name"] for t in report["tensors"]] == ["b", "a"]
    assert errors.count("\n") == 1


def test_a_tensor_in_two_files(folder):
    safetensors.torch.save_file({"a": torch.ones(1)}, folder / "3.safetensors")
    report, _ = run_json("inspect", folder, status=1)
    assert "tensor 'a': expected once, got it in '1.safetensors' and in '3.safetensors'" in report["error"]["message"]


def test_nan_is_no_disagreement_but_said(folder):
    safetensors.torch.save_file({"c": torch.tensor([[0.0, 1.0], [float("nan"), 2.0]])}, folder / "2.safetensors")
    report, errors = run_json("inspect", folder, status=0)
    assert report["digest"] is None and report["problems"] == []
    [warning] = report["warnings"]
    assert warning.startswith("publishers would refuse this checkpoint: ") and "'c'" in warning and "[1, 0]" in warning
    assert warning in errors


def test_nothing_there(tmp_path):
    report, errors = run_json("inspect", tmp_path, status=1)
    assert report["error"]["code"] == "not_found"
    assert "looked for *.safetensors, with or without model.safetensors.index.json" in report["error"]["message"]
    assert errors == f"layercast inspect: {report['error']['message']}\n"
    report, _ = run_json("inspect", tmp_path / "nowhere", status=1)
    assert report["error"]["code"] == "not_found"
    assert run("inspect", tmp_path, status=1).stdout == ""


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["inspect"], ["inspect", "x", "y"], ["inspect", "x", "--flag"],
                                       ["--flag"]], ids=" ".join)
def test_wrong_usage(arguments):
    done = run(*arguments, status=2)
    assert done.stdout == "" and done.stderr.startswith("layercast") and "--help" in done.stderr
    report, _ = run_json(*arguments, status=2)
    assert report["error"]["code"] == "invalid_argument"


def test_help_and_version():
    assert run("--version", status=0).stdout.startswith("layercast ")
    assert "inspect" in run("--help", status=0).stdout
    assert "--json" in run("inspect", "--help", status=0).stdout


def test_standard_output_that_is_full_is_a_failure(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "inspect", str(folder)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr


def on_a_terminal(*arguments, terminal="xterm"):
    """Standard error as a terminal gets it, and standard output."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=theirs, text=True,
                            env={**os.environ, "TERM": terminal})
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:  # its end of the terminal is closed
        pass
    os.close(ours)
    output = done.communicate()[0]
    assert done.returncode == 0
    return said.decode(), output


def test_a_bar_on_a_terminal_and_nowhere_else(folder):
    for words in (["inspect", folder], ["inspect", folder, "--json"]):
        drawn, output = on_a_terminal(*words)
        assert drawn.startswith("\r\x1b[Kreading [") and "/56 B" in drawn and drawn.endswith("\r\x1b[K")
    assert json.loads(output)["problems"] == []
    assert on_a_terminal("inspect", folder, terminal="dumb")[0] == ""
    assert run("inspect", folder, status=0).stderr == ""


def test_formats_are_looked_at_before_anything_else(folder):
    error, said = run_json("inspect", folder, "--load-format", "npcache", status=2)
    assert "load format 'npcache' is not read" in error["error"]["message"] and "use pt" in said
    error, _ = run_json("inspect", folder, "--load-format", "x", status=2)
    assert "expected auto, safetensors, mistral, pt, gguf" in error["error"]["message"]
    error, _ = run_json("inspect", folder, "--load-format", "dummy", status=1)
    assert error["error"]["code"] == "unsupported"
    error, _ = run_json("inspect", folder, "--secondary-weights", "=x", status=2)
    assert "expected PREFIX=PATH" in error["error"]["message"]


def test_a_total_size_that_is_wrong_is_a_warning(folder):
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": 57}, "weight_map": {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}))
    report, said = run_json("inspect", folder, status=0)
    assert len(report["warnings"]) == 1 and report["warnings"][0] in said
    assert "metadata.total_size: expected the 56 bytes of its tensors, got 57" in said
