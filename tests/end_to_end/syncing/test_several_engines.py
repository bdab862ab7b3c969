"""One publisher, several engines at once: of different ranks and recipes, in one command or each in its own, from the
start or later. Each serves what it would serve if it were alone."""

import pytest

ENGINES = ((1, "fp8_per_tensor"), (2, "fp8_per_block"), (1, "none"))  # ranks, recipe


@pytest.fixture
def engines(start, checkpoint):
    return [serve(start, checkpoint, tp, recipe) for tp, recipe in ENGINES]


def serve(start, checkpoint, tp, recipe):
    return start("serve", "--model", checkpoint("llama", "a"), "--tp", tp, "--quantization", recipe, "--chunk-bytes", 20_000)


@pytest.mark.parametrize("channel", ["shm", "zmq"])
@pytest.mark.parametrize("mode", ["snapshot", "stream"])
def test_one_command_reloads_them_all(mode, channel, engines, program, start, checkpoint, assert_serves):
    folder = checkpoint("llama", "b")
    publisher = start("publish", "--model", folder, "--mode", mode)
    endpoints = ",".join(engine.endpoint for engine in engines)
    done = program.run("reload", "--engine", endpoints, "--publisher", publisher.endpoint, "--channel", channel).json
    assert [outcome["endpoint"] for outcome in done["engines"]] == [engine.endpoint for engine in engines]
    assert len({outcome["version"]["digest"] for outcome in done["engines"]}) == 1
    for engine, outcome, (_, recipe) in zip(engines, done["engines"], ENGINES):
        assert outcome["ok"] and outcome["report"]["channel"]["name"] == channel
        assert_serves(engine, folder, recipe)


def test_each_takes_the_version_by_itself_while_the_others_do(engines, program, start, checkpoint, assert_serves):
    folder = checkpoint("llama", "b")
    publisher = start("publish", "--model", folder)
    commands = [program.start("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint, "--channel", channel)
                for engine, channel in zip(engines, ("shm", "zmq", "shm"))]
    for command in commands:
        assert program.finish(command).json["engines"][0]["version"] == publisher.version
    for engine, (_, recipe) in zip(engines, ENGINES):
        assert_serves(engine, folder, recipe)
    # One that joins later finds the version as it was.
    late = serve(start, checkpoint, 2, "fp8_per_channel")
    assert program.reload(late, "--publisher", publisher.endpoint)["version"] == publisher.version
    assert_serves(late, folder, "fp8_per_channel")
    assert program.run("status", "--publisher", publisher.endpoint).json["readers"] == 0


def test_one_that_fails_does_not_hold_up_the_others(engines, program, start, checkpoint, assert_serves):
    folder = checkpoint("llama", "b")
    failing = start("serve", "--model", checkpoint("llama", "a"), "--quantization", "none", failpoints="quantize=throw@2")
    publisher = start("publish", "--model", folder)
    together = (*engines, failing)
    done = program.run("reload", "--engine", ",".join(engine.endpoint for engine in together), "--publisher",
                       publisher.endpoint, status=1).json
    assert [outcome["ok"] for outcome in done["engines"]] == [True, True, True, False]
    assert "failpoint quantize" in done["engines"][3]["error"]["message"]
    for engine, (_, recipe) in zip(engines, ENGINES):
        assert_serves(engine, folder, recipe)
    assert_serves(failing, checkpoint("llama", "a"), "none")


# All or none.


def test_all_commit_together(engines, program, start, checkpoint, assert_serves):
    folder = checkpoint("llama", "b")
    publisher = start("publish", "--model", folder)
    done = reload_together(program, engines, publisher)
    assert [outcome["version"] for outcome in done["engines"]] == [publisher.version] * len(engines)
    for engine, (_, recipe) in zip(engines, ENGINES):
        assert_serves(engine, folder, recipe)
        assert program.generate(engine, (3, 11), "--max-new", 2)["spans"][0]["version"] == publisher.version


@pytest.mark.parametrize("fault", ["quantize=throw@2", "commit.prepare=throw"])
def test_one_that_fails_is_enough_that_none_commits(fault, engines, program, start, checkpoint, assert_serves):
    old, new = checkpoint("llama", "a"), checkpoint("llama", "b")
    failing = start("serve", "--model", old, "--quantization", "none", failpoints=fault)
    publisher = start("publish", "--model", new)
    before = [engine.version for engine in (*engines, failing)]
    done = reload_together(program, (*engines, failing), publisher, status=1)
    assert [outcome["version"] for outcome in done["engines"]] == before
    assert [outcome["error"]["code"] for outcome in done["engines"][:3]] == ["cancelled"] * 3
    for outcome in done["engines"]:
        assert failing.endpoint in outcome["error"]["message"] or outcome["endpoint"] == failing.endpoint
        assert "failpoint" in outcome["error"]["message"]
    for engine, (_, recipe) in zip(engines, ENGINES):
        assert_serves(engine, old, recipe)
        assert program.status(engine)["state"] == "serving"
    # Nothing is left of it: together or alone, they take the version now.
    assert reload_together(program, engines, publisher)["ok"]
    assert_serves(engines[1], new, ENGINES[1][1])


def test_an_engine_that_dies_before_the_commit_is_enough_that_none_commits(engines, program, start, checkpoint,
                                                                          assert_serves):
    old, new = checkpoint("llama", "a"), checkpoint("llama", "b")
    publisher = start("publish", "--model", new)
    engines[2].kill()
    done = reload_together(program, engines, publisher, status=1)
    assert [outcome["ok"] for outcome in done["engines"]] == [False] * 3
    assert [outcome["error"]["code"] for outcome in done["engines"][:2]] == ["cancelled"] * 2
    for engine, (_, recipe) in zip(engines[:2], ENGINES):
        assert_serves(engine, old, recipe)


def test_an_engine_that_writes_as_it_receives_cannot_wait_for_others(program, start, checkpoint, assert_serves):
    undo = start("serve", "--model", checkpoint("llama", "a"), "--quantization", "none", "--commit", "undo")
    publisher = start("publish", "--model", checkpoint("llama", "b"))
    done = reload_together(program, [undo], publisher, status=1)
    assert done["engines"][0]["error"]["code"] == "failed_precondition"
    assert "expected the commit policy staged" in done["engines"][0]["error"]["message"]
    assert_serves(undo, checkpoint("llama", "a"), "none")


def reload_together(program, engines, publisher, status=0):
    endpoints = ",".join(engine.endpoint for engine in engines)
    return program.run("reload", "--engine", endpoints, "--publisher", publisher.endpoint, "--all-or-none",
                       status=status).json
