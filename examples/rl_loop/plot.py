"""Draws a run of rl_loop: python plot.py out/rl_loop makes rl_loop.png beside report.json."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

GOAL = 0.9  # the reward that a full run passes
RUNS = {"history": "synced every step", "history_with_adapter": "an adapter alone, synced every step",
        "history_without_sync": "never synced"}
STAGES = ("receive", "layer_buffer", "materialize", "fuse_and_shard", "quantize", "verify", "commit")


def draw_rewards(axes, report):
    for key, label in RUNS.items():
        if key not in report:
            continue
        steps = report[key]
        axes.plot([s["step"] for s in steps], [s["held_out_reward"] for s in steps], label=label)
    axes.axhline(GOAL, color="gray", linewidth=0.5, linestyle="--", label=f"goal: {GOAL}")
    axes.set(xlabel="update", ylabel="reward on held-out prompts", ylim=(0, 1.02),
             title="Sampled by the FP8 engine")
    axes.legend(loc="center right")


def draw_syncs(axes, steps, summary, what):
    """What each sync of a run took, in milliseconds, one part above the other."""
    x, bottom = [s["step"] for s in steps], [0.0] * len(steps)
    columns = {"publish": [s["publish_ms"] for s in steps]}
    columns.update({stage: [s["stage_ms"].get(stage, 0.0) for s in steps] for stage in STAGES})
    known = [sum(column[i] for column in columns.values()) for i in range(len(steps))]
    columns["ranks and calls"] = [max(0.0, s["publish_ms"] + s["total_ms"] - k) for s, k in zip(steps, known)]
    for label, heights in columns.items():
        axes.bar(x, heights, bottom=bottom, width=1.0, label=label)
        bottom = [b + h for b, h in zip(bottom, heights)]
    axes.set(xlabel="update", ylabel="ms", title=f"One sync of {what} ({summary['channel']}, {summary['bytes']:,} bytes)")
    axes.set_ylim(0, 1.4 * max(bottom))  # room for the legend
    axes.legend(fontsize="x-small", ncols=3, loc="upper center")


def draw(report):
    """The rewards, and beside them what syncs take: of all weights and, with --lora, of the adapter, by one scale."""
    syncs = [("history", "sync", "all weights"), ("history_with_adapter", "adapter_sync", "the adapter")]
    syncs = [(report[history], report[summary], what) for history, summary, what in syncs if history in report]
    figure = plt.figure(figsize=(5.5 * (1 + len(syncs)), 4.2), layout="constrained")
    rewards, *others = figure.subplots(1, 1 + len(syncs))
    draw_rewards(rewards, report)
    for axes, (steps, summary, what) in zip(others, syncs):
        draw_syncs(axes, steps, summary, what)
    for axes in others:
        axes.set_ylim(0, max(each.get_ylim()[1] for each in others))
    return figure


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "out/rl_loop")
    draw(json.loads((folder / "report.json").read_text())).savefig(folder / "rl_loop.png", dpi=130)
    print(f"picture: {folder / 'rl_loop.png'}")


if __name__ == "__main__":
    main()
