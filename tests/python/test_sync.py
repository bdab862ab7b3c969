"""The driver of a vLLM engine's sync, over ranks that are receivers of this process: failures in each phase."""

import asyncio
import contextlib

import layercast.host.staging
import layercast.offered
import pytest
import torch
from layercast.recording import Box, Copy, Recording
from layercast.tensor import TensorSpec
from layercast.vllm.gate import Gate
from layercast.vllm.sync import Engine, Torn

WEIGHT = TensorSpec("layer.weight", "F32", (4, 4))


def half(rank):
    rows = Box((2 * rank, 0), (2, 4))
    parameter = TensorSpec("layer.weight", "F32", (2, 4))
    return Recording((WEIGHT,), (parameter,), (Copy("layer.weight", "layer.weight", rows, Box((0, 0), (2, 4))),), {})


class Rank:
    """What LayercastEngine.answer does, without vLLM; `fails` names the steps that fail, once for each mention."""

    def __init__(self, rank, fails=()):
        self.rank, self.fails, self.staged, self.committed = rank, list(fails), False, 0
        self.adapters, self.adapters_staged = {}, {}
        self.buffer = torch.zeros(2, 4)
        self.receiver = layercast.Receiver(
            half(rank), buffers={"layer.weight": self.buffer}, tp_rank=rank, tp_size=2, engine="ranks"
        )

    def answer(self, op, arguments):
        try:
            if op in self.fails:
                self.fails.remove(op)
                raise layercast.Internal(f"made to fail in {op}")
            if op == "stage":
                self.receiver.stage(arguments["endpoint"], attempt=arguments["attempt"])
                self.staged = True
            elif op == "prepare":
                self.receiver.prepare()
            elif op == "commit" and arguments["attempt"] != self.committed:
                self.receiver.commit()
                self.committed, self.staged = arguments["attempt"], False
            elif op == "stage_adapter":
                version = layercast.offered.offered(arguments["endpoint"]).version
                self.adapters_staged = dict.fromkeys(arguments["adapters"], layercast.host.staging.named(version))
            elif op == "commit_adapter":
                self.adapters |= self.adapters_staged
            elif op == "abort":
                self.receiver.abort()
                self.staged = False
        except layercast.Error as error:
            return self.status({"code": error.code, "message": str(error)})
        return self.status(None)

    def status(self, error):
        answer = {"rank": self.rank, "state": "staged" if self.staged else "idle", "error": error, "torn": False}
        unused = dict.fromkeys(self.adapters_staged, ())
        return {**answer, "staged": self.adapters_staged, "unused": unused, "adapters": self.adapters}


class Ranks:
    def __init__(self, *fails):
        self.ranks = [Rank(rank, fails[rank] if rank < len(fails) else ()) for rank in range(2)]
        self.held = []
        self.engine = Engine(lambda op, arguments: [rank.answer(op, arguments) for rank in self.ranks], self.still)

    @contextlib.contextmanager
    def still(self, mode):
        self.held.append(mode)
        yield

    def served(self):
        return torch.cat([rank.buffer for rank in self.ranks])

    def close(self):
        for rank in self.ranks:
            rank.receiver.close()


@pytest.fixture
def ranks():
    made = []

    def make(*fails):
        made.append(Ranks(*fails))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def weights(publisher):
    values = torch.randn(4, 4)
    publisher.publish({"layer.weight": values}, step=1)
    return values


def test_all_ranks_commit_what_all_have_staged(ranks, publisher, weights):
    both = ranks()
    both.engine.reload(endpoint=publisher.endpoint, pause_mode="keep")
    assert torch.equal(both.served(), weights) and both.held == ["keep"]


@pytest.mark.parametrize("step", ["stage", "prepare", "make"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_before_the_commit_leaves_all_as_they_were(ranks, publisher, weights, step, rank):
    both = ranks(*([[], []] if rank is None else [[step] if at == rank else [] for at in range(2)]))
    with pytest.raises(layercast.Internal, match=f"rank {rank}: made to fail in {step}"):
        both.engine.reload(endpoint=publisher.endpoint)
    assert not both.served().any() and both.held == [] and not any(each.staged for each in both.ranks)
    both.engine.reload(endpoint=publisher.endpoint)
    assert torch.equal(both.served(), weights)


def test_a_commit_that_fails_is_made_again(ranks, publisher, weights):
    both = ranks(["commit"], ["commit", "commit"])
    both.engine.reload(endpoint=publisher.endpoint)
    assert torch.equal(both.served(), weights) and both.held == [""]


def test_an_engine_of_which_one_rank_never_commits_is_torn_and_heals(ranks, publisher, weights):
    both = ranks([], ["commit"] * 3)
    with pytest.raises(Torn, match="1 of 2 ranks could not commit"):
        both.engine.reload(endpoint=publisher.endpoint)
    publisher.publish({"layer.weight": weights + 1}, step=2)
    both.engine.reload(endpoint=publisher.endpoint)
    assert torch.equal(both.served(), weights + 1)


def test_an_engine_of_which_no_rank_commits_serves_what_it_did(ranks, publisher, weights):
    both = ranks(["commit"] * 3, ["commit"] * 3)
    with pytest.raises(layercast.Internal, match="made to fail in commit"):
        both.engine.reload(endpoint=publisher.endpoint)
    assert not both.served().any()


@pytest.mark.parametrize("fails", [(), ("commit_adapter",)])
def test_adapters_are_committed_while_the_engine_stands_for_their_base(ranks, publisher, weights, fails):
    both, named = ranks([], fails), []
    reload = {"endpoint": publisher.endpoint, "adapters": {"mine": "policy"}}
    if fails:
        with pytest.raises(Torn, match="1 of 2 ranks failed"):
            both.engine.reload(**reload)
    both.engine.reload(**reload, then=lambda answers: named.append((len(both.held), answers[0]["adapters"]["mine"]["step"])))
    assert torch.equal(both.served(), weights) and all(rank.adapters["mine"]["step"] == 1 for rank in both.ranks)
    assert named == [(len(both.held), 1)]


def test_a_module_that_no_rank_applies_is_refused_before_the_commit(ranks, publisher, weights):
    both = ranks()
    answer = both.ranks[0].status

    def status(error):
        return {**answer(error), "unused": {"mine": ["layers.7.q_proj", "layers.1.q_proj"]}}

    both.ranks[0].status = status
    both.engine.load_adapter(name="mine", endpoint=publisher.endpoint)
    other = both.ranks[1].status
    both.ranks[1].status = lambda error: {**other(error), "unused": {"mine": ["layers.7.q_proj"]}}
    with pytest.raises(layercast.InvalidArgument, match="'mine'.*layers.7"):
        both.engine.load_adapter(name="mine", endpoint=publisher.endpoint)


def test_requests_that_came_before_a_turn_are_told_from_later_ones():
    async def run():
        gate, may_end, began = Gate(), {}, []

        async def application(scope, receive, send):
            began.append(scope["path"])
            await may_end[scope["path"]].wait()

        gated = gate.wrap(application)

        async def asked(path):
            may_end[path] = asyncio.Event()
            task = asyncio.create_task(gated({"type": "http", "path": path}, None, None))
            while path not in began:
                await asyncio.sleep(0)
            return task

        first = await asked("/first")
        turn = gate.turn()
        later = await asked("/later")
        with pytest.raises(layercast.DeadlineExceeded, match="1 requests are still under way"):
            await gate.left(turn, 0.01)
        may_end["/first"].set()
        await gate.left(turn)
        assert first.done() and not later.done()
        may_end["/later"].set()
        await gate.idle(10)

    asyncio.run(run())


def test_requests_wait_at_a_closed_gate_and_are_answered_once_it_opens():
    async def run():
        gate, began, may_end, answered = Gate(), asyncio.Event(), asyncio.Event(), []

        async def application(scope, receive, send):
            answered.append(scope["path"])
            began.set()
            await may_end.wait()

        gated = gate.wrap(application)
        first = asyncio.create_task(gated({"type": "http", "path": "/v1/completions"}, None, None))
        await began.wait()
        gate.close()
        second = asyncio.create_task(gated({"type": "http", "path": "/v1/completions"}, None, None))
        with pytest.raises(layercast.DeadlineExceeded, match="1 requests are still under way"):
            await gate.idle(0.01)
        may_end.set()
        await gate.idle(10)
        await gated({"type": "http", "path": "/health"}, None, None)
        assert answered == ["/v1/completions", "/health"] and first.done() and not second.done()
        gate.open()
        await second
        assert answered[-1] == "/v1/completions" and gate.is_open

    asyncio.run(run())
