"""Who may speak: real processes with keys, a publisher, an engine and those who talk to them (docs/security.md)."""

import os
import re
import signal

import pytest

from program import wait_until
from reload_setting import fired

SOON = 30
BEYOND_LOOPBACK = "tcp://0.0.0.0:0"


@pytest.fixture
def folder(checkpoint):
    return checkpoint("llama", "a")


@pytest.fixture
def server(program, tmp_path):
    """The folder of whoever listens."""
    made = tmp_path / "server"
    program.run("keygen", made)
    return made


@pytest.fixture
def client(program, tmp_path, server):
    """client(name, roles) -> (its folder, its line for the list)."""

    def make(name, roles="read"):
        made = program.run("keygen", tmp_path / name, "--server", server, "--roles", roles).json
        return tmp_path / name, made["line"]

    return make


@pytest.fixture
def publish(start, checkpoint):
    """publish("--keys", folder) -> a publisher of another version than `folder` has."""
    model = checkpoint("llama", "b")
    return lambda *arguments, **options: start("publish", "--model", model, *arguments, **options)


def set_list(server, *lines, own=True):
    """As an editor saves: a new file takes the old one's name. `own`: the server's own key stays."""
    kept = [line for line in (server / "clients").read_text().splitlines() if line.endswith(" self")] if own else []
    fresh = server / "clients.new"
    fresh.write_text("\n".join([*kept, *lines]) + "\n")
    os.replace(fresh, server / "clients")


def needs(channel, program, publish, server):
    channels = program.run("probe", "--publisher", publish("--keys", server).endpoint, "--keys", server).json["channels"]
    if not any(each["name"] == channel and each["usable"] for each in channels):
        pytest.skip(f"no {channel} here")


def says(daemon, text):
    wait_until(lambda: text in daemon.errors(), SOON, f"{daemon}\nexpected its log to have {text}")


def test_keygen_makes_folders_that_nobody_else_reads_and_never_overwrites(program, tmp_path, server, client):
    made, line = client("lou", "read,reload")
    assert sorted(path.name for path in server.iterdir()) == ["clients", "public.key", "secret.key", "server.key", "server.public"]
    assert sorted(path.name for path in made.iterdir()) == ["public.key", "secret.key", "server.public"]
    assert re.fullmatch("[0-9a-f]{64} read,reload lou", line)
    for secret in (server / "secret.key", server / "server.key", made / "secret.key"):
        assert secret.stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in program.refused("keygen", server)["message"]
    program.run("keygen", "--secret", tmp_path / "job")
    assert "never overwritten" in program.refused("keygen", "--secret", tmp_path / "job")["message"]


def test_an_unknown_key_waits_and_gets_in_once_its_line_is_in_the_list(program, publish, server, client):
    publisher = publish("--keys", server)
    keys, line = client("lou")
    by = ("status", "--publisher", publisher.endpoint, "--keys", keys, "--timeout")
    assert f"does not know this key: {line[:8]}..." in program.refused(*by, 1)["message"]
    waiting = program.start(*by, SOON)
    says(publisher, f"{line[:8]}... is not in")
    assert waiting[1].poll() is None
    set_list(server, line)
    assert program.finish(waiting).json["versions"]


def test_whoever_has_other_keys_or_none_is_told_why_nobody_answers(program, publish, tmp_path, server):
    publisher = publish("--keys", server)
    program.run("keygen", tmp_path / "other")
    ask = ("status", "--publisher", publisher.endpoint)
    assert "proved another server key than" in program.refused(*ask, "--keys", tmp_path / "other")["message"]
    assert "wants keys, none given" in program.refused(*ask)["message"]
    plain = publish()
    message = program.refused("status", "--publisher", plain.endpoint, "--keys", server)["message"]
    assert "none at all" in message or "has no keys" in message


def test_each_request_needs_its_role(program, start, folder, server, client):
    engine = start("serve", "--model", folder, "--keys", server)
    keys, line = client("lou", "read")
    set_list(server, line)
    by = ("--engine", engine.endpoint, "--keys", keys)
    assert program.run("status", *by).json["version"]
    for role, command in (("generate", ("generate", *by, "--tokens", "1,2")),
                          ("reload", ("export", *by, "--out", server / "out"))):
        message = program.refused(*command)["message"]
        assert f"role '{role}'" in message and line[:8] in message and "server/clients" in message
    assert not (server / "out").exists()
    assert "role 'reload'" in program.run("reload", *by, status=1).errors
    set_list(server, line.replace(" read ", " generate,reload "))
    program.run("reload", *by)
    assert program.run("generate", *by, "--tokens", "1,2", "--max-new", "1").json["tokens"]
    assert "role 'read'" in program.refused("status", *by)["message"]


@pytest.mark.parametrize("channel", ["zmq", "shm", "ucx"])
def test_an_engine_takes_versions_of_a_publisher_that_admits_it(channel, program, start, folder, publish, server):
    needs(channel, program, publish, server)
    publisher = publish("--keys", server)
    engine = start("serve", "--model", folder, "--keys", server)
    program.run("reload", "--engine", engine.endpoint, "--keys", server, "--publisher", publisher.endpoint, "--channel", channel)
    served = program.run("status", "--engine", engine.endpoint, "--keys", server).json
    assert served["version"] == publisher.version
    assert served["last_report"]["channel"]["name"] == channel


def test_a_relay_admits_whom_its_list_has(program, start, folder, publish, server):
    publisher = publish("--keys", server, "--channel", "zmq")
    relay = start("serve", "--model", folder, "--keys", server, "--relay", "tcp://127.0.0.1:0")
    later = start("serve", "--model", folder, "--keys", server)
    for engine in (relay, later):
        program.run("reload", "--engine", engine.endpoint, "--keys", server, "--publisher", publisher.endpoint)
    [share] = program.run("status", "--engine", later.endpoint, "--keys", server).json["last_report"]["publishers"]
    assert share["relayed_bytes"] == share["bytes"] > 0


@pytest.mark.parametrize("channel", ["zmq", "ucx"])
def test_a_key_that_is_revoked_in_the_middle_of_a_fetch_is_cut(channel, program, start, folder, publish, server, client):
    needs(channel, program, publish, server)
    keys, line = client("lou", "read,reload")
    set_list(server, line)
    publisher = publish("--keys", server, "--channel", channel)
    engine = start("serve", "--model", folder, "--keys", server, "--chunk-bytes", 20_000, failpoints="rank0:receive.chunk=stop@2")
    by = ("--engine", engine.endpoint, "--keys", keys)
    reload = program.start("reload", *by, "--publisher", publisher.endpoint)
    wait_until(lambda: fired(engine, "receive.chunk"), SOON, f"{engine}")
    set_list(server, line, own=False)
    says(publisher, "connections are cut")
    says(publisher, "loses its session: its key is no longer admitted")
    for pid in engine.pids:
        os.kill(pid, signal.SIGCONT)
    outcome = program.finish(reload, status=1)
    assert "lost" in outcome.errors
    assert program.run("status", *by).json["version"] == engine.version
    again = program.run("reload", *by, "--publisher", publisher.endpoint, "--timeout", 2, status=1)
    assert "does not know this key" in again.errors


def test_one_secret_for_a_job_is_all_that_its_processes_need(program, start, folder, publish, tmp_path):
    job, other = tmp_path / "job", tmp_path / "other"
    for secret in (job, other):
        program.run("keygen", "--secret", secret)
    publisher = publish("--secret", job, "--bind", BEYOND_LOOPBACK)
    engine = start("serve", "--model", folder, "--secret", job, "--load-format", "remote",
                   "--publisher", publisher.endpoint.replace("0.0.0.0", "127.0.0.1"))
    by = ("--engine", engine.endpoint)
    assert program.run("status", *by, "--secret", job).json["version"] == publisher.version
    assert "another server key" in program.refused("status", *by, "--secret", other)["message"]
    os.chmod(job, 0o644)
    assert "chmod 600" in program.refused("status", *by, "--secret", job)["message"]


def test_beyond_loopback_keys_are_needed_or_insecure(program, start, folder):
    for command in (("publish", "--model", folder), ("serve", "--model", folder)):
        message = program.refused(*command, "--bind", BEYOND_LOOPBACK)["message"]
        assert "--keys" in message and "--insecure" in message
        gone = program.refused(*command, "--bind", BEYOND_LOOPBACK, "--allow-remote", status=2)["message"]
        assert "--allow-remote" in gone and "--insecure" in gone
    assert start("publish", "--model", folder, "--bind", BEYOND_LOOPBACK, "--insecure").endpoint


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_log_and_no_answer_has_a_secret_or_a_token(form, program, start, folder, publish, server, client, monkeypatch):
    monkeypatch.setenv("SPDLOG_LEVEL", "debug")
    monkeypatch.setenv("LAYERCAST_LOG_FORMAT", form)
    keys, line = client("lou", "read,reload")
    set_list(server, line)
    publisher = publish("--keys", server)
    engine = start("serve", "--model", folder, "--keys", server)
    said = []
    for channel in ("zmq", "ucx", "shm"):
        said.append(program.run("reload", "--engine", engine.endpoint, "--keys", keys, "--publisher", publisher.endpoint,
                                "--channel", channel, status=None))
    said.append(program.run("probe", "--publisher", publisher.endpoint, "--keys", keys))
    said.append(program.run("doctor", "--publisher", publisher.endpoint, "--engine", engine.endpoint, "--keys", keys))
    everything = publisher.errors() + engine.errors() + "".join(each.output + each.errors for each in said)
    for file in (server / "server.key", server / "secret.key", keys / "secret.key"):
        assert file.read_text().split()[1] not in everything, file
    # A token is the part of a channel's address behind '#'.
    assert not re.search(r"[a-z_]+://[^ ]*#[0-9a-f]{32}", everything)


def test_the_sockets_between_an_engine_and_its_ranks_are_nobody_elses(program, start, folder):
    """They are pairs of connected sockets, without a name by which a third process could reach them."""
    engine = start("serve", "--model", folder, "--tp", 2)
    listening = [line.split() for line in open("/proc/net/unix").readlines()[1:]]
    named = {row[6]: row[7] for row in listening if len(row) > 7}
    for pid in engine.all_pids():
        for link in os.scandir(f"/proc/{pid}/fd"):
            target = os.readlink(link.path)
            if target.startswith("socket:["):
                assert target[8:-1] not in named, f"{pid} has {named.get(target[8:-1])}"
