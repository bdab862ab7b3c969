"""How long tensors are kept, and how processes with publishers and receivers end and fork."""

import gc
import threading
import weakref

import interpreter
import layercast
import numpy
import pytest
import torch


def lent(make=lambda: torch.ones(64)):
    """A tensor in a list of pieces, and what tells whether it is alive."""
    tensor = make()
    return [("a", tensor)], weakref.ref(tensor)


def is_alive(reference):
    gc.collect()
    return reference() is not None


@pytest.mark.parametrize("make", [lambda: torch.ones(64), lambda: numpy.ones(64)], ids=["torch", "numpy"])
def test_a_copied_tensor_is_let_go_when_publish_returns(publisher, make):
    pieces, reference = lent(make)
    published = publisher.publish(pieces, step=1)
    del pieces
    assert not is_alive(reference) and not published.released


@pytest.mark.parametrize("make", [lambda: torch.ones(64), lambda: numpy.ones(64)], ids=["torch", "numpy"])
def test_a_borrowed_tensor_is_kept_until_its_version_is_released(publisher, make):
    pieces, reference = lent(make)
    borrowing = publisher.borrowed(pieces, step=1)
    del pieces
    with borrowing as published:
        assert is_alive(reference)
    assert published.released
    del borrowing
    assert not is_alive(reference)


def test_a_streamed_tensor_is_kept_until_its_version_is_released(publisher):
    pieces, reference = lent()
    published = publisher.publish(pieces, step=1, stream=True)
    del pieces
    assert is_alive(reference)
    published.withdraw()
    assert published.wait(timeout=30)
    assert not is_alive(reference)


def test_a_closed_publisher_keeps_nothing():
    publisher = layercast.Publisher()
    pieces, reference = lent()
    publisher.publish(pieces, step=1, stream=True)
    del pieces
    publisher.close()
    assert not is_alive(reference)


def test_a_tensor_of_a_publish_that_was_refused_is_let_go(publisher):
    pieces, reference = lent(lambda: torch.full((4,), float("nan")))
    with pytest.raises(layercast.Corrupt):
        publisher.publish(pieces, step=1)
    del pieces
    assert not is_alive(reference)


@pytest.mark.parametrize("end", [lambda receiver: receiver.close(), lambda receiver: None], ids=["close", "dropped"])
def test_a_receiver_keeps_its_buffers_until_it_is_closed_or_dropped(folder, buffers, end):
    tensors = buffers(folder)
    references = [weakref.ref(tensor) for tensor in tensors.values()]
    receiver = layercast.Receiver(folder, buffers=tensors)
    receiver.reload_weights(folder)
    del tensors
    assert all(map(is_alive, references[:2]))
    end(receiver)
    del receiver
    assert not any(map(is_alive, references[:2]))


def test_a_source_of_a_reload_is_let_go(receiver, policies):
    weights = [(name, tensor.detach().clone()) for name, tensor in policies(2).named_parameters()]
    references = [weakref.ref(tensor) for _, tensor in weights]
    receiver.reload_weights(weights)
    receiver.reload_weights(iter(weights))
    del weights
    assert not any(map(is_alive, references[:2]))


def test_versions_are_published_from_several_threads(publisher):
    def publish(lineage):
        versions.extend(publisher.publish({"a": torch.ones(64)}, step=step, lineage=lineage).version
                        for step in range(20))

    versions = []
    threads = [threading.Thread(target=publish, args=(f"run-{count}",)) for count in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(versions)) == 80


BEGINNING = """
import logging, os, sys, threading, layercast, ml_dtypes, numpy
logging.getLogger("layercast").addHandler(logging.NullHandler())
publisher = layercast.Publisher()

def made(folder):
    return layercast.Receiver(folder, buffers={spec.name: numpy.zeros(spec.shape, ml_dtypes.bfloat16)
                                               for spec in layercast.buffer_specs(folder)})

def weights(folder):
    return [(name, tensor.numpy()) for name, tensor in layercast.Checkpoint(folder).items()]
"""

ENDINGS = {
    "a publisher with versions": "published = publisher.publish({'a': numpy.ones(4)}, step=1)",
    "a publisher in a cycle": "cycle = [publisher]; cycle.append(cycle); publisher.publish({'a': numpy.ones(4)}, step=1)",
    "a receiver that serves": "receiver = made(sys.argv[1]); receiver.reload_weights(sys.argv[1])",
    "tensors that are borrowed":
        "borrowing = publisher.borrowed({'a': numpy.ones(4)}, step=1); borrowing.__enter__()",
    "a stream that nobody takes": "published = publisher.publish({'a': numpy.ones(4)}, step=1, stream=True)",
    "a stream under way": """
within = threading.Event()

def held_up(progress):
    within.set()
    threading.Event().wait()

published = publisher.publish(weights(sys.argv[1]), step=1, stream=True)
receiver = made(sys.argv[1])
threading.Thread(target=lambda: receiver.reload_weights(publisher, on_progress=held_up), daemon=True).start()
within.wait()
""",
    "a reload that waits": """
sys.path[:0] = sys.argv[2:]
from silent_server import SilentServer
server = SilentServer().__enter__()
receiver = made(sys.argv[1])

def wait():
    try:
        receiver.reload_weights(server.endpoint)
    except layercast.Cancelled:
        print('cancelled')

threading.Thread(target=wait, daemon=True).start()
server.wait_for_client()
""",
    "somebody who awaits a release": """
published = publisher.publish({'a': numpy.ones(4)}, step=1)
future = published.as_future()
""",
    "an exception": """
published = publisher.publish({'a': numpy.ones(4)}, step=1)
sys.exit(0)
""",
    "a child that does nothing": """
publisher.publish({'a': numpy.ones(4)}, step=1)
receiver = made(sys.argv[1]); receiver.reload_weights(sys.argv[1])
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    receiver.reload_weights(publisher.publish(weights(sys.argv[1]), step=2))
""",
    "a child that uses what is its parent's": """
published = publisher.publish({'a': numpy.ones(4)}, step=1)
receiver = made(sys.argv[1])
controller = layercast.Controller('tcp://127.0.0.1:9')
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    for call in (lambda: publisher.publish({'a': numpy.ones(4)}, step=2), controller.status, lambda: receiver.version,
                 lambda: receiver.reload_weights(sys.argv[1])):
        try:
            call()
        except layercast.FailedPrecondition as error:
            assert 'forked' in str(error), error
        else:
            sys.exit('expected FailedPrecondition')
    publisher.close()
    receiver.close()
""",
    "a child that has its own": """
publisher.publish({'a': numpy.ones(4)}, step=1)
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    receiver = made(sys.argv[1])
    own = layercast.Publisher()
    receiver.reload_weights(own.publish(weights(sys.argv[1]), step=1))
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_with(ending, folder):
    interpreter.run(BEGINNING + ENDINGS[ending] + "\nprint('end')", folder, interpreter.SUPPORT)


def test_importing_starts_no_thread_and_loads_neither_torch_nor_numpy():
    source = """
import threading, layercast
assert not {"torch", "numpy", "ml_dtypes", "asyncio"} & set(sys.modules), sorted(sys.modules)
import os
assert len(os.listdir('/proc/self/task')) == THREADS
"""
    interpreter.run(source.replace("THREADS", "1"))


AT_ITS_END = {
    "publish": "publisher.publish(dict(checkpoint.walk()), step=next(steps))",
    "publish of an iterator": "publisher.publish(checkpoint.walk(), step=next(steps))",
    "a walk of a checkpoint": "list(checkpoint.walk())",
    "quantize": "layercast.quantize(weight)",
}


@pytest.mark.parametrize("call", AT_ITS_END)
def test_a_process_ends_while_a_daemon_is_in(call, folder):
    interpreter.run(f"""
import itertools, threading, numpy, layercast
checkpoint, publisher, steps = layercast.Checkpoint(sys.argv[1]), layercast.Publisher(), itertools.count(1)
weight, begun = numpy.ones((256, 256), numpy.float32), threading.Event()

def always():
    try:
        while True:
            {AT_ITS_END[call]}
            begun.set()
    except layercast.FailedPrecondition:
        pass  # the publisher is closed before the interpreter ends

threading.Thread(target=always, daemon=True).start()
begun.wait()
""", folder)


def test_a_publisher_is_closed_while_another_thread_publishes_and_a_stream_is_walked(folder):
    interpreter.run("""
import logging, threading, numpy, layercast
logging.getLogger("layercast").addHandler(logging.NullHandler())  # the files' order is not the layers'

class Slowly:  # a stream's walk, and a publish, that stand still until they are let go
    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def __iter__(self):
        self.begun.set()
        self.go.wait()
        for name, tensor in weights.items():
            yield name, tensor

checkpoint = layercast.Checkpoint(sys.argv[1])
weights = {name: tensor for name, tensor in checkpoint.walk()}
specs = [(spec.name, "torch.bfloat16", spec.shape, None) for spec in checkpoint.specs]
publisher, streamed, published = layercast.Publisher(), Slowly(), Slowly()
given = layercast._native.Weights.of_pieces(streamed, specs, False, False, "")
publisher._native.publish(given, lineage="policy", step=1, stream=True)

def attempt(call):
    try:
        call()
    except layercast.Error:
        pass  # which of the two ends first is open

import ml_dtypes
buffers = {spec.name: numpy.zeros(spec.shape, ml_dtypes.bfloat16) for spec in layercast.buffer_specs(sys.argv[1])}
receiver = layercast.Receiver(sys.argv[1], buffers=buffers)
taking = threading.Thread(target=attempt, args=[lambda: receiver.reload_weights(publisher)])
publishing = threading.Thread(target=attempt, args=[lambda: publisher.publish(published, step=2)])
taking.start()
streamed.begun.wait()
publishing.start()
published.begun.wait()
publisher.close()  # the publish under way keeps it: it ends with that
published.go.set()
streamed.go.set()
publishing.join()
taking.join()
""", folder)
