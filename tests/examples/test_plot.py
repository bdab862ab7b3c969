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
