"""What a command took of a process's memory is given back when it has ended, however it has ended."""

import json

import pytest
import torch
from safetensors.torch import save_file

import program as layercast_program

# No tensor is so large that an allocator would hand it back by itself.
HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY, KEYS = 1024, 4096, 6, 4096, 256
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "vocab_size": VOCABULARY,
          "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS,
          "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 512}
SERVED = 190 << 20  # bytes, at least
FEW = 16 << 20
LAST = f"model.layers.{LAYERS - 1}.mlp.down_proj.weight"


def tensors():
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN),
              "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        of_layer = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KEYS, HIDDEN),
                    "self_attn.v_proj": (KEYS, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
                    "mlp.gate_proj": (INTERMEDIATE, HIDDEN), "mlp.up_proj": (INTERMEDIATE, HIDDEN),
                    "mlp.down_proj": (HIDDEN, INTERMEDIATE), "input_layernorm": (HIDDEN,),
                    "post_attention_layernorm": (HIDDEN,)}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in of_layer.items()}
    return {name: torch.full(shape, 0.01, dtype=torch.bfloat16) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint, and one whose last layer has a NaN."""
    whole, broken = (tmp_path_factory.mktemp(name) for name in ("whole", "broken"))
    weights = tensors()
    for folder in (whole, broken):
        (folder / "config.json").write_text(json.dumps(CONFIG))
        save_file(weights, folder / "model.safetensors")
        weights[LAST][5, 7] = float("nan")
    return {"whole": whole, "broken": broken}


@pytest.fixture(scope="module")
def engine(start_shared, folders):
    return start_shared("serve", "--model", folders["whole"], "--channel", "zmq")


@pytest.fixture(scope="module")
def publisher(start_shared, folders):
    return start_shared("publish", "--model", folders["whole"])


def anonymous(daemon):
    return {pid: layercast_program.anonymous_bytes(pid) for pid in daemon.all_pids()}


def assert_given_back(before, *daemons):
    """An engine gives back what it no longer needs a moment after its answer."""
    def after():
        return {pid: size for daemon in daemons for pid, size in anonymous(daemon).items()}

    try:
        layercast_program.wait_until(lambda: all(size <= before[pid] + FEW for pid, size in after().items()), 20, "")
    except layercast_program.ProgramFailed:
        grown = {pid: size - before[pid] for pid, size in after().items()}
        raise layercast_program.ProgramFailed(f"more memory than before, by process: {grown}") from None


COMMANDS = {
    "verify": (lambda folders, out: ("verify", "--model", folders["whole"]), 0),
    "verify that fails": (lambda folders, out: ("verify", "--model", folders["broken"]), 1),
    "export": (lambda folders, out: ("export", "--out", out), 0),
    "export that fails": (lambda folders, out: ("export", "--out", folders["whole"] / "config.json"), 1),
    "reload": (lambda folders, out: ("reload", "--model", folders["whole"]), 0),
    "reload that fails": (lambda folders, out: ("reload", "--model", folders["broken"]), 1),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_took_is_given_back(command, program, engine, folders, tmp_path):
    arguments, status = COMMANDS[command]
    name, *rest = arguments(folders, tmp_path / "out")
    before = anonymous(engine)
    program.run(name, "--engine", engine.endpoint, *rest, status=status)
    assert_given_back(before, engine)


def test_what_a_sync_took_is_given_back_on_both_sides(program, engine, publisher):
    before = anonymous(engine) | anonymous(publisher)
    assert program.reload(engine, "--publisher", publisher.endpoint)["report"]["bytes"] > SERVED
    assert_given_back(before, engine, publisher)


def test_a_plan_and_a_probe_leave_a_publisher_no_more_memory(program, publisher, folders):
    before = anonymous(publisher)
    program.run("plan", "--model", folders["whole"], "--publisher", publisher.endpoint)
    program.run("probe", "--publisher", publisher.endpoint)
    assert_given_back(before, publisher)


def test_a_comparison_that_nobody_waits_for_any_more_gives_back_what_it_took(program, engine, folders):
    before = anonymous(engine)
    command, client = program.start("verify", "--engine", engine.endpoint, "--model", folders["whole"])
    [rank] = engine.pids
    layercast_program.wait_until(lambda: layercast_program.anonymous_bytes(rank) > before[rank] + 3 * FEW, 20,
                                 "it took nothing")
    client.kill()
    program.finish((command, client), status=-9)
    assert_given_back(before, engine)


@pytest.mark.parametrize("commit", ["undo", "in_place"])
def test_a_commit_that_receives_gives_back_what_it_took(commit, program, start, publisher, folders):
    engine = start("serve", "--model", folders["whole"], "--commit", commit)
    before = anonymous(engine)
    assert program.reload(engine, "--publisher", publisher.endpoint, "--channel", "zmq")["ok"]
    assert_given_back(before, engine)
    # What is kept of the old bytes lies in memory that outlives the process.
    assert program.reload(engine, "--model", folders["broken"], status=1)["error"]["code"] == "corrupt"
    assert_given_back(before, engine)
