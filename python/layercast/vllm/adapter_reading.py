"""How vLLM itself reads an adapter, whose factors may also be without memory."""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.utils import is_base_embedding_weights, parse_fine_tuned_lora_name

from layercast.errors import InvalidArgument
from layercast.offered import OfferedAdapter


class AdapterReading:
    """Of one adapter, by one worker's manager. Raises InvalidArgument for what vLLM would not load."""

    def __init__(self, manager: Any, adapter: OfferedAdapter) -> None:
        self._manager = manager
        self.called = f"adapter '{adapter.name}' of {adapter.version}"
        self._helper = self._checked(adapter)
        mapper = getattr(manager._adapter_manager.model, "hf_to_vllm_mapper", None)
        self._mapper = None if mapper is None else mapper.get_rename_mapper()
        names = [spec.name for spec in adapter.specs]
        self._is_3d = any(".experts.lora_" in name or ".experts.base_layer.lora_" in name for name in names)
        self.factors = tuple(spec for spec in adapter.specs if not is_base_embedding_weights(spec.name))

    def model(self, id: int, tensors: dict[str, torch.Tensor], device: str = "cpu") -> Any:
        """vLLM's model of these factors, which it changes where they lie: it multiplies B by the scale."""
        registry = self._manager._adapter_manager
        try:
            model = self._manager._lora_model_cls.from_lora_tensors(
                id,
                tensors,
                self._helper,
                device=device,
                dtype=self._manager.lora_config.lora_dtype,
                model_vocab_size=self._manager.vocab_size,
                weights_mapper=self._mapper,
                skip_prefixes=getattr(registry.model, "lora_skip_prefixes", None),
            )
            model.is_3d_lora_weight = self._is_3d
            registry._validate_moe_lora_format(model)
        except (ValueError, RuntimeError) as error:
            raise InvalidArgument(f"{self.called}: {error}") from error
        for module, factors in model.loras.items():
            if factors.lora_a is None or factors.lora_b is None:
                raise InvalidArgument(f"{self.called}: '{module}': expected lora_A and lora_B, got one of them")
        return model

    def scales(self) -> dict[str, float]:
        """What vLLM multiplies each factor by."""
        return {spec.name: self._scale(spec.name) for spec in self.factors}

    def module_of(self, factor: str) -> str:
        """The path of the module that vLLM takes it to be of."""
        path: str = parse_fine_tuned_lora_name(factor, self._mapper)[0]
        return path

    def _scale(self, factor: str) -> float:
        path, is_a = parse_fine_tuned_lora_name(factor)
        return 1.0 if is_a else float(self._helper.get_rank_and_scaling(path)[1])

    def _checked(self, adapter: OfferedAdapter) -> Any:
        modules = sorted({spec.name.split(".lora_")[0].rpartition(".")[2] for spec in adapter.specs})
        config = {"target_modules": modules, **adapter.config}
        if self._manager.max_position_embeddings:
            config["vllm_max_position_embeddings"] = self._manager.max_position_embeddings
        try:
            helper = PEFTHelper.from_dict(config)
            helper.validate_legal(self._manager.lora_config)
        except (ValueError, TypeError) as error:
            raise InvalidArgument(f"{self.called}: {error}") from error
        return helper
