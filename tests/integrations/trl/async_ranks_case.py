"""Run by torchrun, two processes: AsyncGRPOTrainer, whose rank 0 alone has the transfer and the rollouts."""

import json
import pathlib
import sys

import cpu_attention
import layercast
import pytest
import test_async_grpo
import toy

engine, folder, scratch = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
with pytest.MonkeyPatch.context() as patches:
    cpu_attention.install(patches)
    args = test_async_grpo.config(scratch, per_device_train_batch_size=20)
    transfer = layercast.trl.Transfer(engine)
    rollouts = test_async_grpo.Noted(transfer, toy.prompts(10), toy.reward, toy.tokenizer(), args)
    trainer = test_async_grpo.trainer_with(folder, args, transfer, rollouts)
    trainer.train()
    versions = sorted({sample.model_version for sample in rollouts.samples})
    print(json.dumps({"rank": args.process_index, "versions": versions,
                      "logged": test_async_grpo.logged(trainer, "layercast/version")}), flush=True)
