"""Calls that wait: they let other threads run, and Ctrl-C ends them. How long the latter takes is in the output."""

import sys
import threading
import time

import interpreter
import layercast
import numpy
import pytest
import torch
from silent_server import SilentServer


def counted_during(call):
    """How often another thread got its turn. Nothing but a call that gives the GIL up gives it one."""
    counted, done, ready = [0], threading.Event(), threading.Event()

    def count():
        ready.set()
        while not done.is_set():
            counted[0] += 1
            time.sleep(0)  # gives the GIL up

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    ready.wait()
    try:
        sys.setswitchinterval(1000)
        before = counted[0]
        call()
        return counted[0] - before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


def test_other_threads_run_while_a_large_tensor_is_published(publisher):
    large = torch.ones(1 << 26)
    assert counted_during(lambda: publisher.publish({"large": large}, step=1)) > 0


def test_other_threads_run_while_a_weight_is_quantized():
    weight = torch.ones(8192, 4096)
    assert counted_during(lambda: layercast.quantize(weight)) > 0


def test_other_threads_run_while_a_release_is_awaited(publisher):
    published = publisher.publish({"a": numpy.ones(2)}, step=1)
    thread = threading.Thread(target=published.withdraw)
    thread.start()
    assert published.wait(timeout=30)
    thread.join()


def cancelled_by_another_thread(call, cancel, server):
    """Calls what waits for a server that never answers. Were the GIL kept, nobody could accept its connection, nor
    cancel the call."""
    def give_up():
        server.wait_for_client()
        cancel()

    thread = threading.Thread(target=give_up)
    thread.start()
    try:
        return call()
    finally:
        thread.join()


def test_other_threads_run_while_a_reload_waits_for_a_publisher(receiver):
    with SilentServer() as server, pytest.raises(layercast.Cancelled):
        cancelled_by_another_thread(lambda: receiver.reload_weights(server.endpoint), receiver.cancel, server)


@pytest.mark.parametrize("call", [
    lambda controller: controller.status(),
    lambda controller: controller.generate([[1]]),
    lambda controller: controller.reload("tcp://127.0.0.1:9"),
    lambda controller: controller.reload("tcp://127.0.0.1:9", all_or_none=True),
    lambda controller: controller.pause(),
    lambda controller: controller.resume(),
], ids=["status", "generate", "reload", "all_or_none", "pause", "resume"])
def test_other_threads_run_while_a_controller_waits_for_an_engine(call):
    with SilentServer() as server, layercast.Controller(server.endpoint) as controller:
        with pytest.raises(layercast.Cancelled):
            cancelled_by_another_thread(lambda: call(controller), controller.cancel, server)


def test_a_controller_takes_one_call_at_a_time():
    refused = []
    with SilentServer() as server, layercast.Controller(server.endpoint) as controller:
        def other():
            try:
                controller.status()
            except layercast.Error as error:
                refused.append(error)
            controller.cancel()

        with pytest.raises(layercast.Cancelled):
            cancelled_by_another_thread(controller.status, other, server)
    assert isinstance(refused[0], layercast.FailedPrecondition) and "another call" in str(refused[0])


# Sends SIGINT once the main thread is in the function of that name, and what it waits for has begun.
INTERRUPT = """
import os, signal, sys, threading, time, layercast, ml_dtypes, numpy
sys.path[:0] = sys.argv[1:2]
from silent_server import SilentServer

def interrupted(name, call, begun=lambda: None):
    main, sent = threading.main_thread().ident, []

    def in_call():
        frame = sys._current_frames()[main]
        while frame is not None and (frame.f_code.co_name != name or frame.f_globals["__name__"] == "threading"):
            frame = frame.f_back
        return frame is not None

    def interrupt():
        while not in_call():
            time.sleep(0)
        begun()
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        call()
    except KeyboardInterrupt:
        print(time.monotonic() - sent[0])
    else:
        sys.exit("not interrupted")
    thread.join()
"""

RECEIVER = """
import logging
logging.getLogger("layercast").addHandler(logging.NullHandler())  # the files' order is not the layers'
receiver = layercast.Receiver(sys.argv[2], buffers={
    spec.name: numpy.zeros(spec.shape, ml_dtypes.bfloat16) for spec in layercast.buffer_specs(sys.argv[2])})
receiver.reload_weights(sys.argv[2])
weights = [(name, tensor.numpy()) for name, tensor in layercast.Checkpoint(sys.argv[2]).items()]
begun = threading.Event()

def for_ever():  # in steps: Python itself overlooks a signal that comes just before it begins to wait for a lock
    while not threading.Event().wait(0.05):
        pass

def slowly(wait):
    for count, pair in enumerate(weights):
        if count == 3:
            begun.set()
            wait()
        yield pair
"""

PUBLISHER = """
publisher = layercast.Publisher()
published = publisher.publish({"a": numpy.ones(2)}, step=1)
"""

WAITS = {
    "a release": PUBLISHER + "interrupted('wait', published.wait); publisher.publish({'a': numpy.ones(2)}, step=2)",
    "a release in a with": PUBLISHER + """
def borrow():
    with publisher.borrowed({'a': numpy.ones(2)}, step=2) as lent:
        interrupted('wait', lent.wait)
borrow()
""",
    "a publisher that is silent": RECEIVER + """
with SilentServer() as server:
    interrupted('reload_weights', lambda: receiver.reload_weights(server.endpoint), server.wait_for_client)
receiver.reload_weights(weights)
""",
    "a publisher that is not there": RECEIVER + """
interrupted('_from_publishers', lambda: receiver.reload_weights('tcp://127.0.0.1:9'))
receiver.reload_weights(weights)
""",
    "an iterator of a reload": RECEIVER + """
interrupted('slowly', lambda: receiver.reload_weights(slowly(for_ever)), begun.wait)
assert receiver.version.lineage != 'iterator' and not receiver.torn
receiver.reload_weights(weights)
""",
    "an iterator of a publish": RECEIVER + PUBLISHER + """
interrupted('slowly', lambda: publisher.publish(slowly(for_ever), step=2), begun.wait)
publisher.publish(weights, step=2)
""",
}
CALLS = {"status": "status()", "generate": "generate([[1]])", "pause": "pause()", "resume": "resume()",
         "reload": "reload('tcp://127.0.0.1:9')", "all_or_none": "reload('tcp://127.0.0.1:9', all_or_none=True)"}
for name, call in CALLS.items():
    WAITS[f"an engine's answer to {name}"] = f"""
with SilentServer() as server:
    controller = layercast.Controller(server.endpoint)
    interrupted({call.partition('(')[0]!r}, lambda: controller.{call}, server.wait_for_client)
"""


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends(wait, folder, record_property):
    seconds = interpreter.run(INTERRUPT + WAITS[wait], interpreter.SUPPORT, folder)
    print(f"Ctrl-C in {wait}: {float(seconds):.3f} s")
    record_property("seconds", float(seconds))
