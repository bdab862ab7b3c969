"""What the integrations share, without a trainer."""

import subprocess
import sys

import layercast
import psutil
import pytest
from layercast.integrations.engines import Engines, slowest, version_of
from layercast.integrations.scoring import score
from layercast.integrations.served import ServedEngine


def sequence(finish, *steps):
    spans = [(at, at + 1, layercast.Version("run", step)) for at, step in enumerate(steps)]
    return layercast.Sequence([7] * len(steps), [-1.0] * len(steps), finish, spans)


def test_integrations_are_imported_by_name_and_their_trainers_are_not():
    program = """if True:
        import layercast, sys
        from layercast.trl import Transfer
        import layercast.ray
        assert layercast.trl.Transfer is Transfer and layercast.ray.run
        assert not {"trl", "ray", "torch", "numpy", "accelerate"} & set(sys.modules)
        try:
            layercast.verlx
        except AttributeError as error:
            print(error)
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.strip() == "module 'layercast' has no attribute 'verlx'", ran.stderr


def test_a_served_engine_ends_with_its_process_however_that_ends(folder):
    program = "import sys; from layercast.integrations.served import ServedEngine as Engine; engine = Engine(sys.argv[1])"
    program += "; print(engine.process.pid, flush=True); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    served = psutil.Process(int(parent.stdout.readline()))
    family = [served, *served.children(recursive=True)]
    assert len(family) == 2
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


@pytest.mark.parametrize("model, options, message", [("none", (), "none"), ("policy", ("--tp", "x"), "--tp: Value x")])
def test_a_served_engine_that_does_not_start_says_why(folder, model, options, message):
    with pytest.raises(layercast.Error, match=message):
        ServedEngine(str(folder.parent / model), options)


def test_an_answer_in_which_a_commit_fell_counts_as_of_the_older_version():
    assert version_of(sequence("stop", 4, 4, 5)) == 4


def test_of_several_engines_the_slowest_and_the_oldest_count():
    costs = [{"layercast/version": 3.0, "layercast/reload_s": 0.5, "layercast/bytes": 10.0}, {},
             {"layercast/version": 2.0, "layercast/reload_s": 0.2, "layercast/bytes": 5.0}]
    assert slowest(costs) == {"layercast/version": 2.0, "layercast/reload_s": 0.5, "layercast/bytes": 15.0}


def test_an_engine_that_aborts_sequences_is_named(monkeypatch):
    aborted = [sequence("stop", 1), sequence("aborted")]
    monkeypatch.setattr(layercast.Controller, "generate", lambda self, prompts, **options: aborted)
    with Engines("tcp://127.0.0.1:9") as engines:
        with pytest.raises(layercast.FailedPrecondition, match="tcp://127.0.0.1:9: expected pause mode wait or keep"):
            engines.generate([[1], [2]], seed=0)


def test_rewards_are_summed_and_an_answer_without_one_has_no_advantage():
    def one(completions, ids_of_row, **columns):
        return [1.0, None, 0.0]

    def two(completion_ids, **columns):
        return [0.5, None, 0.5]

    row = {"prompt": [{"role": "user", "content": "?"}], "ids_of_row": 7}
    scored = score([one, two], row, ["a", "b", "c"], [[1], [2], [3]])
    assert [answer.completion for answer in scored] == [[{"role": "assistant", "content": text}] for text in "abc"]
    assert [answer.advantage for answer in scored] == pytest.approx([1.0, 0.0, -1.0], abs=1e-6)
    assert scored[0].metrics == {"reward": 1.5, "reward_std": 0.5, "rewards/one": 1.0, "rewards/two": 0.5}
    assert scored[1].reward != scored[1].reward  # NaN
