"""Answers that straddle commits. Each names the version that its tokens came from, and is, token for token, what a cold
engine of that version says."""

import itertools

import pytest

PROMPTS = ((3, 11, 4, 250), (7,), (101, 102, 103), (9, 8, 7, 6, 5, 4, 3, 2))
ANSWERS_PER_PROMPT = 15  # in each round
MAX_NEW = 12
LONG = 96
RECIPE = "fp8_per_block"


def key(version):
    return version["lineage"], version["step"], version["digest"]


@pytest.fixture(scope="module")
def cold(program, start_shared, checkpoint):
    """version letter -> prompt -> the tokens of an engine that loaded it cold, LONG of them."""
    answers = {}
    for letter in ("a", "b"):
        engine = start_shared("serve", "--model", checkpoint("qwen3", letter), "--tp", 2, "--quantization", RECIPE)
        answers[letter] = {prompt: program.generate(engine, prompt, "--max-new", LONG)["tokens"] for prompt in PROMPTS}
        engine.stop()
    assert all(answers["a"][prompt][:MAX_NEW] != answers["b"][prompt][:MAX_NEW] for prompt in PROMPTS)
    return answers


def straddle(program, start, checkpoint, *reload_arguments, commit="staged", max_new=MAX_NEW):
    """[(prompt, answer)] given while versions change, and which letter each version is."""
    engine = start("serve", "--model", checkpoint("qwen3", "a"), "--tp", 2, "--quantization", RECIPE,
                   "--commit", commit)
    publishers = {letter: start("publish", "--model", checkpoint("qwen3", letter),
                                "--lineage", f"history-{letter}") for letter in ("a", "b")}
    letters = {key(publisher.version): letter for letter, publisher in publishers.items()}
    letters[key(engine.version)] = "a"

    def take(letter):
        done = program.reload(engine, "--publisher", publishers[letter].endpoint, *reload_arguments)
        assert done["version"] == publishers[letter].version

    answers = []
    for first, other in ("ab", "ba"):  # however long a reload takes beside an answer, each version is there first once
        take(first)
        turns = itertools.islice(itertools.cycle((first, other)), 100)
        asking = [program.start("generate", "--engine", engine.endpoint, "--tokens", ",".join(map(str, prompt)),
                                "--max-new", max_new, "--repeat", ANSWERS_PER_PROMPT) for prompt in PROMPTS]
        for letter in turns:
            take(letter)
            if all(process.poll() is not None for _, process in asking):
                break
        answers += [(prompt, answer) for prompt, started in zip(PROMPTS, asking)
                    for answer in program.finish(started).json["answers"]]
    assert len(answers) >= 100
    return answers, letters


@pytest.mark.parametrize("commit", ["staged", "undo", "in_place"])
def test_every_answer_is_that_of_the_version_it_names(commit, program, start, checkpoint, cold):
    answers, letters = straddle(program, start, checkpoint, commit=commit)
    seen = set()
    for prompt, answer in answers:
        assert [(span["start"], span["end"]) for span in answer["spans"]] == [(0, MAX_NEW)]
        letter = letters[key(answer["spans"][0]["version"])]
        assert answer["tokens"] == cold[letter][prompt][:MAX_NEW]
        seen.add((prompt, letter))
    assert {letter for _, letter in seen} == {"a", "b"}


@pytest.mark.parametrize("commit", ["staged", "in_place"])
def test_an_answer_that_goes_on_across_a_commit_says_where_it_changed(commit, program, start, checkpoint, cold):
    answers, letters = straddle(program, start, checkpoint, "--pause-mode", "keep", commit=commit)
    for prompt, answer in answers:
        spans = answer["spans"]
        assert spans[0]["start"] == 0 and spans[-1]["end"] == len(answer["tokens"]) == MAX_NEW
        assert all(left["end"] == right["start"] for left, right in zip(spans, spans[1:]))
        first = spans[0]
        expected = cold[letters[key(first["version"])]][prompt]
        assert answer["tokens"][: first["end"]] == expected[: first["end"]]
    assert {letters[key(span["version"])] for _, answer in answers for span in answer["spans"]} == {"a", "b"}


def test_abort_returns_what_there_is_and_marks_it(program, start, checkpoint, cold):
    """Answers are so long that each commit finds some of them under way."""
    answers, letters = straddle(program, start, checkpoint, "--pause-mode", "abort", max_new=LONG)
    for prompt, answer in answers:
        assert answer["finish"] in ("length", "aborted")
        assert (answer["finish"] == "length") == (len(answer["tokens"]) == LONG)
        assert len({key(span["version"]) for span in answer["spans"]}) <= 1
        if answer["spans"]:
            expected = cold[letters[key(answer["spans"][0]["version"])]][prompt]
            assert answer["tokens"] == expected[: len(answer["tokens"])]
    aborted = [answer for _, answer in answers if answer["finish"] == "aborted" and answer["tokens"]]
    assert {letters[key(answer["spans"][0]["version"])] for answer in aborted} == {"a", "b"}
