"""`vllm serve` with Layercast's door: versions change under load, ranks fail, a worker dies."""

import os
import signal
import threading
import time

import layercast
import pytest

PROMPTS = ([1, 5, 7], [2, 9], [3, 3, 3, 250])


class Load:
    """Clients that ask without a pause. What they got, by prompt; and what went wrong."""

    def __init__(self, server, clients=3):
        self.answers, self.wrong = {index: set() for index in range(clients)}, []
        self._server, self._ended = server, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(index,)) for index in range(clients)]
        self.asked = [0] * clients

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, index):
        while not self._ended.is_set():
            try:
                self.answers[index].add(tuple(self._server.generate(PROMPTS[index])))
                self.asked[index] += 1
            except Exception as error:  # a lost or refused request is what is counted
                self.wrong.append(repr(error))


@pytest.mark.parametrize(("tp", "quantization"), [(1, "fp8_per_channel"), (2, "none")])
def test_a_hundred_syncs_under_load_mix_no_answer_and_lose_no_request(policies, serve, tp, quantization):
    a, b = policies("qwen3", 1), policies("qwen3", 2)
    server = serve(a[1], tp=tp, quantization=quantization)
    with layercast.Publisher() as publisher, layercast.Controller([server.url]) as controller:
        of_a = [tuple(server.generate(prompt)) for prompt in PROMPTS]
        controller.reload(publisher.publish(b[0], step=1))
        of_b = [tuple(server.generate(prompt)) for prompt in PROMPTS]
        assert all(one != other for one, other in zip(of_a, of_b))
        with Load(server) as load:
            for step in range(2, 102):
                published = publisher.publish((a, b)[step % 2][0], step=step)
                (outcome,) = controller.reload(published)
                assert outcome.version == published.version
                published.withdraw()
        assert load.wrong == [] and min(load.asked) > 0
        for index, answers in load.answers.items():
            assert answers == {of_a[index], of_b[index]}
        assert server.post("layercast/verify", {})["version"]["step"] == 101


def test_after_a_rank_that_raises_both_ranks_serve_one_version(policies, serve):
    """In turn: while it stages, at the last check, and while it copies."""
    a, b = policies("qwen3", 1), policies("qwen3", 2)
    failpoints = "rank1:receive.chunk=throw,rank1:commit.prepare=throw,rank1:commit.copy=throw"
    server = serve(a[1], tp=2, environment={"LAYERCAST_FAILPOINTS": failpoints})
    with layercast.Publisher() as publisher, layercast.Controller([server.url]) as controller:
        of_a = server.generate(PROMPTS[0])
        for step in (1, 2):
            with pytest.raises(layercast.Internal, match="rank 1: failpoint"):
                controller.reload(publisher.publish(b[0], step=step))
            assert server.generate(PROMPTS[0]) == of_a
            assert controller.status()["version"] is None and not controller.status()["torn"]
        published = publisher.publish(b[0], step=3)  # the copy is made again
        (outcome,) = controller.reload(published)
        assert outcome.version == published.version and not controller.status()["torn"]
        of_b = server.generate(PROMPTS[0])
        assert of_b != of_a
        assert "failpoint commit.copy fired" in server.log()
        controller.reload(publisher.publish(a[0], step=4))
        assert server.generate(PROMPTS[0]) == of_a


def test_a_killed_worker_ends_its_engine_alone_and_it_comes_back_with_the_newest(policies, serve):
    a, b = policies("qwen3", 1), policies("qwen3", 2)
    dying = serve(a[1], tp=2, wait=False, environment={"LAYERCAST_FAILPOINTS": "rank1:receive.chunk=kill"})
    other = serve(a[1])
    dying.wait_until_up()
    with layercast.Publisher() as publisher:
        of_a = other.generate(PROMPTS[0])
        published = publisher.publish(b[0], step=1)
        with layercast.Controller([dying.url, other.url]) as controller:
            began = time.monotonic()
            outcomes = controller.reload(published, all_or_none=True, check=False, timeout=30)
            assert time.monotonic() - began < 10
            assert [outcome.ok for outcome in outcomes] == [False, False]
        assert other.generate(PROMPTS[0]) == of_a
        with pytest.raises(Exception):
            dying.generate(PROMPTS[0], timeout=10)
        dying.stop()
        again = serve(a[1], tp=2, options=["--load-format", "layercast"], environment={"LAYERCAST_ENDPOINT": publisher.endpoint})
        with layercast.Controller([other.url, again.url]) as controller:
            of_b = again.generate(PROMPTS[0])
            controller.reload(published, all_or_none=True)
            assert other.generate(PROMPTS[0]) == again.generate(PROMPTS[0]) == of_b != of_a


def test_a_frozen_rank_is_given_up_and_what_is_wrong_is_said(policies, serve):
    a = policies("qwen3", 1)
    server = serve(a[1])
    with layercast.Publisher() as publisher, layercast.Controller([server.url]) as controller:
        of_a = server.generate(PROMPTS[0])
        wrong = dict(a[0].state_dict())
        wrong.pop("model.norm.weight")
        with pytest.raises(layercast.Error, match="model.norm.weight"):
            controller.reload(publisher.publish(wrong, step=1))
        with pytest.raises(layercast.Unavailable):
            controller.reload("tcp://127.0.0.1:9", timeout=5)
        with pytest.raises(layercast.NotFound, match="step|version"):
            controller.reload(publisher, version=layercast.Version("policy", 77))
        with pytest.raises(layercast.InvalidArgument, match="no field 'endpont'"):
            raise layercast.errors.of_code(server.post("layercast/reload", {"endpont": "x"})["error"]["code"])(
                server.post("layercast/reload", {"endpont": "x"})["error"]["message"]
            )
        with pytest.raises(layercast.FailedPrecondition, match="staged"):
            said = server.post("layercast/commit", {})["error"]
            raise layercast.errors.of_code(said["code"])(said["message"])
        assert server.generate(PROMPTS[0]) == of_a
        controller.reload(publisher.publish(a[0], step=2))
        assert server.generate(PROMPTS[0]) == of_a
    with pytest.raises(layercast.Unavailable, match="cannot be reached"):
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()
        layercast.Controller([server.url]).reload("tcp://127.0.0.1:9")
