"""Log lines of the extension in Python's logging."""

import logging
import threading

import interpreter


class Lines(logging.Handler):
    """The lines of the package's logger; await_line() returns the first that has these words."""

    def __init__(self):
        super().__init__()
        self._came, self._lines = threading.Condition(), []

    def emit(self, record):
        with self._came:
            self._lines.append(record)
            self._came.notify_all()

    def await_line(self, words):
        found = []

        def has_come():
            found[:] = [line for line in self._lines if words in line.getMessage()]
            return found

        with self._came:
            assert self._came.wait_for(has_come, 30), [line.getMessage() for line in self._lines]
        return found[0]


def test_the_warning_of_layers_that_interleave_reaches_pythons_logging(receiver, policy, folder):
    receiver.reload_weights(folder)
    lines, logger = Lines(), logging.getLogger("layercast")
    logger.addHandler(lines)
    try:
        weights = sorted(policy.named_parameters(), key=lambda pair: pair[0].rpartition(".layers.")[2][1:])
        report = receiver.reload_weights(iter([(name, tensor.detach()) for name, tensor in weights]))
        warning = lines.await_line("ordering weights by their parent layer")
    finally:
        logger.removeHandler(lines)
    assert warning.levelno == logging.WARNING and report.out_of_order


def test_a_line_is_not_lost_when_the_process_ends(folder):
    """It is handed over before the interpreter ends."""
    source = """
import logging, layercast, ml_dtypes, numpy
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s")
receiver = layercast.Receiver(sys.argv[1], buffers={spec.name: numpy.zeros(spec.shape, ml_dtypes.bfloat16)
                                                    for spec in layercast.buffer_specs(sys.argv[1])})
receiver.reload_weights(sys.argv[1])
weights = [(name, tensor.numpy()) for name, tensor in layercast.Checkpoint(sys.argv[1]).items()]
receiver.reload_weights(iter(sorted(weights, key=lambda pair: pair[0].rpartition(".layers.")[2][1:])))
"""
    assert "WARNING layercast" in interpreter.run(source, folder)
