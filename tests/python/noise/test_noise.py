"""Noise that versions carry, from the publisher to the buffers, held against the same formula in numpy."""

import layercast
import ml_dtypes
import numpy
import pytest
import torch

import noise


def as_numpy(tensor):
    return tensor.detach().contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)


def expected(clean, sigma, seed):
    """The served tensors of a version, by those of the clean one."""
    return {name: noise.noisy(as_numpy(tensor), name, sigma, seed) if "norm" in name else as_numpy(tensor)
            for name, tensor in clean.items()}


@pytest.fixture
def clean(folder, policy, buffers):
    """What is served of `policy` without noise."""
    tensors = buffers(folder)
    with layercast.Receiver(folder, buffers=tensors) as receiver:
        receiver.reload_weights([(name, parameter.detach()) for name, parameter in policy.named_parameters()])
    return tensors


def assert_serves(tensors, wanted):
    different = [name for name, tensor in tensors.items()
                 if as_numpy(tensor).tobytes() != wanted[name].tobytes()]
    assert different == [] and any("norm" in name for name in wanted)


def test_the_oracle_draws_normal_numbers():
    drawn = noise.normals(7, "model.norm.weight", 200_000)
    assert abs(drawn.mean()) < 0.01 and abs(drawn.std() - 1) < 0.01
    assert [int(word[0]) for word in noise.philox([[0]] * 4, 0)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_receivers_serve_what_numpy_draws(folder, policy, buffers, publisher, clean):
    tensors = buffers(folder)
    with layercast.Receiver(folder, buffers=tensors) as receiver:
        for step in (1, 2, 3):  # never accumulating
            publisher.publish(policy, step=step, lineage="run", noise=layercast.Noise(0.02, seed=5))
            report = receiver.reload_weights(publisher)
            seed = noise.seed_of("run", step, 5)
            assert report.noise == {"sigma": pytest.approx(0.02), "seed": seed, "own": 0}
            assert_serves(tensors, expected(clean, 0.02, seed))
            receiver.verify()
        assert receiver.reload_weights(publisher, clean=True).noise is None
        assert_serves(tensors, {name: as_numpy(tensor) for name, tensor in clean.items()})


def test_an_engine_may_draw_its_own_or_none(folder, policy, buffers, publisher, clean):
    publisher.publish(policy, step=1, lineage="run", noise=layercast.Noise(0.01))
    seed = noise.seed_of("run", 1)
    for use, wanted in (("per-engine", expected(clean, 0.01, seed ^ noise.fnv1a("mine"))),
                        ("off", {name: as_numpy(tensor) for name, tensor in clean.items()})):
        tensors = buffers(folder)
        with layercast.Receiver(folder, buffers=tensors, engine="mine", noise=use) as receiver:
            receiver.reload_weights(publisher)
            assert_serves(tensors, wanted)
    with pytest.raises(layercast.InvalidArgument, match="expected shared, per-engine or off, got 'loud'"):
        layercast.Receiver(folder, buffers=buffers(folder), noise="loud")


def test_a_schedule_gives_each_step_its_stage(folder, policy, buffers, publisher):
    stages = layercast.NoiseStages(steps=100, seed=1)
    assert stages.at("run", 9) is None
    sigmas = [stages.at("run", step)[0] for step in range(10, 100, 10)]
    assert sigmas == pytest.approx(numpy.geomspace(1e-2, 1e-4, 9).tolist())
    assert stages.at("run", 50)[1] == noise.seed_of("run", 50, 1)
    with layercast.Receiver(folder, buffers=buffers(folder)) as receiver:
        for step in (5, 50):
            publisher.publish(policy, step=step, lineage="run", noise=stages)
            report = receiver.reload_weights(publisher)
            assert report.noise is None if step == 5 else report.noise["sigma"] == pytest.approx(1e-3)


def test_noise_that_is_none_is_refused(policy, publisher):
    for wrong, message in ((0.1, "expected layercast.Noise"), (layercast.Noise(-1), "finite sigma above 0"),
                           (layercast.NoiseStages(steps=0), "number of steps")):
        with pytest.raises(layercast.InvalidArgument, match=message):
            publisher.publish(policy, step=1, noise=wrong)
