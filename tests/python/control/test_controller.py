"""Engines of `layercast serve`, driven from Python."""

import os

import layercast
import oracle
import program as layercast_program
import pytest
import timeline


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def engines(program, folder):
    """Two engines, of one rank in full precision and of two ranks in FP8."""
    serve = ("serve", "--model", folder, "--bind", "tcp://127.0.0.1:0")
    running = []
    try:
        for words in ((), ("--tp", 2, "--quantization", "fp8_per_channel")):
            running.append(program.daemon(*serve, *words))
        yield running
    finally:
        for engine in running:
            engine.kill()


@pytest.fixture
def controller(engines):
    with layercast.Controller(engine.endpoint for engine in engines) as controller:
        yield controller


def saved(model, path):
    model.save_pretrained(path)
    return path


STEP = iter(range(1, 100))


def test_all_engines_take_a_version_and_serve_what_the_oracle_makes_of_it(controller, engines, program, policies,
                                                                          publisher, tmp_path):
    model = policies(21)
    published = publisher.publish(model, step=next(STEP))
    outcomes = controller.reload(published)
    assert [(outcome.endpoint, outcome.ok, outcome.version) for outcome in outcomes] == [
        (engine.endpoint, True, published.version) for engine in engines]
    files = saved(model, tmp_path / "saved")
    for engine, tp, recipe in zip(engines, (1, 2), ("none", "fp8_per_channel"), strict=True):
        out = tmp_path / f"export-{tp}"
        program.export(engine, out)
        for rank in range(tp):
            expected = oracle.served_tensors(files, tp, rank, recipe)
            assert oracle.differences(oracle.read_export(out, rank), expected) == []


def test_generated_tokens_carry_the_version_that_they_came_from(controller, policies, publisher):
    for seed in (31, 32):
        published = publisher.publish(policies(seed), step=next(STEP))
        controller.reload(publisher)
        for engine in range(2):
            one, other = controller.generate([[1, 2, 3], [4, 5]], engine=engine, max_new=5)
            for sequence in (one, other):
                assert len(sequence.tokens) == len(sequence.logprobs) == 5 and sequence.finish == "length"
                assert sequence.spans == [(0, 5, published.version)]


def test_greedy_tokens_are_those_of_transformers(controller, policies, publisher):
    import torch

    model = policies(41)
    controller.reload(publisher.publish(model, step=next(STEP)))
    (sequence,) = controller.generate([[1, 2, 3]], max_new=1)
    with torch.no_grad():
        logits = model.float()(torch.tensor([[1, 2, 3]])).logits[0, -1]
    assert sequence.tokens == [logits.argmax().item()]
    assert sequence.logprobs[0] == pytest.approx(logits.log_softmax(-1).max().item(), abs=0.05)


def test_with_all_or_none_one_engine_that_fails_keeps_all_on_the_old_version(controller, engines, policies, publisher):
    before = controller.reload(publisher.publish(policies(51), step=next(STEP)), all_or_none=True)
    assert len({outcome.version for outcome in before}) == 1
    published = publisher.publish(policies(52), step=next(STEP))
    with layercast.Controller([*controller.endpoints, "tcp://127.0.0.1:9"]) as more:
        with pytest.raises(layercast.Error) as failed:
            more.reload(published, all_or_none=True, timeout=20)
    assert [outcome.ok for outcome in failed.value.outcomes] == [False] * 3
    for engine, old in enumerate(before):
        assert controller.generate([[1]], engine=engine, max_new=1)[0].spans == [(0, 1, old.version)]


def test_without_check_each_outcome_has_its_error(controller, folder):
    outcomes = controller.reload(folder / "nothing", check=False)
    assert not any(outcome.ok for outcome in outcomes)
    assert all(isinstance(outcome.error, layercast.NotFound) for outcome in outcomes)
    with pytest.raises(layercast.NotFound, match="1 more of 2 engines failed"):
        controller.reload(folder / "nothing")


def test_engines_are_paused_and_go_on_and_say_how_they_are(controller):
    assert all(outcome.ok for outcome in controller.pause(lease=60))
    assert all(outcome.ok for outcome in controller.resume())
    status = [controller.status(engine) for engine in range(2)]
    assert [each["tp"] for each in status] == [1, 2]


def test_engines_sleep_and_wake_up(controller):
    versions = [controller.status(engine)["version"] for engine in range(2)]
    assert all(outcome.ok for outcome in controller.sleep(pause_mode="abort"))
    assert [controller.status(engine)["state"] for engine in range(2)] == ["asleep"] * 2
    with pytest.raises(layercast.Error, match="asleep"):
        controller.generate([[1, 2, 3]])
    assert all(outcome.ok for outcome in controller.wake_up(tags=["weights"]))
    assert controller.status()["asleep"] == {"level": None, "tags": ["kv_cache"]}
    assert all(outcome.ok for outcome in controller.wake_up())
    assert [controller.status(engine)["version"] for engine in range(2)] == versions
    assert controller.generate([[1, 2, 3]])[0].tokens
    with pytest.raises(layercast.InvalidArgument, match="level: expected 1 or 2, got 3"):
        controller.sleep(3)


def test_progress_of_each_engine_is_told_up_to_the_last_byte(controller, policies, publisher):
    told = {}
    publisher.publish(policies(61), step=next(STEP))
    controller.reload(publisher, on_progress=lambda progress: told.update({progress.endpoint: progress}))
    assert sorted(told) == sorted(controller.endpoints)
    assert all(progress.bytes == progress.bytes_total > 0 for progress in told.values())


@pytest.mark.parametrize("engines, words", [
    ([], "needs an engine's endpoint"), (["tcp://127.0.0.1:9"] * 2, "tcp://127.0.0.1:9 is named twice"),
], ids=["none", "twice"])
def test_endpoints_that_cannot_work_are_refused(engines, words):
    with pytest.raises(layercast.InvalidArgument, match=words):
        layercast.Controller(engines)


@pytest.mark.parametrize("call, error, words", [
    (lambda controller: controller.generate([[1]], engine=7), layercast.InvalidArgument, "engine 7 of 2"),
    (lambda controller: controller.generate([[1000000]]), layercast.InvalidArgument, "1000000"),
    (lambda controller: controller.generate([[1]], timeout=-1), layercast.InvalidArgument, "timeout: expected seconds"),
    (lambda controller: controller.generate([[1]], max_new="many"), layercast.InvalidArgument, "max_new: .* got 'many'"),
    (lambda controller: controller.reload([]), layercast.InvalidArgument, "got none"),
    (lambda controller: controller.pause("later"), layercast.InvalidArgument, "later"),
    (lambda controller: controller.reload("/tmp", versoin=None), TypeError, "versoin"),
], ids=["no such engine", "no such token", "timeout", "max_new", "no endpoint", "pause mode", "misspelt"])
def test_calls_that_cannot_work_are_refused(controller, call, error, words):
    with pytest.raises(error, match=words):
        call(controller)


def test_a_closed_controller_says_so(engines):
    controller = layercast.Controller(engines[0].endpoint)
    controller.close()
    controller.close()
    with pytest.raises(layercast.FailedPrecondition, match="the controller is closed"):
        controller.status()


def test_a_reload_writes_a_timeline_and_is_refused_before_it_begins_if_it_cannot(controller, engines, policies, publisher,
                                                                                 tmp_path):
    published = publisher.publish(policies(22), step=next(STEP))
    with pytest.raises(layercast.InvalidArgument, match="nowhere/sync.json': No such file or directory"):
        controller.reload(published, trace=tmp_path / "nowhere" / "sync.json")
    with pytest.raises(layercast.InvalidArgument, match="traceparent: expected one of W3C's"):
        controller.reload(published, traceparent="nonsense")
    outcomes = controller.reload(published, trace=tmp_path / "sync.json")
    seen = timeline.Timeline(tmp_path / "sync.json")
    for engine, outcome, tp in zip(engines, outcomes, (1, 2), strict=True):
        ranks = [f"rank {rank} of engine {engine.endpoint}" for rank in range(tp)]
        for stage, took in outcome.report.stage_ms.items():
            assert max(seen.busy_ms(rank, stage) for rank in ranks) == pytest.approx(took, abs=1e-3), stage
    assert list(seen.processes.values()).count(f"publisher {publisher.endpoint}") == len(engines)
