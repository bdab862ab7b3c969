"""Versions that are signed, and engines that take no others (docs/security.md)."""

import hashlib
import json
import struct
import subprocess

import pytest

import adapters
from adapter_setting import AdapterSetting
from zmtp import Dealer

BLOCK = 64 << 10


@pytest.fixture
def signing(program, tmp_path):
    """signing("trainer") -> the secret file of a key; its public half is beside it."""

    def make(name):
        program.run("keygen", "--sign", tmp_path / name)
        return tmp_path / name

    return make


@pytest.fixture
def trust(tmp_path):
    """trust(key, ...) -> a list of their public halves."""

    def make(*keys):
        path = tmp_path / ("trusted-" + "-".join(key.name for key in keys))
        path.write_text("# who may sign\n" + "".join(key.with_name(key.name + ".public").read_text() for key in keys))
        path.chmod(0o644)
        return path

    return make


@pytest.fixture
def serve(start, checkpoint):
    return lambda *arguments, **options: start("serve", "--model", checkpoint("llama", "a"), "--chunk-bytes", 20_000,
                                               *arguments, **options)


@pytest.fixture
def publish(start, checkpoint):
    return lambda *arguments, **options: start("publish", "--model", checkpoint("llama", "b"), *arguments, **options)


def refused(program, engine, *source):
    """The error of a reload, after which the engine serves what it served before."""
    before = program.status(engine)["version"]
    error = program.reload(engine, *source, status=1)["error"]
    assert program.status(engine)["version"] == before and program.generate(engine, [1, 2, 3])["tokens"]
    return error


def refused_for_want_of_a_signature(program, engine, *source):
    error = refused(program, engine, *source)
    assert error["code"] == "permission_denied", error
    return error["message"]


def test_keygen_makes_a_signing_key_that_nobody_else_reads_and_never_overwrites_one(program, tmp_path, signing, checkpoint):
    key = signing("trainer")
    assert key.stat().st_mode & 0o777 == 0o600
    kind, digits = (tmp_path / "trainer.public").read_text().split()
    assert kind == "layercast-signing-1" and len(bytes.fromhex(digits)) == 32
    assert "never overwritten" in program.refused("keygen", "--sign", key)["message"]
    key.chmod(0o640)
    assert "expected mode 0600" in program.refused("publish", "--model", checkpoint("llama", "b"), "--sign", key)["message"]


@pytest.mark.parametrize("arguments", [("--channel", "shm"), ("--channel", "zmq", "--mode", "stream")])
def test_an_engine_takes_what_is_signed_by_a_key_that_it_trusts(arguments, program, serve, publish, signing, trust, checkpoint,
                                                                assert_serves):
    old, new = signing("old"), signing("new")
    engine = serve("--tp", 2, "--trust", trust(old, new))
    for key in (old, new):
        publisher = publish("--sign", key, *arguments)
        program.reload(engine, "--publisher", publisher.endpoint)
        assert program.status(engine)["version"] == publisher.version
    assert_serves(engine, checkpoint("llama", "b"), "none")


@pytest.mark.parametrize("commit", ["staged", "in_place"])
def test_what_nobody_has_signed_or_a_stranger_is_refused_before_a_byte_is_written(commit, program, serve, publish, signing, trust):
    trainer, stranger = signing("trainer"), signing("stranger")
    engine = serve("--trust", trust(trainer), "--commit", commit)
    unsigned, strange = publish(), publish("--sign", stranger)
    message = refused_for_want_of_a_signature(program, engine, "--publisher", unsigned.endpoint)
    assert unsigned.endpoint in message and "is not signed" in message and "(--sign)" in message
    message = refused_for_want_of_a_signature(program, engine, "--publisher", strange.endpoint)
    key = stranger.with_name("stranger.public").read_text().split()[1]
    assert f"signed by key {key[:8]}..., expected one of" in message
    program.reload(engine, "--publisher", publish("--sign", trainer).endpoint)


def test_paths_and_other_engines_which_nobody_signs_are_refused_unless_they_are_allowed(program, start, serve, signing, trust, checkpoint,
                                                                                           tmp_path):
    key = signing("trainer")
    stored = start("publish", "--model", checkpoint("llama", "b"), "--lineage", "run", "--store", tmp_path / "store", "--sign", key)
    program.run("versions", "wait", "--publisher", stored.endpoint, "--version", "run@0")
    lender = serve("--trust", trust(key), "--allow-unsigned")
    program.reload(lender, "--model", checkpoint("llama", "b"))
    engine = serve("--trust", trust(key))
    for source in (("--model", checkpoint("llama", "b")), (), ("--from-engine", lender.endpoint), ("--store", tmp_path / "store")):
        message = refused_for_want_of_a_signature(program, engine, *source)
        assert "nobody signs" in message and "--allow-unsigned" in message, source
    allowed = serve("--trust", trust(key), "--allow-unsigned")
    program.reload(allowed, "--from-engine", lender.endpoint)
    program.reload(allowed, "--store", tmp_path / "store")


def test_each_publisher_of_a_sharded_trainer_signs_its_part(program, start, serve, signing, trust, checkpoint, assert_serves):
    keys = [signing(f"rank{rank}") for rank in range(2)]

    def part(rank, *sign):
        return start("publish", "--model", checkpoint("llama", "b"), "--part", f"{rank}/2", "--lineage", "run", "--step", 7,
                     "--run", "job", *sign)

    engine = serve("--trust", trust(*keys))
    whole = [part(rank, "--sign", keys[rank]) for rank in range(2)]
    plain = part(1)
    message = refused_for_want_of_a_signature(program, engine, "--publisher", f"{whole[0].endpoint},{plain.endpoint}")
    assert plain.endpoint in message
    program.reload(engine, "--publisher", ",".join(each.endpoint for each in whole))
    assert_serves(engine, checkpoint("llama", "b"), "none")


def test_who_takes_from_a_relay_holds_it_against_what_the_publisher_signed(program, serve, publish, signing, trust, checkpoint,
                                                                           assert_serves):
    trusted = trust(key := signing("trainer"))
    publisher = publish("--sign", key, "--channel", "zmq")
    relay, later = serve("--trust", trusted, "--relay", "tcp://127.0.0.1:0"), serve("--trust", trusted)
    for engine in (relay, later):
        program.reload(engine, "--publisher", publisher.endpoint, "--channel", "zmq")
    [share] = program.status(later)["last_report"]["publishers"]
    assert share["relayed_bytes"] == share["bytes"] > 0
    assert_serves(later, checkpoint("llama", "b"), "none")


def test_adapters_are_signed_as_bases_are(program, start, signing, trust, checkpoint, checkpoint_cache):
    kept = adapters.Kept(checkpoint_cache)
    setting = AdapterSetting(program, start, kept, kept.base(checkpoint("llama", "a")))
    setting.serve("--trust", trust(key := signing("trainer")))
    for source in (("--publisher", setting.publish(0, 1).endpoint), ("--path", setting.folder(0))):
        assert setting.load_from(*source, status=1)["error"]["code"] == "permission_denied", source
        assert setting.names() == []
    setting.load_from("--publisher", setting.publish(0, 1, "--sign", key).endpoint)
    assert setting.names() == ["policy"] and setting.is_whole(0)


# ---- the bytes of FORMAT.md, without any of our code ------------------------------------------------------------------


def text(words):
    raw = words.encode()
    return struct.pack("<H", len(raw)) + raw


def frame(kind, body, session=77):
    return b"LCWF" + struct.pack("<HHQ", 3, kind, session) + body


def answer(peer, kind):
    message = peer.receive()
    assert message[:4] == b"LCWF" and struct.unpack_from("<HHQ", message, 4) == (3, kind, 77), message[:200]
    return message


def welcome_of(message):
    """(run, manifest, config) of a welcome."""
    at = 16 + 2

    def take_text():
        nonlocal at
        (size,) = struct.unpack_from("<H", message, at)
        at += 2 + size
        return message[at - size:at]

    for _ in range(5):
        take_text()  # publisher, and its host
    run = take_text()
    (channels,) = struct.unpack_from("<H", message, at + 1)
    at += 3
    for _ in range(2 * channels):
        take_text()
    (size,) = struct.unpack_from("<I", message, at)
    manifest = message[at + 4:at + 4 + size]
    at += 4 + size + 16
    (size,) = struct.unpack_from("<I", message, at)
    assert at + 4 + size == len(message)
    return run, manifest, message[at + 4:]


def tensors_of(folder):
    """(name, bytes) of what the folder's files hold."""
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        (size,) = struct.unpack_from("<Q", raw)
        for name, spec in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = (8 + size + offset for offset in spec["data_offsets"])
                yield name, raw[begin:end]


def chunk_hash(data):
    if len(data) <= BLOCK:
        return hashlib.sha256(data).digest()
    return hashlib.sha256(b"".join(hashlib.sha256(data[at:at + BLOCK]).digest() for at in range(0, len(data), BLOCK))).digest()


ASKED = text("run") + struct.pack("<BQ", 1, 42)
NONCE = bytes(range(32))


def greeted(peer):
    """(run, manifest, config) of the version that is asked for."""
    hello = struct.pack("<HH", 3, 3) + text("oracle") + struct.pack("<QII", 1, 0, 1) + 4 * text("") + ASKED
    peer.send(frame(1, hello))
    return welcome_of(answer(peer, 2))


def subscribe(peer, schedule, digest):
    peer.send(frame(28, NONCE))
    peer.send(frame(3, digest + struct.pack("<I", len(schedule)) + schedule + struct.pack("<IB", 0, 0) + text("") + bytes(8)))


def digest_of(endpoint, schedule):
    """XXH3 is not in Python; a refusal of zeros tells what it is."""
    with Dealer(endpoint) as peer:
        greeted(peer)
        subscribe(peer, schedule, bytes(16))
        digits = answer(peer, 12).rsplit(b"got ", 1)[1][:32].decode()
    return struct.pack("<QQ", int(digits[:16], 16), int(digits[16:], 16))


def test_the_signature_and_the_hashes_are_what_openssl_and_hashlib_make_of_the_same_bytes(tmp_path, publish, signing, checkpoint):
    key = signing("trainer")
    endpoint = publish("--sign", key, "--lineage", "run", "--step", 42).endpoint
    name, data = max(tensors_of(checkpoint("llama", "b")), key=lambda tensor: len(tensor[1]))
    with Dealer(endpoint) as peer:
        run, manifest, config = greeted(peer)
        # Two chunks: all of the tensor, and every other 8 bytes of its first 256.
        regions = [(0, len(data), 1, 0), (0, 8, 16, 16)]
        tensor = publisher_index(manifest, name)
        schedule = b"LCSC" + struct.pack("<III", 2, 1, 1) + b"".join(struct.pack("<IQQQQ", tensor, *region) for region in regions)
        subscribe(peer, schedule, digest_of(endpoint, schedule))
        announced = answer(peer, 5)
        signed = answer(peer, 29)[16:]
    (count,) = struct.unpack_from("<I", signed)
    hashes, signer, signature = signed[4:4 + 32 * count], signed[4 + 32 * count:-64], signed[-64:]
    assert hashes == chunk_hash(data) + chunk_hash(b"".join(data[at:at + 8] for at in range(0, 256, 16)))
    assert signer.hex() == key.with_name("trainer.public").read_text().split()[1]

    def sha256(raw):
        return hashlib.sha256(raw).digest()

    statement = (text("layercast-manifest-1") + NONCE + ASKED + bytes(16) + text("run") + struct.pack("<Q", 42) + sha256(manifest)
                 + sha256(struct.pack("<H", len(run)) + run + config) + sha256(schedule) + struct.pack("<II", 0, 2)
                 + sha256(hashes) + sha256(announced[:8] + bytes(8) + announced[16:]))
    assert openssl_verifies(tmp_path, signer, statement, signature)
    assert not openssl_verifies(tmp_path, signer, statement.replace(text("run"), text("pun")), signature)


def publisher_index(manifest, name):
    """The number of a tensor in a manifest of format 1."""
    assert manifest[:8] == b"LCMANIF\0" and struct.unpack_from("<I", manifest, 8) == (1,)
    at = 16
    for index in range(struct.unpack_from("<I", manifest, 12)[0]):
        (size,) = struct.unpack_from("<H", manifest, at)
        if manifest[at + 2:at + 2 + size] == name.encode():
            return index
        at += 2 + size + 2 + 8 * manifest[at + 2 + size + 1]
    raise AssertionError(f"no {name}")


def openssl_verifies(folder, key, statement, signature):
    (folder / "key.der").write_bytes(bytes.fromhex("302a300506032b6570032100") + key)
    (folder / "statement").write_bytes(statement)
    (folder / "signature").write_bytes(signature)
    done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", "key.der", "-rawin",
                           "-in", "statement", "-sigfile", "signature"], cwd=folder, capture_output=True, text=True)
    return done.returncode == 0 and "Verified Successfully" in done.stdout
