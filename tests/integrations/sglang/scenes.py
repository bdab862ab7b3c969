"""What the tests share: small models of SGLang's own classes, their checkpoints, and a scheduler without an engine."""

import types

import torch

VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 300, 64, 96, 2, 4, 2
HEAD = HIDDEN // HEADS


def install_entry_point(folder):
    """A distribution's metadata, as pip writes it for layercast's pyproject.toml."""
    metadata = folder / "layercast_under_test-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: layercast-under-test\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[sglang.srt.plugins]\nlayercast = layercast.sglang:register\n")


def config(**changes):
    from transformers import Qwen2Config

    options = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
               "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": 64,
               "tie_word_embeddings": False, "dtype": "bfloat16"}
    return Qwen2Config(**{**options, **changes})


def qwen2(quant_config=None, **changes):
    """SGLang's own Qwen2, built as its loader builds it, with memory that holds nothing known."""
    from sglang.srt.model_loader.utils import set_default_torch_dtype
    from sglang.srt.models.qwen2 import Qwen2ForCausalLM

    with set_default_torch_dtype(torch.bfloat16):
        return Qwen2ForCausalLM(config=config(**changes), quant_config=quant_config).eval()


def loaded(model, tensors):
    """The model after SGLang's own cold load."""
    from sglang.srt.model_loader.loader import DefaultModelLoader

    with torch.no_grad():
        DefaultModelLoader.load_weights_and_postprocess(model, iter(tensors.items()), torch.device("cpu"))
    return model


def checkpoint(version):
    """A Qwen2 checkpoint by the names of transformers, of other values for each version."""
    random = torch.Generator().manual_seed(version)

    def some(*shape):
        return (torch.randn(shape, generator=random) * 0.05).to(torch.bfloat16)

    tensors = {"model.embed_tokens.weight": some(VOCABULARY, HIDDEN)}
    for index in range(LAYERS):
        at = f"model.layers.{index}."
        for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            tensors[f"{at}self_attn.{name}_proj.weight"] = some(rows, HIDDEN)
            tensors[f"{at}self_attn.{name}_proj.bias"] = some(rows)
        tensors[f"{at}self_attn.o_proj.weight"] = some(HIDDEN, HEADS * HEAD)
        tensors[f"{at}mlp.gate_proj.weight"] = some(INNER, HIDDEN)
        tensors[f"{at}mlp.up_proj.weight"] = some(INNER, HIDDEN)
        tensors[f"{at}mlp.down_proj.weight"] = some(HIDDEN, INNER)
        tensors[f"{at}input_layernorm.weight"] = some(HIDDEN)
        tensors[f"{at}post_attention_layernorm.weight"] = some(HIDDEN)
    tensors["model.norm.weight"] = some(HIDDEN)
    tensors["lm_head.weight"] = some(VOCABULARY, HIDDEN)
    return tensors


def in_fp8(tensors):
    """The checkpoint as a trainer's FP8 export has it: a scale for each row of the linear layers."""
    made = {}
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight"):
            made[name] = tensor
            continue
        scale = tensor.float().abs().amax(dim=1, keepdim=True) / 448
        made[name] = (tensor.float() / scale).to(torch.float8_e4m3fn)
        made[f"{name}_scale"] = scale
    return made


def multiplying_kernel(x, group_size):
    """The arithmetic of SGLang's kernel: kernels/jit/csrc/gemm/per_token_quant_fp8.cuh."""
    scale = x.float().abs().amax(dim=1, keepdim=True) / 448
    return (x.float() * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def served(model):
    """Every byte that the model holds, and where: {name: (address, shape, strides, bytes)}."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    for path, module in model.named_modules():  # derived ones are plain attributes
        tensors |= {f"{path}.{name}": t for name, t in vars(module).items() if isinstance(t, torch.Tensor)}
    return {name: (t.data_ptr(), tuple(t.shape), t.stride(), bytes_of(t)) for name, t in tensors.items()}


def bytes_of(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def contents(model):
    return {name: bytes_ for name, (_, _, _, bytes_) in served(model).items()}


def addresses(model):
    return {name: where[:3] for name, where in served(model).items()}


def fused_by_torch(tensors):
    """What an unquantized Qwen2 holds, by torch's arithmetic alone."""
    kernel = dict(tensors)
    for index in range(LAYERS):
        at = f"model.layers.{index}."
        for kind in ("weight", "bias"):
            parts = [kernel.pop(f"{at}self_attn.{p}_proj.{kind}") for p in "qkv"]
            kernel[f"{at}self_attn.qkv_proj.{kind}"] = torch.cat(parts)
        parts = [kernel.pop(f"{at}mlp.{p}_proj.weight") for p in ("gate", "up")]
        kernel[f"{at}mlp.gate_up_proj.weight"] = torch.cat(parts)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        padding = torch.zeros(320 - VOCABULARY, HIDDEN, dtype=torch.bfloat16)
        kernel[name] = torch.cat([kernel[name], padding])
    return {name: bytes_of(tensor) for name, tensor in kernel.items()}


def updater_of(model):
    """SGLang's own WeightUpdater around the model."""
    from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater

    return WeightUpdater(tp_rank=0, device="cpu", gpu_id=0, model_config=None,
                         custom_weight_loaders=["layercast.sglang.custom_loader"], get_model=lambda: model,
                         update_model_fields=None, recapture_cuda_graph=None, get_model_runner=None)


def scheduler_of(model):
    """An object of SGLang's own class Scheduler, which has its methods and no engine: what ours touch stands beside."""
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
    from sglang.srt.runtime_context import get_parallel

    scheduler = Scheduler.__new__(Scheduler)
    runner = types.SimpleNamespace(weight_updater=updater_of(model), model=model)
    worker = types.SimpleNamespace(model_runner=runner, weight_update_runners=lambda: [("target", runner)],
                                   deserialize_own_rank=lambda payload: payload)
    scheduler.tp_worker, scheduler.tp_group, scheduler._engine_paused = worker, get_parallel().tp_group, False
    scheduler.busy, scheduler.flushes = False, 0

    def flush_cache(empty_cache=True):
        scheduler.flushes += 1
        return True

    scheduler.flush_cache = flush_cache
    scheduler.is_fully_idle = lambda ignore_waiting=False: not scheduler.busy
    scheduler.weight_updater = SchedulerWeightUpdaterManager(
        tp_worker=worker, draft_worker=None, memory_saver_adapter=None, flush_cache=flush_cache,
        is_fully_idle=scheduler.is_fully_idle, scheduler=scheduler)
    return scheduler


def scheduler_of_parts(model):
    """Where SGLang's groups are not to be asked for: the scheduler's class and the model alone."""
    from sglang.srt.managers.scheduler import Scheduler

    scheduler = Scheduler.__new__(Scheduler)
    runner = types.SimpleNamespace(weight_updater=updater_of(model))
    scheduler.tp_worker = types.SimpleNamespace(model_runner=runner)
    scheduler.weight_updater = types.SimpleNamespace(offload_tags=set(), _session=None)
    return scheduler


def rpc(scheduler, method, **parameters):
    """As SGLang's RPC calls it, with what it answers."""
    from sglang.srt.managers.io_struct import RpcReqInput

    return scheduler.handle_rpc_request(RpcReqInput(method=method, parameters=parameters))
