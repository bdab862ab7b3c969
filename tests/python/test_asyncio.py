"""The calls for asyncio, and what cancelling them does."""

import asyncio
import threading

import layercast
import pytest
import torch
from silent_server import SilentServer


def test_a_loop_publishes_reloads_and_awaits_a_release(publisher, receiver, policies):
    async def loop():
        published = await publisher.publish_async(policies(4), step=1)
        report = await receiver.reload_weights_async(published)
        assert report.version == published.version == receiver.version
        published.withdraw()
        return await published, published

    version, published = asyncio.run(loop())
    assert version == published.version and published.released


def test_the_loop_goes_on_while_a_version_is_published(publisher):
    async def loop():
        here, went_on = asyncio.get_running_loop(), asyncio.Event()

        def weights():
            here.call_soon_threadsafe(went_on.set)
            asyncio.run_coroutine_threadsafe(went_on.wait(), here).result(30)
            yield "a", torch.ones(2)

        return await publisher.publish_async(weights(), step=1)

    assert asyncio.run(loop()).version.step == 1


async def cancelled(task, server):
    await asyncio.to_thread(server.wait_for_client)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelling_a_reload_gives_it_up_and_the_receiver_takes_the_next(receiver, policies):
    async def loop(server):
        await cancelled(asyncio.create_task(receiver.reload_weights_async(server.endpoint)), server)
        return await receiver.reload_weights_async(dict(policies(4).named_parameters()))

    with SilentServer() as server:
        assert asyncio.run(loop(server)).version == receiver.version


@pytest.mark.parametrize("call", [lambda controller: controller.reload_async("tcp://127.0.0.1:9"),
                                  lambda controller: controller.generate_async([[1]])], ids=["reload", "generate"])
def test_cancelling_a_controllers_call_gives_it_up_and_the_controller_can_be_used_again(call):
    async def loop(server, controller):
        await cancelled(asyncio.create_task(call(controller)), server)

    with SilentServer() as server, layercast.Controller(server.endpoint) as controller:
        asyncio.run(loop(server, controller))
        assert controller.endpoints == [server.endpoint]


def test_a_publish_that_is_cancelled_reads_no_tensor_once_the_task_has_ended(publisher):
    within, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def weights():
        within.set()
        assert go_on.wait(30)
        yield "a", torch.ones(2)
        ended.set()

    async def loop():
        task = asyncio.create_task(publisher.publish_async(weights(), step=1))
        await asyncio.to_thread(within.wait)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(loop())


def test_what_a_call_raises_is_raised_where_it_is_awaited(publisher, receiver):
    async def loop():
        with pytest.raises(layercast.InvalidArgument):
            await publisher.publish_async({}, step=1)
        with pytest.raises(layercast.NotFound):
            await receiver.reload_weights_async("/no/such/folder")

    asyncio.run(loop())
