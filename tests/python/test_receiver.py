"""What a receiver takes and refuses, and what is served after a reload that failed."""

import threading
import traceback

import layercast
import ml_dtypes
import numpy
import pytest
import torch

EMBEDDING = "model.embed_tokens.weight"
ROWS = 131  # that tokens have; an engine has 192


def weights_of(model):
    return [(name, parameter.detach()) for name, parameter in model.named_parameters()]


def served(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def assert_same(tensors, others):
    assert tensors.keys() == others.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], others[name])] == []


@pytest.fixture
def engine(folder, buffers, policies):
    """A receiver that serves version `old`, with the engine's tensors."""
    tensors = buffers(folder)
    with layercast.Receiver(folder, buffers=tensors) as receiver:
        receiver.reload_weights(weights_of(policies(7)))
        yield receiver, tensors


def test_every_source_brings_the_same_weights(folder, policy, buffers, publisher):
    published = publisher.publish(policy, step=1)
    sources = [publisher, published, publisher.endpoint, [publisher.endpoint], folder, str(folder),
               dict(weights_of(policy)), weights_of(policy), iter(weights_of(policy)),
               layercast.Checkpoint(folder).walk()]
    digests = set()
    for source in sources:
        with layercast.Receiver(folder, buffers=buffers(folder)) as receiver:
            report = receiver.reload_weights(source)
            assert report.version == receiver.version and report.served_digest == receiver.served_digest()
            receiver.verify()
            digests.add(report.served_digest)
    assert len(digests) == 1


def test_a_version_can_be_named(receiver, policies, publisher):
    publisher.publish(policies(1), step=1, lineage="one")
    publisher.publish(policies(2), step=2, lineage="one")
    assert receiver.reload_weights(publisher, step=1).version.step == 1
    assert receiver.reload_weights(publisher).version.step == 2
    with pytest.raises(layercast.NotFound, match="other"):
        receiver.reload_weights(publisher, lineage="other")


def test_no_source_is_the_checkpoint_that_was_loaded_last(receiver, folder, policies):
    with pytest.raises(layercast.FailedPrecondition):
        receiver.reload_weights()
    loaded = receiver.reload_weights(folder).served_digest
    assert receiver.reload_weights(weights_of(policies(2))).served_digest != loaded
    assert receiver.reload_weights().served_digest == loaded


def test_tensors_in_kernel_format_are_copied_as_they_are(folder, receiver, policies, buffers):
    tensors = buffers(folder)
    with layercast.Receiver(folder, buffers=tensors) as other:
        other.reload_weights(weights_of(policies(3)))
        digest = other.served_digest()
        report = receiver.reload_weights(tensors, is_checkpoint_format=False)
    assert report.served_digest == digest


def test_a_part_of_the_model_changes_its_layers_alone(engine, policies):
    receiver, tensors = engine
    before = served(tensors)
    norm = torch.full((128,), 3.0, dtype=torch.bfloat16)
    receiver.reload_weights({"model.norm.weight": norm}, partial=True)
    assert_same(tensors, {**before, "model.norm.weight": norm})
    with pytest.raises(layercast.InvalidArgument, match="may"):
        receiver.reload_weights({"model.norm.weight": norm}, partial=True, may_keep=["lm_head"])


def broken(weights, error, after):
    for count, pair in enumerate(weights):
        if count == after:
            raise error
        yield pair


@pytest.mark.parametrize("after", [0, 5])
def test_what_an_iterator_raises_comes_out_and_the_engine_stays_on_the_old_version(engine, policies, after):
    receiver, tensors = engine
    before, version, error = served(tensors), receiver.version, KeyError("of the trainer")
    with pytest.raises(KeyError) as raised:
        receiver.reload_weights(broken(weights_of(policies(8)), error, after))
    assert raised.value is error
    assert "broken" in [frame.name for frame in traceback.extract_tb(raised.tb)]
    assert_same(tensors, before)
    assert receiver.version == version and not receiver.torn
    receiver.reload_weights(iter(weights_of(policies(8))))


def nan(weights):
    return [(name, torch.full_like(tensor, float("nan")) if name == EMBEDDING else tensor) for name, tensor in weights]


@pytest.mark.parametrize("change, error, words", [
    (lambda weights: weights[1:], layercast.InvalidArgument, f"not initialized from checkpoint: {EMBEDDING}"),
    (lambda weights: [*weights, ("x.y", torch.ones(2))], layercast.InvalidArgument, "1 unexpected: 'x.y'"),
    (lambda weights: [*weights, weights[0]], layercast.InvalidArgument, f"same name '{EMBEDDING}'"),
    (lambda weights: [(EMBEDDING, torch.ones(3, 5)), *weights[1:]], layercast.InvalidArgument, EMBEDDING),
    (nan, layercast.Corrupt, rf"'{EMBEDDING}' .*\[0, 0\]"),
    (lambda weights: 3, TypeError, "int"),
    (lambda weights: "/no/such/folder", layercast.NotFound, "/no/such/folder"),
    (lambda weights: "carrier://pigeon", layercast.InvalidArgument, "carrier://pigeon"),
], ids=["missing", "unexpected", "twice", "shape", "NaN", "a number", "no folder", "no endpoint"])
def test_a_source_that_does_not_fit_is_refused_and_changes_nothing(engine, policies, change, error, words):
    receiver, tensors = engine
    before, version = served(tensors), receiver.version
    with pytest.raises(error, match=words):
        receiver.reload_weights(change(weights_of(policies(8))))
    assert_same(tensors, before)
    assert receiver.version == version and not receiver.torn


def read_only(tensor):
    array = numpy.zeros(tuple(tensor.shape), ml_dtypes.bfloat16)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("change, words", [
    (lambda tensors: tensors.pop(EMBEDDING), f"no captured buffer '{EMBEDDING}'"),
    (lambda tensors: tensors.update({EMBEDDING: torch.zeros(3, 3)}), rf"'{EMBEDDING}': expected \[192, 128\] bf16"),
    (lambda tensors: tensors.update({EMBEDDING: tensors[EMBEDDING].float()}), r"expected .* bf16, got .* f32"),
    (lambda tensors: tensors.update({"more": torch.zeros(3)}), "'more' belongs to no parameter"),
    (lambda tensors: tensors.update({EMBEDDING: read_only(tensors[EMBEDDING])}), f"'{EMBEDDING}': .*read-only"),
    (lambda tensors: tensors.update({"lm_head.weight": tensors[EMBEDDING]}), "overlap those of 'lm_head.weight'"),
    (lambda tensors: tensors.update({EMBEDDING: "a tensor"}), f"'{EMBEDDING}': .* got a str"),
], ids=["missing", "shape", "dtype", "more", "read-only", "shared", "a str"])
def test_buffers_that_do_not_fit_are_refused_by_name(folder, buffers, change, words):
    tensors = buffers(folder)
    change(tensors)
    with pytest.raises(layercast.InvalidArgument, match=words):
        layercast.Receiver(folder, buffers=tensors).reload_weights(folder)


def give_other_data(tensor):
    tensor.data = torch.zeros_like(tensor)


@pytest.mark.parametrize("move", [give_other_data, lambda tensor: tensor.set_(torch.zeros_like(tensor))],
                         ids=["data", "set_"])
def test_a_buffer_that_was_moved_is_found_before_anything_is_written(engine, policies, move):
    receiver, tensors = engine
    with torch.no_grad():
        move(tensors[EMBEDDING])
    before = served(tensors)
    with pytest.raises(layercast.FailedPrecondition, match=f"never move, .* '{EMBEDDING}'"):
        receiver.reload_weights(weights_of(policies(8)))
    assert_same(tensors, before)


def test_a_buffer_that_was_freed_is_found_before_anything_is_written(engine, policies):
    receiver, tensors = engine
    tensors[EMBEDDING].untyped_storage().resize_(0)
    with pytest.raises(layercast.InvalidArgument, match=f"'{EMBEDDING}': .*was it freed"):
        receiver.reload_weights(weights_of(policies(8)))


@pytest.mark.parametrize("options, error, words", [
    ({"threds": 2}, layercast.InvalidArgument, "no option 'threds': expected one of .*threads"),
    ({"threads": "many"}, layercast.InvalidArgument, "threads: expected an integer of 0 or more, got 'many'"),
    ({"timeout": "soon"}, layercast.InvalidArgument, "timeout: expected a number, got 'soon'"),
    ({"commit": "later"}, layercast.InvalidArgument, "expected staged, undo or in_place, got 'later'"),
    ({"quantization": "fp3"}, layercast.InvalidArgument, "unknown quantization 'fp3'"),
    ({"channel": "pigeon"}, layercast.Unsupported, "no channel 'pigeon'"),
    ({"tp_rank": 2, "tp_size": 2}, layercast.InvalidArgument, "rank"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_options_that_cannot_work_are_refused(folder, buffers, options, error, words):
    with pytest.raises(error, match=words):
        layercast.Receiver(folder, buffers=buffers(folder), **options)


def test_what_is_said_of_buffers_takes_the_same_options(folder):
    with pytest.raises(layercast.InvalidArgument, match="no option 'comit'"):
        layercast.buffer_specs(folder, comit="staged")
    with pytest.raises(layercast.NotFound, match="config.json"):
        layercast.buffer_specs(folder / "nothing")


def test_a_reload_during_a_reload_is_refused(engine, policies):
    receiver, tensors = engine
    within, go_on, refused = threading.Event(), threading.Event(), []

    def held_up():
        weights = iter(weights_of(policies(8)))
        yield next(weights)
        within.set()
        assert go_on.wait(30)
        yield from weights

    def other():
        assert within.wait(30)
        try:
            receiver.reload_weights(weights_of(policies(9)))
        except layercast.Error as error:
            refused.append(error)
        go_on.set()

    thread = threading.Thread(target=other)
    thread.start()
    receiver.reload_weights(held_up())
    thread.join()
    assert isinstance(refused[0], layercast.FailedPrecondition)
    assert torch.equal(tensors[EMBEDDING][:ROWS], policies(8).model.embed_tokens.weight)


def test_strided_and_numpy_buffers_are_written_in_place(folder, policy, buffers):
    tensors = buffers(folder)
    wide = torch.zeros(192, 256, dtype=torch.bfloat16)
    tensors[EMBEDDING] = wide[:, ::2]
    tensors["model.norm.weight"] = norm = numpy.zeros(128, ml_dtypes.bfloat16)
    with layercast.Receiver(folder, buffers=tensors) as receiver:
        receiver.reload_weights(folder)
    assert torch.equal(wide[:ROWS, ::2], policy.model.embed_tokens.weight) and not wide[:, 1::2].any()
    assert norm.tobytes() == bytes(policy.model.norm.weight.detach().view(torch.uint8).numpy())


def test_a_closed_receiver_says_so(folder, receiver):
    receiver.close()
    receiver.close()
    for call in (lambda: receiver.version, lambda: receiver.reload_weights(folder), receiver.verify):
        with pytest.raises(layercast.FailedPrecondition, match="the receiver is closed"):
            call()


def test_a_report_says_what_was_done_and_names_a_field_that_it_lacks(receiver, folder):
    report = receiver.reload_weights(folder)
    assert report.layers > 0 and report.bytes > 0 and report.total_ms > 0 and "layers" in dir(report)
    assert report.to_dict()["served_digest"] == receiver.report.served_digest
    assert f"{report.bytes} bytes" in repr(report) and "<table>" in report._repr_html_()
    with pytest.raises(AttributeError, match="no field 'bites'; it has .*bytes"):
        report.bites


def test_progress_is_told_on_the_calling_thread_up_to_the_last_byte(receiver, policy, publisher):
    told = []
    publisher.publish(policy, step=1)
    receiver.reload_weights(publisher, on_progress=lambda now: told.append((threading.get_ident(), now)))
    assert {thread for thread, _ in told} == {threading.get_ident()}
    last = told[-1][1]
    assert last.bytes == last.bytes_total > 0 and last.layers == last.layers_total > 0


def test_what_a_callback_of_progress_raises_ends_the_reload(receiver, policy, publisher):
    def fail(progress):
        raise KeyError("of the caller")

    publisher.publish(policy, step=1)
    with pytest.raises(KeyError, match="of the caller"):
        receiver.reload_weights(publisher, on_progress=fail)
    receiver.reload_weights(publisher)
