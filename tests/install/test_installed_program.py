"""What `cmake --install` put into a prefix serves on its own: `layercast` finds its `layercast-rank`."""

import os

import program as layercast_program


def test_the_installed_program_serves_and_reloads(tmp_path, checkpoint):
    program = layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path)
    publisher = program.daemon("publish", "--model", checkpoint("qwen3", "b"))
    engine = program.daemon("serve", "--model", checkpoint("qwen3", "a"), "--tp", 2, "--quantization", "fp8_per_channel")
    try:
        assert program.reload(engine, "--publisher", publisher.endpoint)["version"] == publisher.version
        assert len(program.generate(engine, [3, 11, 4], "--max-new", 5)["tokens"]) == 5
    finally:
        engine.kill()
        publisher.kill()
