"""Text for people: each error is said once, on standard error, and no line is too wide."""

import pytest
import safetensors.torch
import torch

import program as layercast_program

VERSION = {"lineage": "run", "step": 2, "digest": "0" * 32}
LONG = {"lineage": "run/" + "0123456789" * 100, "step": 2, "digest": "0" * 32}
LETTERS = {"lineage": "重" * 300, "step": 2, "digest": "0" * 32}
CHANNEL = {"name": "shm", "gb_per_s": 9.1, "probed_gb_per_s": 9.8, "lane": "", "warning": "slow: " + "why " * 60,
           "reason": "the fastest: " + ", ".join(f"shm{i} 9.8 GB/s" for i in range(30))}


def failed(message, code="corrupt", version=VERSION):
    return {"ok": False, "version": version, "previous": None, "report": None, "error": {"code": code, "message": message}}


def reload(program, *engines):
    outcome = program.for_people("reload", "--engine", ",".join(engines), "--publisher", "tcp://127.0.0.1:9", status=1)
    return outcome.output.splitlines(), outcome.errors.splitlines()


def test_a_reload_that_fails_says_why_once(fake, program):
    engine = fake(failed("chunk 3: digest"))
    assert reload(program, engine) == ([f"{engine}: failed, still serves run@2:{'0' * 16}"],
                                       [f"layercast reload: engine {engine}: chunk 3: digest"])


def test_engines_that_fail_alike_are_named_with_one_error(fake, program):
    alike = [fake(failed("the publisher is gone")) for _ in range(2)]
    other = fake(failed("out of memory", version=None))
    _, errors = reload(program, alike[0], other, alike[1])
    assert errors == [f"layercast reload: engine {alike[0]}, {alike[1]}: the publisher is gone",
                      f"  engine {other}: out of memory"]


def test_engines_that_were_cancelled_because_of_another_do_not_repeat_its_error(fake, program):
    at_fault = fake(failed("out of memory"))
    cancelled = fake(failed("not committed, as on no other engine: out of memory", "cancelled"))
    output, errors = reload(program, cancelled, at_fault)
    assert output[0].startswith(f"{cancelled}: cancelled, still serves run@2")
    assert errors == [f"layercast reload: engine {at_fault}: out of memory"]
    assert len(reload(program, cancelled)[1]) == 1


def test_a_verification_lists_differences_and_says_once_that_there_are_some(fake, program):
    differences = [{"rank": rank, "tensor": "w", "offset": 12, "served": 1, "expected": 2} for rank in range(2)]
    engine = fake({"tensors": 3, "bytes": 9, "equal": False, "differences": differences})
    outcome = program.for_people("verify", "--engine", engine, "/folder", status=1)
    assert outcome.output.splitlines() == ["3 tensors, 9 bytes: not equal"] + [
        f"  rank {rank}, 'w', byte 12: serves 1, expected 2" for rank in range(2)]
    assert outcome.errors == "layercast verify: the engine does not serve /folder: 2 tensors differ\n"


@pytest.mark.parametrize("files", [["1"], ["1", "2", "3"]])
def test_problems_of_a_checkpoint_are_each_said_once(files, program, tmp_path):
    for name in files:
        safetensors.torch.save_file({f"tensor.{name}": torch.ones(2)}, tmp_path / f"{name}.safetensors")
        whole = (tmp_path / f"{name}.safetensors").read_bytes()
        (tmp_path / f"{name}.safetensors").write_bytes(whole[:-1])
    problems = program.run("inspect", tmp_path, status=1).json["problems"]
    assert len(problems) == len(files)
    outcome = program.for_people("inspect", tmp_path, status=1)
    for problem in problems:
        assert (outcome.output + outcome.errors).count(problem) == 1 == outcome.errors.count(problem)
    assert outcome.errors.startswith(f"layercast inspect: {problems[0] if len(files) == 1 else '3 problems:'}")


def engine_status(**fields):
    ranks = [{"rank": rank, "pid": 4711 + rank, "served_digest": "0" * 32, "buffers_digest": None} for rank in range(4)]
    return {"state": "serving", "version": VERSION, "pid": 1, "pids": [rank["pid"] for rank in ranks], "tp": 4, "pp": 1,
            "quantization": "fp8_per_channel", "device": "cpu", "commit": "staged", "torn": None, "ranks": ranks,
            "channel": None, "last_report": None, "last_error": None} | fields


@pytest.mark.parametrize("fields", [
    {"version": LONG}, {"version": LETTERS}, {"version": None, "torn": {"from": LONG, "to": VERSION}},
    {"last_error": {"code": "corrupt", "message": "word " * 400}},
    {"last_error": {"code": "corrupt", "message": "does not fit:\n  missing: " + "model.layers.0.x, " * 40}},
    {"last_error": {"code": "corrupt", "message": "x" * 1000}},
    {"channel": CHANNEL | {"ranks": [CHANNEL | {"rank": rank} for rank in range(4)]}}],
    ids=["lineage", "letters", "torn", "words", "lines", "word", "channels"])
def test_no_line_of_a_status_is_too_wide_and_nothing_is_left_out(fields, fake, program):
    outcome = program.for_people("status", "--engine", fake(engine_status(**fields)))
    said = "".join(outcome.output.split())
    assert len(outcome.output.splitlines()) > 6 and "rank3(process4714):" in said
    for text in (fields.get("last_error") or {}).get("message", ""), (fields.get("version") or VERSION)["lineage"]:
        assert "".join(text.split()) in said


def test_no_line_of_a_reload_is_too_wide(fake, program):
    report = {"bytes": 1, "bytes_total": 2, "layers": 3, "total_ms": 1.5, "kept": ["model.layers.0-3,7." + "x" * 200],
              "channel": CHANNEL | {"ranks": [CHANNEL | {"rank": 0}]}, "unused_rules": ["prefix " + "y " * 200],
              "publishers": [{"relayed_bytes": 1, "relays": [f"tcp://127.0.0.1:{port}" for port in range(7000, 7032)]}]}
    answer = {"ok": True, "version": LONG, "previous": VERSION, "report": report, "error": None}
    said = program.text("reload", "--engine", fake(answer), "--publisher", "tcp://127.0.0.1:9")
    assert all(f"tcp://127.0.0.1:{port}" in said for port in range(7000, 7032))


def test_no_line_of_publishers_is_too_wide(program, start, tmp_path):
    safetensors.torch.save_file({"w": torch.ones(2)}, tmp_path / "1.safetensors")
    publishers = [start("publish", tmp_path, "--lineage", lineage) for lineage in (LONG["lineage"], LETTERS["lineage"])]
    for publisher in publishers:
        said = program.text("status", "--publisher", publisher.endpoint)
        assert "snapshot, 1 tensors, 8 bytes" in said and len(said.splitlines()) > 3
        publisher.stop()


def test_what_is_left_of_a_line_stands_under_it(fake, program):
    error = {"code": "corrupt", "message": " ".join(["word"] * 50)}
    lines = program.text("status", "--engine", fake(engine_status(last_error=error))).splitlines()
    assert lines[-2].startswith("  last reload failed: word") and lines[-1].startswith("      word word")
    assert len(lines[-2]) > layercast_program.MOST_COLUMNS - 6
