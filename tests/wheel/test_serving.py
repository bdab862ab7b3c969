"""The programs of the wheel run an engine where only the wheel is installed: ranks on the CPU, which need no torch."""

import pathlib

import program as layercast_program

# Where a process may have code from, but for the wheel: the system's folders.
SYSTEM_FOLDERS = ("/usr/", "/lib")


def code_of(pid):
    """The files that a process runs code from."""
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {fields[5] for fields in map(str.split, lines) if len(fields) > 5 and "x" in fields[1] and fields[5][0] == "/"}


def test_the_command_serves_and_takes_a_new_version(environment, checkpoint, tmp_path):
    program = layercast_program.Program(environment / "bin/layercast", tmp_path)
    publisher = program.daemon("publish", "--model", checkpoint("qwen3", "b"))
    engine = program.daemon("serve", "--model", checkpoint("qwen3", "a"), "--tp", 2, "--quantization", "fp8_per_channel")
    try:
        assert program.reload(engine, "--publisher", publisher.endpoint)["version"] == publisher.version
        assert len(program.generate(engine, [3, 11, 4], "--max-new", 5)["tokens"]) == 5

        for pid in engine.all_pids():
            code = code_of(pid)
            (zeromq,) = [path for path in code if "libzmq" in path]
            assert zeromq.startswith(str(environment))  # and not the system's
            assert all(path.startswith((str(environment), *SYSTEM_FOLDERS)) for path in code), code
            assert not [path for path in code if "torch" in path]
    finally:
        engine.kill()
        publisher.kill()


def test_the_command_says_that_it_has_no_metrics_and_no_http(environment, checkpoint, tmp_path):
    program = layercast_program.Program(environment / "bin/layercast", tmp_path)
    refused = program.refused("publish", "--model", checkpoint("qwen3", "a"), "--metrics-bind", "127.0.0.1:0")
    assert refused["code"] == "unsupported" and "this build has no metrics: prometheus-cpp" in refused["message"]
    refused = program.refused("serve", "--model", checkpoint("qwen3", "a"), "--http-bind", "127.0.0.1:0")
    assert refused["code"] == "unsupported" and "this build has no HTTP: cpp-httplib" in refused["message"]
