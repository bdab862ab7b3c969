"""verl's own workers and managers on this machine: a trainer whose ranks are its FSDP2 engine on gloo, and rollout workers."""

import asyncio
import os

import ray
import torch
import verl
from hydra import compose, initialize_config_dir
from tests.checkpoint_engine.test_utils import MockReplica  # of verl's wheel
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout import BaseRollout

SHARDS = {"VERL_USE_EXTERNAL_MODULES": "cpu_platform,layercast.verl_shards", "VERL_ENGINE_VENDOR": "layercast"}


class Trainer(ActorRolloutRefWorker):
    def __init__(self, config, role):
        super().__init__(config, role)
        initialize_global_process_group_ray(backend="cpu:gloo")  # verl would name the CPU twice

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def learn(self, seed):
        """Weights that no other step has, whose bytes survive a cast to what the folder's config says."""
        torch.manual_seed(seed)
        module = self.actor.engine.module
        with torch.no_grad():
            for parameter in module.parameters():
                whole = torch.randn(parameter.shape).mul_(0.1).bfloat16().to(parameter.dtype)
                mesh, placements = parameter.device_mesh, parameter.placements
                parameter.copy_(torch.distributed.tensor.distribute_tensor(whole, mesh, placements))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def spoil(self, name):
        dict(self.actor.engine.module.named_parameters())[name].data.to_local().fill_(float("nan"))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def engine_options(self, **options):
        """Begins anew with other ``engine_kwargs.layercast``, as :meth:`init_model` makes it."""
        self.checkpoint_engine.close()
        self.checkpoint_engine = CheckpointEngineRegistry.new("layercast", is_master=self.rank == 0, bucket_size=1 << 31, **options)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def published(self):
        """Steps that this rank publishes, and the bytes that the newest one takes in its memory."""
        publisher = self.checkpoint_engine._publisher
        versions = publisher.versions().versions if publisher else []
        return [kept.version.step for kept in versions], versions[-1].added_bytes if versions else 0


class Rollout(BaseRollout):
    """Keeps what it is given."""

    replica_rank, is_leader_rank = 0, True

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, global_steps=None, wire_format="named_tensors", **options):
        assert wire_format == "named_tensors"
        self.step, self.names, self.tensors = global_steps, [], {}
        async for name, tensor in weights:
            self.names.append(name)
            self.tensors[name] = tensor.clone()


class RolloutWorker(CheckpointEngineWorker):
    def __init__(self, rollout_config, model_config):
        super().__init__(rollout_config, model_config, Rollout(rollout_config, model_config, None))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def engine_options(self, bucket_size=1 << 31, **options):
        self.checkpoint_engine = CheckpointEngineRegistry.new("layercast", bucket_size=bucket_size, **options)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def taken(self):
        return self.server_adapter.step, self.server_adapter.names, self.server_adapter.tensors


def composed(overrides):
    """verl's configuration of trainer and rollouts."""
    with initialize_config_dir(os.path.join(os.path.dirname(verl.__file__), "trainer/config"), version_base=None):
        return compose("ppo_trainer", overrides=["actor_rollout_ref.rollout.name=vllm", *overrides]).actor_rollout_ref


def config(folder):
    told = {
        "model.path": folder, "model.use_remove_padding": False, "model.enable_gradient_checkpointing": False,
        "actor.strategy": "fsdp2", "actor.fsdp_config.use_torch_compile": False, "actor.use_torch_compile": False,
        "actor.ppo_micro_batch_size_per_gpu": 1, "actor.ppo_mini_batch_size": 2, "actor.optim.total_training_steps": 1,
        "actor.checkpoint.save_contents": "[hf_model]",
        "rollout.tensor_model_parallel_size": 1, "rollout.log_prob_micro_batch_size_per_gpu": 1,
        "rollout.checkpoint_engine.backend": "layercast", "rollout.checkpoint_engine.custom_backend_module": "layercast.verl",
    }
    attention = "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"
    return composed([attention, *(f"actor_rollout_ref.{name}={value}" for name, value in told.items())])


def workers(kind, count, environment, **arguments):
    made = RayClassWithInitArgs(cls=ray.remote(kind), **arguments)
    pool = RayResourcePool(process_on_nodes=[count], use_gpu=False, max_colocate_count=1)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, device_name="cpu", use_gpu=False, worker_env=environment)


class Run:
    """A trainer of two ranks, rollout workers, and verl's manager between them."""

    def __init__(self, folder, rollouts=2, shards=False):
        settings = config(folder)
        environment = SHARDS if shards else {}
        self.trainer = workers(Trainer, 2, environment, config=settings, role="actor")
        model, rollout = omega_conf_to_dataclass(settings.model), omega_conf_to_dataclass(settings.rollout)
        self.rollouts = workers(RolloutWorker, rollouts, {}, rollout_config=rollout, model_config=model)
        self.trainer.init_model()
        replicas = [MockReplica(replica_rank=rank, config=rollout, model_config=model) for rank in range(rollouts)]
        for replica in replicas:
            asyncio.run(replica.init_hybrid(self.rollouts))
        self.manager = CheckpointEngineManager(rollout.checkpoint_engine, self.trainer, replicas)

    def options(self, **options):
        """Of trainer and rollout workers."""
        self.trainer.engine_options(**options)
        self.rollouts.engine_options(**options)

    def saved(self, folder):
        """The trainer's weights as verl saves them for Hugging Face."""
        self.trainer.save_checkpoint(str(folder))
        return folder / "huggingface"

    def close(self):
        for group in (self.trainer, self.rollouts):
            for worker in group.workers:
                ray.kill(worker)
