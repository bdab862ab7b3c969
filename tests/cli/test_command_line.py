"""How command lines are read: one name for the folder of a checkpoint, lists with blanks in them, and what is said of
words that are misspelt."""

import re

import pytest

import fake_engine

NOBODY = "tcp://127.0.0.1:9"
# Each with what it needs besides a folder.
TAKE_A_FOLDER = [["publish"], ["serve"], ["plan"], ["inspect"], ["reload", "--engine", NOBODY, "--timeout", "0.2"],
                 ["verify", "--engine", NOBODY, "--timeout", "0.2"]]
OLD_NAMES = {"publish": "--checkpoint", "reload": "--weights-path", "verify": "--against"}


@pytest.fixture
def engine():
    version = {"lineage": "run", "step": 2, "digest": "0" * 32}
    engine = fake_engine.FakeEngine({"ok": True, "version": version, "previous": None, "report": None, "error": None,
                                     "tokens": [1], "finish": "length", "spans": []})
    yield engine
    engine.close()


def end_of(program, *arguments):
    outcome = program.run(*arguments, status=None)
    assert outcome.status != 2
    return outcome.status, outcome.json


@pytest.mark.parametrize("command", TAKE_A_FOLDER, ids=lambda command: command[0])
def test_a_folder_has_one_name_everywhere_and_may_stand_alone(command, program, tmp_path):
    nowhere = tmp_path / "nowhere"
    named = end_of(program, *command, "--model", nowhere)
    assert named == end_of(program, *command, nowhere) == end_of(program, command[0], nowhere, *command[1:])
    assert named == end_of(program, *command, f"--model={nowhere}") and named[0] == 1


@pytest.mark.parametrize("command", [command for command in TAKE_A_FOLDER if command[0] in OLD_NAMES],
                         ids=lambda command: command[0])
def test_an_old_name_works_and_says_once_what_it_is_called_now(command, program, tmp_path):
    old = OLD_NAMES[command[0]]
    now = program.run(*command, "--model", tmp_path / "nowhere", status=1)
    for arguments in ([old, tmp_path / "nowhere"], [f"{old}={tmp_path / 'nowhere'}"]):
        outcome = program.run(*command, *arguments, status=1)
        assert outcome.json == now.json
        assert outcome.errors == f"layercast {command[0]}: {old} is called --model now\n{now.errors}"
    assert old not in program.text(command[0], "--help")
    assert f"layercast {command[0]}: {old} is called" in program.run(*command, old, "", status=2).errors


def test_a_name_that_is_old_elsewhere_is_none_here(program):
    assert "there is no option '--against'" in program.refused("publish", "--against", "x", status=2)["message"]


def test_an_endpoint_is_no_folder(program):
    for command in (["reload", "--engine", NOBODY], ["serve", "--model"], ["publish"]):
        message = program.refused(*command, "tcp://127.0.0.1:10", status=2)["message"]
        assert "--model: expected a folder or a file, got the endpoint 'tcp://127.0.0.1:10'" in message


# The same list in three ways: as one word without and with a blank, and as two.
def in_three_ways(*items):
    return [[",".join(items)], [", ".join(items)], [f"{item}," for item in items[:-1]] + [items[-1]]]


@pytest.mark.parametrize("flag, items, param, got", [
    ("--publisher", ["tcp://127.0.0.1:7", "tcp://127.0.0.1:8"], "publisher", "tcp://127.0.0.1:7,tcp://127.0.0.1:8"),
    ("--may-keep", ["model.norm", "lm_head"], "may_keep", ["model.norm", "lm_head"])])
def test_lists_of_a_reload(flag, items, param, got, program, engine):
    others = ["--partial"] + ([] if flag == "--publisher" else ["--publisher", NOBODY])
    for words in in_three_ways(*items):
        program.run("reload", "--engine", engine.endpoint, *others, flag, *words)
        program.run("reload", "--engine", engine.endpoint, *others, f"{flag}={words[0]}", *words[1:])
    assert [asked[param] for asked in engine.asked] == [got] * 6


def test_a_list_of_engines(program, engine):
    other = fake_engine.FakeEngine(engine._answer)
    for words in in_three_ways(engine.endpoint, other.endpoint):
        done = program.run("reload", "--engine", *words, "--publisher", NOBODY).json
        assert [outcome["endpoint"] for outcome in done["engines"]] == [engine.endpoint, other.endpoint]
        program.run("reload", "--engine", *words, "/folder")  # which stands behind the list
    assert [asked.get("weights_path") for asked in other.asked] == [None, "/folder"] * 3
    other.close()


def test_a_list_of_tokens(program, engine):
    for words in in_three_ways("3", "11", "4"):
        program.run("generate", "--engine", engine.endpoint, "--tokens", *words)
    assert [asked["tokens"] for asked in engine.asked] == [[3, 11, 4]] * 3


def test_lists_of_checkpoints_whose_paths_may_hold_commas(program, engine):
    hydra = "b.=/runs/lr=1,seed=2"
    for words in ([f"a.=/a, {hydra}"], ["a.=/a,", hydra], ["a.=/a", "--secondary-weights", hydra]):
        program.run("verify", "--engine", engine.endpoint, "/folder", "--secondary-weights", *words, status=None)
    assert [asked["secondary_weights"] for asked in engine.asked] == [
        [{"prefix": "a.", "path": "/a"}, {"prefix": "b.", "path": "/runs/lr=1,seed=2"}]] * 3


@pytest.mark.parametrize("command, flag, items", [(["publish"], "--channel", ["zmq", "shm"]),
                                                  (["serve", "--pp", 2], "--pp-layers", ["1", "1"]),
                                                  (["plan", "--pp", 2], "--pp-layers", ["1", "1"]),
                                                  (["plan"], "--publisher", [NOBODY, "tcp://127.0.0.1:8"])])
def test_lists_that_are_read_before_a_folder_that_is_not_there(command, flag, items, program):
    for words in in_three_ways(*items):
        assert program.refused(*command, "/nowhere", flag, *words)["code"] == "not_found"


def test_a_comma_at_the_end_of_a_value_that_is_no_list_is_a_part_of_it(program):
    assert program.refused("publish", "--lineage", "a,", "/nowhere")["code"] == "not_found"


def test_help_lists_the_channels_between_processes(program):
    listed = set()
    for command in ("publish", "serve", "reload"):
        [channels] = re.findall(r"--channel [A-Z]+:\{([a-z_,]+)\}", program.text(command, "--help"))
        listed.add(channels)
        engine = ["--engine", NOBODY] if command == "reload" else []
        error = program.refused(command, "x", *engine, "--channel", "pigeon", status=2)
        assert f"--channel: expected one of {channels.replace(',', ', ')}, got 'pigeon'" in error["message"]
    [channels] = listed
    assert {"shm", "zmq"} <= set(channels.split(",")) and "inproc" not in channels


@pytest.mark.parametrize("arguments, meant", [
    (["relod"], "expected a subcommand, got 'relod': did you mean 'reload'?"),
    (["verfiy", "--engine", NOBODY], "got 'verfiy': did you mean 'verify'?"), (["--versoin"], "did you mean '--version'?"),
    (["reload", "--engine", NOBODY, "--pubisher", NOBODY], "no option '--pubisher': did you mean '--publisher'?"),
    (["reload", "--engine", NOBODY, f"--pubisher={NOBODY}"], f"'--pubisher={NOBODY}': did you mean '--publisher'?"),
    (["reload", "--enigne", NOBODY, "x"], "there is no option '--enigne': did you mean '--engine'?"),
    (["export", "--enigne", NOBODY, "--out", "x"], "--engine is required; there is no option '--enigne': did you mean"),
    (["serve", "x", "--max_num_seqs", "3"], "'--max_num_seqs': did you mean '--max-num-seqs'?"),
    (["serve", "-model", "x"], "'-model': did you mean '--model'?"),
    (["serve", "x", "--tpp", "2", "--qantization", "none"],
     "'--tpp': did you mean '--tp'? there is no option '--qantization': did you mean '--quantization'?"),
    (["serve", "x", "--quantization", "fp8_per_chanel"], "got 'fp8_per_chanel': did you mean 'fp8_per_channel'?"),
    (["plan", "x", "--quantization", "mxpf8"], "did you mean 'mxfp8'?"),
    (["serve", "x", "--commit", "in-place"], "did you mean 'in_place'?"),
    (["serve", "x", "--device", "cud"], "did you mean 'cuda'?"),
    (["reload", "--engine", NOBODY, "--pause-mode", "abrot"], "did you mean 'abort'?"),
    (["publish", "x", "--mode", "snapshoot"], "did you mean 'snapshot'?"),
    (["publish", "x", "--mode", "stream", "--order", "shufled:7"], "did you mean 'shuffled'?"),
    (["publish", "x", "--channel", "shm, zqm"], "got 'zqm': did you mean 'zmq'?"),
    (["serve", "x", "--expert-parallel", "--expert-placement", "round-robin"], "did you mean 'round_robin'?"),
    (["inspect", "x", "--load-format", "safetensor"], "did you mean 'safetensors'?")], ids=str)
def test_what_is_misspelt_is_told_with_what_may_have_been_meant(arguments, meant, program):
    assert meant in program.refused(*arguments, status=2)["message"]


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve", "x", "--nonsense"], ["serve", "x", "--ep", "2"],
                                       ["serve", "x", "--quantization", "fp7"], ["publish", "x", "--channel", "pigeon"],
                                       ["inspect", "x", "y"]], ids=" ".join)
def test_nothing_is_guessed_where_nothing_is_near(arguments, program):
    assert "did you mean" not in program.refused(*arguments, status=2)["message"]
