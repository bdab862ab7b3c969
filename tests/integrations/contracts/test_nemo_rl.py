"""NeMo-RL's refit by a class path, by the contract of its CheckpointEngine."""

import asyncio
import inspect
import threading

import contracts
import layercast
import pytest
import serving
import torch

BACKEND = "layercast.nemo_rl:Engine"


def engine(**options):
    kwargs = {"release_after_refit": False, **options}
    return contracts.create_checkpoint_engine(BACKEND, bucket_size_bytes=1 << 20, engine_kwargs=kwargs)


def connect(policy, rollouts):
    """As CheckpointEngineWeightSynchronizer does: metadata of the policy first."""
    metadata = [one.prepare() for one in (policy, *rollouts)]
    worlds = {"train_world_size": 1, "rollout_world_size": len(rollouts), "metadata": metadata}
    policy.init_policy_process_group(worker_rank=0, **worlds)
    for rank, one in enumerate(rollouts):
        one.init_rollout_process_group(rollout_rank=rank, **worlds)


def weights_of(module):
    return ((name, tensor.detach()) for name, tensor in module.state_dict().items())


async def batches(rollout):
    return [batch async for batch in rollout.receive_weight_batches()]


def test_the_class_has_the_methods_that_nemo_rl_calls():
    made = engine()
    assert made.shard_expert_weights is False
    for name, parameters in contracts.CHECKPOINT_ENGINE.items():
        assert tuple(inspect.signature(getattr(made, name)).parameters) == parameters, name


def test_without_engines_rollout_workers_get_what_the_policy_sends_bit_for_bit(rank, tmp_path):
    module = serving.save_policy(tmp_path / "trained", seed=8)
    policy, rollouts = engine(), [engine(), engine()]
    connect(policy, rollouts)
    for factor in (1.0, 2.0):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(factor)
        received = [None, None]

        def receive(index):
            received[index] = asyncio.run(batches(rollouts[index]))

        threads = [threading.Thread(target=receive, args=(index,)) for index in range(2)]
        for thread in threads:  # NeMo-RL has both sides at work at the same time
            thread.start()
        asyncio.run(policy.send_weights(weights_of(module)))
        for thread in threads:
            thread.join()
        expected = dict(weights_of(module))
        for found in received:
            (batch,) = found
            assert {name for name, _ in batch} == set(expected)
            assert all(torch.equal(tensor, expected[name]) and tensor.dtype == expected[name].dtype for name, tensor in batch)
    for one in (policy, *rollouts):
        one.finalize()


def test_with_engines_they_take_the_version_all_or_none_and_rollout_workers_get_nothing(serve, rank, tmp_path):
    (one, _), (two, process) = serve(), serve()
    module = serving.save_policy(tmp_path / "trained", seed=8)
    policy, rollout = (engine(engines=[one, two], timeout=20.0) for _ in range(2))
    connect(policy, [rollout])
    metrics = asyncio.run(policy.send_weights(weights_of(module)))
    assert metrics["layercast/version"] == 1 and asyncio.run(batches(rollout)) == []
    for endpoint in (one, two):
        assert layercast.verify(endpoint, tmp_path / "trained").equal
    process.kill()
    process.wait()
    with torch.no_grad():
        module.lm_head.weight.mul_(2)
    with pytest.raises(layercast.Error, match=two):
        asyncio.run(policy.send_weights(weights_of(module)))
    assert layercast.verify(one, tmp_path / "trained").equal


def test_a_rollout_worker_whose_policy_never_publishes_does_not_wait_for_ever(rank):
    policy, rollout = engine(), engine(timeout=0.5)
    connect(policy, [rollout])
    with pytest.raises(layercast.Error):
        asyncio.run(batches(rollout))


def test_calls_out_of_order_are_refused_by_name():
    with pytest.raises(layercast.FailedPrecondition, match="expected prepare before"):
        asyncio.run(engine().send_weights([]))
    with pytest.raises(layercast.FailedPrecondition, match="expected init_rollout_process_group before"):
        asyncio.run(batches(engine()))
