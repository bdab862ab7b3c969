"""vLLM takes its weights from Layercast: ``--weight-transfer-config '{"backend": "layercast"}'`` (docs/vllm.md).

``register`` is what vLLM's entry point calls in each of its processes. Backends and a model loader are registered, and
workers get one method more, ``layercast``, which is how a rank's answer gets back. Nothing of vLLM is patched, but in a
worker that takes adapters of publishers: its manager asks Layercast for those whose path says so (lora_slots.py).
"""

from __future__ import annotations

from typing import Any

BACKEND = "layercast"


def register() -> None:
    """Registers the weight-transfer backends and the model loader. May be called again."""
    from vllm.distributed.weight_transfer import factory
    from vllm.model_executor import model_loader
    from vllm.v1.worker.worker_base import WorkerBase

    if BACKEND not in factory.WeightTransferEngineFactory._registry:
        factory.WeightTransferEngineFactory.register_engine(BACKEND, "layercast.vllm.worker", "LayercastEngine")
    if BACKEND not in factory.WeightTransferTrainerFactory._registry:
        factory.WeightTransferTrainerFactory.register_engine(BACKEND, "layercast.vllm.trainer", "LayercastTrainer")
    if BACKEND not in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        from layercast.vllm.loader import LayercastLoader

        model_loader.register_model_loader(BACKEND)(LayercastLoader)
    WorkerBase.layercast = _answer


def _answer(worker: Any, op: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """``collective_rpc("layercast", args=(op, arguments))``: LayercastEngine.answer, with errors as answers.

    An exception would reach the caller as text alone, and the answers of the other ranks would be lost.
    """
    from layercast.errors import Error
    from layercast.vllm import lora_adapters

    if op in lora_adapters.OPS:
        return _answer_of_adapters(worker, op, arguments or {})
    engine = getattr(worker, "weight_transfer_engine", None)
    if engine is None or not hasattr(engine, "answer"):
        expected = f"expected an engine that was started with --weight-transfer-config '{{\"backend\": \"{BACKEND}\"}}'"
        return {"rank": worker.rank, "state": "idle", "error": {"code": "failed_precondition", "message": expected}}
    try:
        answer: dict[str, Any] = engine.answer(op, **(arguments or {}))
        return answer
    except Error as error:
        return {**engine.status(), "error": {"code": error.code, "message": str(error)}}
    except Exception as error:  # of vLLM's or torch's code
        return {**engine.status(), "error": {"code": "internal", "message": f"{type(error).__name__}: {error}"}}


def _answer_of_adapters(worker: Any, op: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from layercast.errors import Error
    from layercast.vllm.lora_adapters import LoraAdapters

    answer: dict[str, Any] = {"rank": worker.rank, "state": "idle", "adapters": {}}
    try:
        adapters = LoraAdapters.of(worker)
        answer = adapters.status()
        return adapters.answer(op, **arguments)
    except Error as error:
        return {**answer, "error": {"code": error.code, "message": str(error)}}
    except Exception as error:  # of vLLM's or torch's code
        return {**answer, "error": {"code": "internal", "message": f"{type(error).__name__}: {error}"}}
