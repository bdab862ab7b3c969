"""examples/ray_rl.py on this machine: actors die, and engines come and go, while the policy learns."""

import actors
import pytest
import ray
import ray_rl

UPDATES = 30


class Events:
    """What happens while engines sample, or workers learn: ``(what, step) -> a call``, each once."""

    def __init__(self, calls):
        self.calls, self.happened = calls, []

    def __call__(self, what, step):
        call = self.calls.pop((what, step), None)
        if call is not None:
            self.happened.append((what, step))
            call()


@pytest.fixture
def answers(monkeypatch):
    """Every answer of the run, as (the step that was asked for, the steps that its tokens came from)."""
    seen, sample = [], ray_rl.sample

    def noted(registry, prompts, seed, step, during):
        found = sample(registry, prompts, seed, step, during)
        seen.extend((step, [version.step for _, _, version in answer.spans]) for answer in found)
        return found

    monkeypatch.setattr(ray_rl, "sample", noted)
    return seen


def test_a_policy_learns_as_if_nobody_had_died_and_no_engine_had_come_or_gone(tmp_path, answers):
    (tmp_path / "quiet").mkdir()
    quiet = ray_rl.run("quiet", UPDATES, 2, str(tmp_path / "quiet"))
    assert quiet[0]["reward"] < 0.3 and quiet[-1]["reward"] > 0.8

    (tmp_path / "eventful").mkdir()
    folder, pids = str(tmp_path / "eventful"), {}

    def note(*names):  # before: an actor that is busy does not say who it is
        pids.update({name: actors.pid_of(ray.get_actor(f"eventful-{name}")) for name in names})

    def add():
        added.append(ray_rl.start_engine("eventful", folder, 2))
        note("engine-2")

    added = []
    events = Events({
        ("rollouts", 0): lambda: note("engine-0", "trainer-0", "trainer-1"),
        ("rollouts", 5): lambda: actors.kill_process(pids["engine-0"]),
        ("learning", 9): lambda: actors.kill_process(pids["trainer-1"]),
        ("rollouts", 13): add,
        ("learning", 17): lambda: ray.get(ray.get_actor("eventful-engine-1").leave.remote()),
        ("learning", 20): lambda: actors.kill_process(pids["engine-2"]),
        ("rollouts", 22): lambda: actors.kill_process(pids["trainer-0"]),
    })
    history = ray_rl.run("eventful", UPDATES, 2, folder, events)
    assert not events.calls
    steps = [entry["step"] for entry in history]
    assert steps == sorted(set(steps)) and len(steps) >= UPDATES - 1
    engines = {entry["step"]: entry["layercast/engines"] for entry in history[:-1]}
    assert engines[4] == 2 and engines[16] == 3 and engines[19] == 2
    assert answers and all(came_from == [asked] for asked, came_from in answers)
    rewards = {entry["step"]: entry["reward"] for entry in quiet}
    assert {entry["step"]: entry["reward"] for entry in history} == {step: rewards[step] for step in steps}
