"""One name, many versions: upserts while sequences are under way, what a switch does to these, engines that switch
together, and bases that change below adapters."""

import pytest
import torch

import adapters
import program as layercast_program
from adapter_setting import APART, LIMIT, PROMPT, AdapterSetting, only

UPSERTS = 200
SEQUENCES = 8
VERSIONS = 4  # different ones, by turns
LONG = 480


@pytest.fixture
def setting(program, start, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    return AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))


def upserts_under_load(setting, upsert, new=30):
    """Calls upsert(number) for each of them while 8 sequences are asked for again and again. Returns all answers."""
    answers, asking = [], {}
    for number in range(1, UPSERTS + 1):
        for sequence in range(SEQUENCES):
            started = asking.get(sequence)
            if started and started[1].poll() is None:
                continue
            if started:
                answers += setting.program.finish(started).json["answers"]
            asking[sequence] = setting.program.start(*setting.asking("policy", new=new, repeat=60, seed=1000 * sequence + number))
        upsert(number)
    for started in asking.values():
        answers += setting.program.finish(started).json["answers"]
    return answers


def assert_each_fits_its_version_alone(setting, answers):
    """Every token's log-probability is that of the version which its span names. A version's `step` says which it is."""
    seen = set()
    for answer in answers:
        version = only(span["adapter"] for span in answer["spans"])
        assert [(span["start"], span["end"]) for span in answer["spans"]] == [(0, len(answer["tokens"]))]
        seen.add(version["step"])
    for number in range(VERSIONS):
        of_it = [answer for answer in answers if answer["spans"][0]["adapter"]["step"] % VERSIONS == number]
        chosen = of_it[:: max(1, len(of_it) // 60)]
        assert chosen
        assert setting.distances(chosen, number).max() < LIMIT
        for other in set(range(VERSIONS)) - {number}:
            assert setting.distances(chosen, other).max(1).values.min() > APART
    return seen


def test_200_upserts_under_load(setting):
    setting.serve("--tp", 2, slots=4)
    setting.load_from("--publisher", setting.publish(0, 0).endpoint)
    held, base, answer_of_base = {}, setting.program.status(setting.engine)["ranks"], setting.answer(None)

    def upsert(number):
        publisher = setting.publish(number % VERSIONS, number)
        done = setting.load_from("--publisher", publisher.endpoint)
        assert done["version"] == publisher.version and publisher.version["step"] == number
        assert done["previous"]["step"] == number - 1
        publisher.kill()
        if number in (UPSERTS // 2, UPSERTS):
            held[number] = [layercast_program.anonymous_bytes(pid) for pid in setting.engine.pids]

    answers = upserts_under_load(setting, upsert)
    seen = assert_each_fits_its_version_alone(setting, answers)
    assert len(answers) > UPSERTS and len(seen) > UPSERTS / 4
    (listed,) = [entry for entry in setting.list() if entry["state"] == "served"]
    assert listed["version"]["step"] == UPSERTS and setting.names() == ["policy"]
    first, last = (sum(held[number]) for number in sorted(held))
    assert last - first < 4 << 20, held
    assert setting.program.status(setting.engine)["ranks"] == base and setting.answer(None) == answer_of_base
    assert setting.program.run("verify", "--engine", setting.engine.endpoint, "--model", setting.base).json["equal"]
    setting.assert_is(setting.answer(), UPSERTS % VERSIONS, others=[1, 2])


def test_upserts_from_folders_by_turns(setting):
    setting.serve(slots=2)
    versions = [setting.load("policy", version)["version"] for version in (0, 1)]
    assert versions[0]["digest"] != versions[1]["digest"]
    for turn in range(20):
        done = setting.load("policy", turn % 2)
        assert (done["previous"], done["version"]) == (versions[1 - turn % 2], versions[turn % 2])
        answer = setting.answer()
        assert only(span["adapter"] for span in answer["spans"]) == versions[turn % 2]
        setting.assert_is(answer, turn % 2, others=[1 - turn % 2])


def begun(setting, name="policy", seed=0):
    """A long sequence that is under way."""
    started = setting.program.start(*setting.asking(name, new=LONG, seed=seed))
    layercast_program.wait_until(lambda: setting.uses(name) > 0 or started[1].poll() is not None, 20, "it never began")
    return started


def switched(setting, on_switch):
    """A long answer in the midst of which its adapter changed from version 0 to version 1, and both versions."""
    setting.serve("--adapter-switch", on_switch, slots=3)
    for attempt in range(20):  # the switch may come after its end
        old = setting.load("policy", 0)["version"]
        started = begun(setting, seed=attempt)
        new = setting.load("policy", 1)["version"]
        still = started[1].poll() is None
        listed = setting.list()
        answer = setting.program.finish(started).json
        if still and (answer["finish"] == "aborted" or on_switch == "finish" or len(answer["spans"]) > 1):
            return answer, old, new, listed
    raise AssertionError("no sequence was under way at a switch")


def test_by_default_sequences_end_with_the_version_that_they_began_with(setting):
    answer, old, new, listed = switched(setting, "finish")
    assert only(span["adapter"] for span in answer["spans"]) == old and len(answer["tokens"]) == LONG
    setting.assert_is(answer, 0, others=[1])
    states = {(entry["state"], entry["version"]["digest"]) for entry in listed}
    assert ("served", new["digest"]) in states and states <= {("served", new["digest"]), ("retired", old["digest"])}
    assert [entry["state"] for entry in setting.list()] == ["served"]  # the old one's slot is free
    setting.assert_is(setting.answer(), 1, others=[0])


def test_kept_sequences_go_on_with_the_new_version_over_what_they_remember(setting):
    answer, old, new, _ = switched(setting, "keep")
    first, second = answer["spans"]
    assert (first["adapter"], second["adapter"]) == (old, new) and answer["finish"] == "length"
    at, tokens = first["end"], answer["tokens"]
    assert 0 < at == second["start"] and second["end"] == LONG
    before = [*PROMPT, *tokens[: at - 1]]  # whose keys and values are of the old version
    with torch.no_grad():
        remembered = setting.peft(0)(torch.tensor([before]), use_cache=True)
        after = setting.peft(1)(torch.tensor([tokens[at - 1 : -1]]), past_key_values=remembered.past_key_values, use_cache=True)
    logits = torch.cat([remembered.logits[0, len(PROMPT) - 1 :], after.logits[0]]).double()
    off = (torch.tensor(answer["logprobs"], dtype=torch.float64) - adapters.logprobs(logits, tokens)).abs() / logits.abs().max()
    assert off.max() < LIMIT
    assert setting.distances([answer], 1)[0, at:].max() > APART  # not the new version's over keys of its own


def test_aborted_sequences_say_what_they_were_of(setting):
    answer, old, _, _ = switched(setting, "abort")
    assert answer["finish"] == "aborted" and 0 < len(answer["tokens"]) < LONG
    assert only(span["adapter"] for span in answer["spans"]) == old
    assert setting.distances([answer], 0).max() < LIMIT


# ---- several engines ------------------------------------------------------------------------------------------------

def load_together(setting, engines, version, *words, status=0):
    endpoints = ",".join(engine.endpoint for engine in engines)
    return setting.program.run("adapter", "load", "--engine", endpoints, "--name", "policy", "--path", setting.folder(version),
                               "--all-or-none", *words, status=status).json["outcomes"]


def test_all_engines_take_it_or_none(setting):
    engines = [setting.serve("--tp", tp) for tp in (1, 2)]
    small = setting.serve(max_rank=4)  # the versions are of rank 8
    for outcomes in (load_together(setting, engines, 0), load_together(setting, engines, 1)):
        assert [outcome["ok"] for outcome in outcomes] == [True, True]
    old = only(outcome["version"] for outcome in outcomes)
    outcomes = load_together(setting, [*engines, small], 2, status=1)
    assert [outcome["ok"] for outcome in outcomes] == [False] * 3
    assert [outcome["version"] for outcome in outcomes] == [old, old, None]
    assert "expected a rank of at most 4" in outcomes[2]["error"]["message"]
    for outcome in outcomes[:2]:
        assert outcome["error"]["code"] == "cancelled" and small.endpoint in outcome["error"]["message"]
    for engine in engines:
        setting.assert_is(setting.answer(engine=engine), 1, others=[2])
        assert [(entry["name"], entry["version"]) for entry in setting.list(engine)] == [("policy", old)]
    assert setting.names(small) == []
    # Alone, each does what it can.
    endpoints = ",".join(engine.endpoint for engine in (*engines, small))
    command = ("adapter", "load", "--engine", endpoints, "--name", "policy", "--path", setting.folder(2))
    outcomes = setting.program.run(*command, status=1).json["outcomes"]
    assert [outcome["ok"] for outcome in outcomes] == [True, True, False]


# ---- and the base ---------------------------------------------------------------------------------------------------

def test_the_base_may_change_below_an_adapter_that_does_not_name_it(setting, checkpoint):
    setting.serve("--tp", 2)
    version = setting.load("policy", 0)["version"]
    setting.assert_is(setting.answer(), 0)
    other = setting.kept.base(checkpoint("llama", "b"))
    setting.program.reload(setting.engine, "--model", other)
    answer = setting.answer()
    assert only(span["adapter"] for span in answer["spans"]) == version
    below = AdapterSetting(setting.program, setting.start, setting.kept, other)
    logits = below.oracle.logits(below.oracle.with_adapter(setting.folder(0)), PROMPT, answer["tokens"])
    off = (torch.tensor(answer["logprobs"], dtype=torch.float64) - adapters.logprobs(logits, answer["tokens"])).abs().max()
    assert off / logits.abs().max() < LIMIT
    assert setting.distances([answer], 0).max() > APART
    assert setting.is_whole(0)


def below(setting, base):
    """The same adapters over another base."""
    return AdapterSetting(setting.program, setting.start, setting.kept, base)


@pytest.mark.parametrize("pause_mode, on_switch", [("wait", "finish"), ("keep", "keep"), ("keep", "finish")])
def test_no_token_is_of_a_new_base_and_an_old_adapter(pause_mode, on_switch, setting, checkpoint):
    """A version that holds both is committed as one, while 4 sequences are asked for again and again."""
    bases = [setting.base, setting.kept.base(checkpoint("llama", "b"))]
    over = [below(setting, base) for base in bases]
    publishers = [setting.start("publish", "--model", base, "--adapter", f"policy={setting.folder(number)}", "--lineage", "both",
                                "--step", number) for number, base in enumerate(bases)]
    setting.serve("--tp", 2, "--adapter-switch", on_switch, slots=4)

    def take(number):
        words = ("--publisher", publishers[number].endpoint, "--adapters", "*", "--pause-mode", pause_mode)
        return setting.program.reload(setting.engine, *words)

    assert take(0)["version"] == publishers[0].version
    asking = [setting.program.start(*setting.asking("policy", new=40, repeat=40, seed=100 * sequence)) for sequence in range(4)]
    turns, between = 0, []
    while turns < 4 or any(process.poll() is None for _, process in asking):
        turns += 1
        take(turns % 2)
        undisturbed = setting.program.run(*setting.asking("policy", new=40, repeat=1, seed=turns)).json["answers"]
        between += undisturbed  # whole, however soon one version follows another
    answers = between + [answer for started in asking for answer in setting.program.finish(started).json["answers"]]
    pairs = {(span["version"]["step"], span["adapter"]["step"]) for answer in answers for span in answer["spans"]}
    assert pairs == {(0, 0), (1, 1)}
    steps = [[span["version"]["step"] for span in answer["spans"]] for answer in answers]
    whole = [[answer for answer, of_it in zip(answers, steps) if of_it == [number]][:40] for number in (0, 1)]
    for number in (0, 1):
        assert whole[number]
        assert over[number].distances(whole[number], number).max() < LIMIT
        assert over[number].distances(whole[number], 1 - number).max(1).values.min() > APART


@pytest.mark.parametrize("order", ["layer", "checkpoint", "shuffled:3"])
def test_factors_of_a_stream_may_come_in_any_order(order, setting):
    setting.serve("--tp", 2, "--chunk-bytes", 4096)
    publisher = setting.publish(1, 1, "--mode", "stream", "--order", order)
    assert setting.load_from("--publisher", publisher.endpoint)["version"] == publisher.version
    setting.assert_is(setting.answer(), 1, others=[0])
    assert setting.is_whole(1)
