"""A policy of transformers that is published from Python and taken into torch tensors: the bytes are those of a cold load,
and those of the oracle (tests/oracle/reference), which reads the saved folder by safetensors and torch alone."""

import layercast
import oracle
import pytest
import safetensors.torch
import torch

LAYOUTS = [(1, 0), (2, 0), (2, 1)]


@pytest.mark.parametrize("tp_size, tp_rank", LAYOUTS)
@pytest.mark.parametrize("recipe", layercast.known_recipes())
def test_published_and_cold_and_oracle_are_the_same_bytes(recipe, tp_size, tp_rank, policy, policies, folder, buffers,
                                                          publisher):
    layout = {"quantization": recipe, "tp_size": tp_size, "tp_rank": tp_rank}
    live, cold = buffers(folder, **layout), buffers(folder, **layout)
    addresses = {name: tensor.data_ptr() for name, tensor in live.items()}
    with layercast.Receiver(folder, buffers=live, **layout) as receiver:
        receiver.reload_weights(publisher.publish(policies(9), step=1))
        report = receiver.reload_weights(publisher.publish(policy, step=2))
        receiver.verify()
    with layercast.Receiver(folder, buffers=cold, **layout) as receiver:
        assert receiver.reload_weights(folder).served_digest == report.served_digest
    assert addresses == {name: tensor.data_ptr() for name, tensor in live.items()}
    expected = oracle.served_tensors(folder, tp_size, tp_rank, recipe)
    assert oracle.differences(live, expected) == oracle.differences(cold, expected) == []


@pytest.mark.parametrize("tp_size, tp_rank", LAYOUTS)
def test_a_fused_layer_in_fp8_per_channel_is_what_torch_makes_of_its_parts(tp_size, tp_rank, policy, folder, buffers,
                                                                         publisher):
    layout = {"quantization": "fp8_per_channel", "tp_size": tp_size, "tp_rank": tp_rank}
    live = buffers(folder, **layout)
    with layercast.Receiver(folder, buffers=live, **layout) as receiver:
        receiver.reload_weights(publisher.publish(policy, step=1))
    saved = safetensors.torch.load_file(folder / "model.safetensors")
    parts = [saved[f"model.layers.1.mlp.{part}.weight"].chunk(tp_size)[tp_rank] for part in ("gate_proj", "up_proj")]
    weight = torch.cat(parts).float()
    scale = (weight.abs().amax(dim=1, keepdim=True) / 448.0).clamp(min=1.0 / (448.0 * 512.0))
    codes = (weight / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    assert torch.equal(live["model.layers.1.mlp.gate_up_proj.weight_scale"], scale)
    assert torch.equal(live["model.layers.1.mlp.gate_up_proj.weight"].view(torch.uint8), codes.view(torch.uint8))


def test_a_stream_and_a_borrowed_version_and_parts_bring_the_same_bytes(policy, folder, buffers, publisher):
    def reload(source):
        with layercast.Receiver(folder, buffers=buffers(folder)) as receiver:
            return receiver.reload_weights(source).served_digest

    weights = [(name, tensor.detach()) for name, tensor in policy.named_parameters()]
    expected = reload(folder)
    assert reload(publisher.publish(weights, step=1, stream=True)) == expected
    with publisher.borrowed(weights, step=2) as published:
        assert reload(published) == expected
    assert reload(publisher.publish(folder, step=3)) == expected
    with layercast.Publisher() as first, layercast.Publisher() as second:
        for rank, one in enumerate((first, second)):
            one.publish([halved(name, tensor, rank) for name, tensor in weights], step=1, rank=(rank, 2))
        assert reload([first.endpoint, second.endpoint]) == expected
        assert reload(f"{second.endpoint},{first.endpoint}") == expected


def halved(name, tensor, rank):
    """A rank's part of it: half of its rows, the second half the smaller one."""
    middle = (len(tensor) + 1) // 2
    part = tensor[:middle] if rank == 0 else tensor[middle:]
    return name, part, (list(tensor.shape), [rank * middle] + [0] * (tensor.dim() - 1))
