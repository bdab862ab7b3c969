"""Run by torchrun, two processes: GRPOTrainer, whose ranks publish together. Each prints a line of JSON. After the
training, rank 1 has a NaN."""

import json
import os
import pathlib
import sys

import layercast
import test_grpo
import toy

engine, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
seen = []


def reward(completion_ids, digit, version, **columns):
    seen.append(sorted(set(version)))
    return toy.reward(completion_ids, digit)


with layercast.trl.generation(engine) as engines:
    trainer = test_grpo.trainer_with(scratch, reward, engines.rollout_func, per_device_train_batch_size=40)
    trainer.train()
    if trainer.accelerator.is_main_process:
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(scratch / "trained")
    engines.sync_weights()
    same = bool(layercast.verify(engine, scratch / "trained")) if trainer.accelerator.is_main_process else None
    if not trainer.accelerator.is_main_process:
        for parameter in trainer.model.parameters():
            parameter.data.fill_(float("nan"))
    raised = ""
    try:
        engines.sync_weights()
    except layercast.Corrupt as error:
        raised = str(error)
    line = {"rank": int(os.environ["RANK"]), "versions": seen, "raised": raised, "same": same,
            "ratios": test_grpo.logged(trainer, "sampling/importance_sampling_ratio/mean")}
    print(json.dumps(line), flush=True)
