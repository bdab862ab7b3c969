"""One engine, in a process of its own: `engine_case.py FOLDER_A FOLDER_B TP QUANTIZATION [ADAPTER]`, whose answer is JSON.

Takes version B by vLLM's four calls and then A again in phases while it generates, and compares every byte on every rank
with what vLLM's own reload from the folder leaves.
"""

import json
import sys


def main():
    import layercast
    from layercast.vllm.sync import of_llm
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    a, b, tp, quantization = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    adapter = LoRARequest("adapter", 1, sys.argv[5]) if len(sys.argv) > 5 else None
    engine = LLM(
        model=a,
        weight_transfer_config={"backend": "layercast"},
        dtype="bfloat16",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=128,
        tensor_parallel_size=tp,
        enable_lora=adapter is not None,
        quantization=None if quantization == "none" else quantization,
    )
    sampling = SamplingParams(max_tokens=8, temperature=0, detokenize=False, ignore_eos=True)

    def generate(adapter=None):
        outputs = engine.generate([{"prompt_token_ids": [1, 5, 7]}], sampling, use_tqdm=False, lora_request=adapter)
        return list(outputs[0].outputs[0].token_ids)

    def checksums():
        return engine.collective_rpc("compute_weight_checksums")

    said = {"a": generate(), "a_adapted": generate(adapter), "cold": checksums()}
    with layercast.Publisher() as publisher:
        publisher.publish(b, step=1)
        engine.init_weight_transfer_engine({"init_info": {"endpoint": publisher.endpoint}})
        engine.start_weight_update()
        engine.update_weights({"update_info": {}})
        engine.finish_weight_update("one")
        engine.reset_prefix_cache()
        ours = checksums()
        said["b"], said["b_adapted"] = generate(), generate(adapter)
        publisher.publish(a, step=2)
        answers = of_llm(engine).reload(step=2)
        said["again"] = generate()
        assert generate(adapter) == said["a_adapted"]
        said["back"] = checksums() == said["cold"]
        said["reloaded"] = {path: why for answer in answers for path, why in answer["reloaded"].items()}
        said["adopted"] = sorted({path for answer in answers for path in answer["adopted"]})
        of_llm(engine).verify()
    engine.collective_rpc("reload_weights", kwargs={"weights_path": b})
    engine.reset_prefix_cache()
    said["equal"], said["changed"] = ours == checksums(), ours != said.pop("cold")
    said["theirs"], said["theirs_adapted"] = generate(), generate(adapter)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
