"""One engine that takes adapters of a publisher: `adapter_case.py BASE OTHER_BASE ADAPTER_1 ADAPTER_2 TP`, whose answer is
JSON.

Each version is loaded in memory under one name, and compared with the same folder as vLLM's own add_lora loads and
activates it: the bytes of all stacked tensors, and what is generated.
"""

import json
import sys


def stacked_digest(worker):
    """Of the stacked tensors of each slot that an adapter is in, by that adapter's id."""
    import hashlib

    import torch

    manager = worker.model_runner.lora_manager._adapter_manager
    found = {}
    for index, number in enumerate(manager.lora_index_to_id):
        if number is None:
            continue
        digest, filled = hashlib.sha256(), 0
        for name, module in sorted(manager.modules.items()):
            for tensor in (*module.lora_a_stacked, *module.lora_b_stacked):
                digest.update(tensor[index].contiguous().view(torch.uint8).numpy().tobytes())
                filled += int(tensor[index].count_nonzero())
        assert filled
        found[number] = digest.hexdigest()
    return found


def main():
    import layercast
    from layercast.vllm.sync import of_llm
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    base, other, *folders = sys.argv[1:5]
    llm = LLM(model=base, weight_transfer_config={"backend": "layercast"}, dtype="bfloat16", enforce_eager=True,
              skip_tokenizer_init=True, max_model_len=128, tensor_parallel_size=int(sys.argv[5]), enable_lora=True,
              max_loras=1, max_cpu_loras=3, max_lora_rank=16, enable_prefix_caching=True)
    sampling = SamplingParams(max_tokens=8, temperature=0, detokenize=False, ignore_eos=True)
    prompt = [1, 5, 7, 3] * 12  # over several blocks, which the prefix cache keeps

    def generate(adapter=None):
        outputs = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False, lora_request=adapter)
        return list(outputs[0].outputs[0].token_ids)

    def stacked(number):
        return [found.get(number) for found in llm.collective_rpc(stacked_digest)]

    said, engine = {"base": generate(), "ours": [], "theirs": [], "tokens": [], "their_tokens": []}, of_llm(llm)
    for number, folder in enumerate(folders, 10):
        adapter = LoRARequest(f"file-{number}", number, folder)
        said["their_tokens"].append(generate(adapter))
        said["theirs"].append(stacked(number))
    ours = LoRARequest("policy", 1, "layercast://policy")
    with layercast.Publisher() as publisher:
        for step, folder in enumerate(folders):
            published = publisher.publish_adapters({"policy": folder, "other": folders[0]}, step=step)
            answers = engine.load_adapter(name="policy", endpoint=publisher.endpoint, adapter="policy")
            assert all(answer["adapters"]["policy"]["step"] == step for answer in answers)
            said["tokens"].append(generate(ours))
            said["ours"].append(stacked(1))
        generate(LoRARequest("file-10", 10, folders[0]))  # the one slot is another's
        assert generate(ours) == said["tokens"][-1]  # read again from what the worker keeps
        said["again"] = stacked(1)
        said["errors"] = []
        for options in ({"adapter": "nobody"}, {"endpoint": ""}, {"adapter": "policy", "step": 9, "timeout": 5.0}):
            try:
                engine.load_adapter(**{"name": "policy", "endpoint": publisher.endpoint, **options})
            except layercast.Error as error:
                said["errors"].append([error.code, str(error)])
        for step, change in enumerate(("rank", "name", "base"), 10):
            try:
                adapter, options = wrong(folders[0], change)
                publisher.publish_adapters({"policy": adapter}, step=step, **options)
                engine.load_adapter(name="policy", endpoint=publisher.endpoint)
            except layercast.Error as error:
                said["errors"].append([error.code, str(error)])
            if change == "name":  # a base, by vLLM's own calls, which drop all adapters
                publisher.publish_adapters({"policy": folders[1]}, base=other, step=1, lineage="bases")
                llm.init_weight_transfer_engine({"init_info": {"endpoint": publisher.endpoint, "lineage": "bases"}})
                llm.start_weight_update()
                llm.update_weights({"update_info": {}})
                llm.finish_weight_update("one")
                llm.reset_prefix_cache()
                said["back"] = stacked(1)  # before any request asks for it
                said["on_other"] = generate(ours)
                said["on_other_ours"] = stacked(1)
                said["on_other_theirs"] = generate(LoRARequest("file-11", 11, folders[1]))
        assert generate(ours) == said["on_other"]
        engine.unload_adapter(name="policy")
        said["held"] = [answer["adapters"] for answer in engine.adapters()]
    print(json.dumps(said))


def wrong(folder, change):
    import pathlib

    import safetensors.torch

    config = json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())
    tensors = safetensors.torch.load_file(pathlib.Path(folder) / "adapter_model.safetensors")
    if change == "rank":
        import torch

        return ({**config, "r": 32, "rank_pattern": {}},
                {name: torch.ones((32, *tensor.shape[1:]) if "lora_A" in name else (*tensor.shape[:1], 32))
                 for name, tensor in tensors.items()}), {}
    if change == "name":
        return (config, {name.replace("layers.1.", "layers.7."): tensor for name, tensor in tensors.items()}), {}
    from layercast import Version

    return (config, tensors), {"base_version": Version("bases", 0, "0" * 31 + "1")}


if __name__ == "__main__":
    main()
