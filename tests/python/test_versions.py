"""Versions and reports as values: compared, copied, pickled, and read while a reload is under way."""

import copy
import pickle
import threading

import layercast
import pytest


def test_a_version_equals_its_like_and_nothing_else():
    version = layercast.Version("run", 3, "00112233445566778899aabbccddeeff")
    assert version == layercast.Version("run", 3, "00112233445566778899aabbccddeeff")
    assert version != layercast.Version("run", 4, "00112233445566778899aabbccddeeff")
    assert version != None and version != "run@3" and version not in (None, 3)  # noqa: E711


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_versions_and_reports_are_copied_and_pickled(copied, receiver, folder):
    version = layercast.Version("run", 3, "00112233445566778899aabbccddeeff")
    assert copied(version) == version and hash(copied(version)) == hash(version)
    report = receiver.reload_weights(folder)
    assert copied(report).to_dict() == report.to_dict() and copied(report).version == report.version


def test_what_a_receiver_says_is_whole_while_a_reload_is_under_way(receiver, folder):
    receiver.reload_weights(folder)
    served, done, wrong = receiver.version, threading.Event(), []

    def watch():
        while not done.is_set():
            if receiver.version != served or receiver.torn or receiver.report.version != served:
                wrong.append((receiver.version, receiver.report))

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(20):
        receiver.reload_weights(folder)
    done.set()
    thread.join()
    assert not wrong
