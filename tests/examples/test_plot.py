"""The picture of rl_loop says what each of its lines is."""

import importlib.util
import pathlib

import pytest

PLOT = pathlib.Path(__file__).parents[2] / "examples" / "rl_loop" / "plot.py"


@pytest.fixture
def plot():
    specification = importlib.util.spec_from_file_location("plot", PLOT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_line_of_the_rewards_is_named_in_the_legend(plot):
    steps = [{"step": step, "held_out_reward": step / 3} for step in range(4)]
    figure, axes = plot.plt.subplots()
    plot.draw_rewards(axes, {"history": steps, "history_without_sync": steps[:2]})
    named = {text.get_text() for text in axes.get_legend().get_texts()}
    assert {line.get_label() for line in axes.get_lines()} == named
    [goal] = [line for line in axes.get_lines() if set(line.get_ydata()) == {0.9}]
    assert goal.get_label() == "goal: 0.9"
    plot.plt.close(figure)


def test_syncs_of_all_weights_and_of_an_adapter_stand_side_by_side_by_one_scale(plot):
    report = {}
    for run, summary, took in (("history", "sync", 4.0), ("history_with_adapter", "adapter_sync", 1.0)):
        report[run] = [{"step": step, "held_out_reward": 0.5, "publish_ms": 1.0, "total_ms": took,
                        "stage_ms": {"receive": took / 2}} for step in range(3)]
        report[summary] = {"channel": "shm", "bytes": int(1000 * took)}
    report["history_without_sync"] = report["history"]
    figure = plot.draw(report)
    rewards, weights, adapter = figure.axes
    assert len(rewards.get_lines()) == 4  # three runs and the goal
    assert "all weights" in weights.get_title() and "4,000 bytes" in weights.get_title()
    assert "the adapter" in adapter.get_title() and "1,000 bytes" in adapter.get_title()
    assert weights.get_ylim() == adapter.get_ylim()
    tops = [max(bar.get_y() + bar.get_height() for bar in axes.patches) for axes in (weights, adapter)]
    assert tops == [5.0, 2.0]
    plot.plt.close(figure)
