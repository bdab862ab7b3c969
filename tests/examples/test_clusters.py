"""The files of examples/clusters, run as far as one machine can: each starts a trainer and engines, and what the trainer
published is what they answer from. systemd's and Kubernetes' are read, and what they would start is started as they say;
SLURM's is handed to a real SLURM of three nodes, where that is installed (`scripts/nightly clusters`)."""

import contextlib
import os
import pathlib
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import threading

import program as layercast_program
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "examples" / "clusters"
MULTIPLY, ADD = (ROOT / "examples" / "checkpoint_flip" / name for name in ("multiply", "add"))
ANSWERS = ["[7, 12] of policy@1", "[1, 2, 12] of policy@2"]  # 3 + 4 and 3 * 4, to "3 4 = "
SLURM = [shutil.which(name) for name in ("slurmctld", "slurmd", "munged", "sbatch")]


@pytest.fixture
def program(tmp_path):
    return layercast_program.Program(os.environ["LAYERCAST_PROGRAM"], tmp_path)


def environment(program, **more):
    """That of a host on which Layercast is installed."""
    return {**os.environ, "PATH": f"{program.path.parent}:{os.environ['PATH']}", **more}


def free_ports(count):
    """The first of so many in a row."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                for port in range(first + 1, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                return first


def assert_all_answered(output, engines):
    answered = [line.partition(": ") for line in output.splitlines() if line.startswith("tcp://")]
    assert [answer for _, _, answer in answered] == [answer for answer in ANSWERS for _ in range(engines)], output
    assert len({engine for engine, _, _ in answered}) == engines


class Processes:
    """Started processes that are killed at the end, and what they wrote."""

    def __init__(self, folder):
        self._folder = folder
        self._running = []

    def start(self, command, env):
        log = self._folder / f"log-{len(self._running)}"
        with open(log, "w") as to:
            self._running.append(subprocess.Popen(command, env=env, stdout=to, stderr=to, start_new_session=True))
        return self._running[-1]

    def log(self):
        return "".join(path.read_text() for path in sorted(self._folder.glob("log-*")))

    def end(self):
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path):
    processes = Processes(tmp_path)
    yield processes
    processes.end()


def keep_running(processes, command, env, over):
    """As what keeps services up does."""
    def again():
        while not over.is_set():
            processes.start(command, env).wait()
            over.wait(0.2)
    thread = threading.Thread(target=again)
    thread.start()
    return thread


class Unit:
    """A systemd service file, as far as it is used here."""

    def __init__(self, path):
        self._lines = [line.split("=", 1) for line in path.read_text().splitlines() if "=" in line and line[0] != "#"]

    def all(self, key):
        return [value for name, value in self._lines if name == key]

    def command(self, variables):
        """${NAME} is one argument, $NAME as many as it has words."""
        words = []
        for word in self.all("ExecStart")[0].split():
            if word.startswith("${"):
                words.append(variables[word[2:-1]])
            else:
                words += shlex.split(variables[word[1:]]) if word.startswith("$") else [word]
        return words


def test_systemds_unit_starts_an_engine_that_takes_what_is_published(program, processes, tmp_path):
    unit = Unit(FILES / "layercast-engine@.service")
    first = free_ports(3)
    publisher, engine, metrics = range(first, first + 3)
    variables = {"MODEL": str(MULTIPLY), "PUBLISHER": f"tcp://127.0.0.1:{publisher}", "BIND": f"tcp://127.0.0.1:{engine}",
                 "METRICS": f"127.0.0.1:{metrics}", "OPTIONS": "--tp 2 --quantization fp8_per_channel"}
    command = unit.command(variables)
    assert command[0] == "/usr/bin/layercast" and unit.all("Restart") == ["always"]
    keys = tmp_path / "keys"
    program.run("keygen", str(keys))
    env = environment(program, LAYERCAST_KEYS=str(keys), LAYERCAST_PUBLISHER=variables["PUBLISHER"],
                      LAYERCAST_ENGINES=variables["BIND"])
    over = threading.Event()
    kept = keep_running(processes, [program.path, *command[1:]], env, over)
    try:
        trained = subprocess.run([sys.executable, FILES / "train.py", ADD, MULTIPLY], env=env, capture_output=True, text=True,
                                 timeout=200)
        assert trained.returncode == 0, trained.stderr + processes.log()
        assert_all_answered(trained.stdout, engines=1)
    finally:
        over.set()
        processes.end()
        kept.join()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no cluster tool: systemd-analyze")
def test_systemd_understands_the_unit(tmp_path):
    text = (FILES / "layercast-engine@.service").read_text().replace("/usr/bin/layercast", "/bin/true")
    (tmp_path / "layercast-engine@.service").write_text(text)
    checked = subprocess.run(["systemd-analyze", "verify", tmp_path / "layercast-engine@.service"], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


class Pod:
    """What Kubernetes would start for one pod, here: its address, its volumes in a folder, its names in /etc/hosts."""

    def __init__(self, spec, address, folder, hosts, program):
        self._spec, self._folder, self._hosts, self._program = spec, folder, hosts, program
        for name in ("handed", "run/layercast"):
            (folder / name).mkdir(parents=True)
        self._variables = {"POD_IP": address}

    def _text(self, text):
        for at, here in (("/handed", self._folder / "handed"), ("/run/layercast", self._folder / "run/layercast"),
                         ("/models/policy", MULTIPLY)):
            text = text.replace(at, str(here))
        return text

    def _expanded(self, text):
        for name, value in self._variables.items():
            text = text.replace(f"$({name})", value)
        return self._text(text)

    def hand(self, secret):
        handed = self._folder / "handed" / "secret"
        handed.write_bytes(secret.read_bytes())
        handed.chmod(next(volume for volume in self._spec["volumes"] if "secret" in volume)["secret"]["defaultMode"])

    def prepare(self):
        for container in self._spec["initContainers"]:
            subprocess.run([self._text(word) for word in container["command"]], check=True)

    def environment(self):
        [container] = self._spec["containers"]
        for variable in container["env"]:
            if "value" in variable:
                self._variables[variable["name"]] = self._expanded(variable["value"])
        return environment(self._program, **self._variables)

    def _command(self, words):
        """Where names of services are known."""
        return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', self._hosts, *words]

    def main(self, command=None):
        [container] = self._spec["containers"]
        words = command or container["command"] + container.get("args", [])
        return self._command([self._expanded(str(word)) for word in words])

    def probe(self):
        [container] = self._spec["containers"]
        return self._command([self._text(word) for word in container["readinessProbe"]["exec"]["command"]])


def may_mount():
    """Whether this user may lay names over /etc/hosts, for its own processes."""
    return subprocess.run(["unshare", "--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"], capture_output=True).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="no names of services here: this user may not mount")
def test_kubernetes_objects_start_a_trainer_and_engines_that_find_each_other(program, processes, tmp_path):
    objects = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())}
    trainer = objects["Job", "trainer"]["spec"]["template"]
    engines = objects["StatefulSet", "engine"]["spec"]
    assert engines["serviceName"] == "engines" and ("Service", "engines") in objects
    for service, template in (("trainer", trainer), ("engines", engines["template"])):
        assert objects["Service", service]["spec"]["selector"] == template["metadata"]["labels"]
    secret = tmp_path / "secret"
    program.run("keygen", "--secret", str(secret))
    hosts = tmp_path / "hosts"
    names = ["trainer", *(f"engine-{i}.engines" for i in range(engines["replicas"]))]
    addresses = [f"127.77.0.{i + 1}" for i in range(len(names))]
    hosts.write_text("".join(f"{address} {name}\n" for address, name in zip(addresses, names, strict=True)))
    specs = [trainer["spec"], *[engines["template"]["spec"]] * engines["replicas"]]
    pods = [Pod(spec, address, tmp_path / name, hosts, program)
            for spec, address, name in zip(specs, addresses, names, strict=True)]
    for pod in pods:
        pod.hand(secret)
        pod.prepare()
    over = threading.Event()
    kept = [keep_running(processes, pod.main(), pod.environment(), over) for pod in pods[1:]]
    try:
        command = [sys.executable, str(FILES / "train.py"), str(ADD), str(MULTIPLY)]
        trained = subprocess.run(pods[0].main(command), env=pods[0].environment(), capture_output=True, text=True, timeout=200)
        assert trained.returncode == 0, trained.stderr + processes.log()
        assert_all_answered(trained.stdout, engines=2)
        for pod in pods[1:]:
            assert subprocess.run(pod.probe(), env=pod.environment(), capture_output=True).returncode == 0
    finally:
        over.set()
        processes.end()
        for thread in kept:
            thread.join()


def test_kubernetes_knows_the_objects():
    validate = pytest.importorskip("kubernetes_validate", reason="no cluster tool: kubernetes-validate (scripts/nightly clusters)")
    for one in yaml.safe_load_all((FILES / "kubernetes.yaml").read_text()):
        validate.validate(one, "1.33", strict=True)


SLURM_CONF = """ClusterName=here
SlurmctldHost=localhost
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={port}
MpiDefault=none
SwitchType=switch/none
NodeName=n[0-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port={first}-{last} CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.fixture
def slurm(tmp_path):
    """Three nodes on this host."""
    folder = tmp_path / "slurm"
    for name in ("munge", "state"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(stat.S_IRUSR)
    folder.chmod(0o755)
    first = free_ports(4)
    conf = folder / "slurm.conf"
    conf.write_text(SLURM_CONF.format(folder=folder, user="root", port=first, first=first + 1, last=first + 3))
    env = {**os.environ, "SLURM_CONF": str(conf)}
    munge = folder / "munge"
    daemons = [subprocess.Popen(
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
         f"--seed-file={munge}/seed"], stdout=subprocess.DEVNULL, stderr=open(munge / "log", "w"))]
    for command in (["slurmctld", "-D", "-c"], *(["slurmd", "-D", "-c", "-N", f"n{i}"] for i in range(3))):
        daemons.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    yield env
    subprocess.run(["scancel", "--user=root"], env=env, capture_output=True)
    for daemon in reversed(daemons):
        daemon.terminate()
        daemon.wait()


@pytest.mark.skipif(None in SLURM, reason="no cluster tool: SLURM (scripts/nightly clusters)")
def test_slurm_runs_a_job_of_a_trainer_and_engines(program, slurm, tmp_path):
    env = {**environment(program, MODEL=str(MULTIPLY), SERVE="--quantization fp8_per_channel"), "SLURM_CONF": slurm["SLURM_CONF"]}
    output = tmp_path / "output"
    job = ["sbatch", "--wait", "--nodes=3", f"--output={output}", FILES / "slurm.sbatch", sys.executable, FILES / "train.py", ADD,
           MULTIPLY]
    done = subprocess.run(job, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    logs = "".join(path.read_text() for path in tmp_path.glob("layercast-*/*.log"))
    assert done.returncode == 0, done.stderr + output.read_text() + logs
    assert_all_answered(output.read_text(), engines=2)
    assert not list(tmp_path.glob("layercast-*/secret"))
