"""Timelines of real syncs: what the file of `reload --trace` and a collector of OpenTelemetry's are told is what the report
says, by one clock."""

import itertools

import pytest

from collector import Collector, root_of
from program import Program, wait_until
from timeline import Timeline

TP = 2
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def serve(start, checkpoint):
    def serve(*arguments, **how):
        return start("serve", "--model", checkpoint("llama", "a"), "--tp", TP, "--quantization", "fp8_per_channel",
                     "--chunk-bytes", 16_384, *arguments, **how)

    return serve


@pytest.fixture
def publish(start, checkpoint):
    def publish(*arguments, **how):
        return start("publish", "--model", checkpoint("llama", "b"), *arguments, **how)

    return publish


def assert_says_what_the_report_says(timeline, engine, report):
    ranks = [f"rank {rank} of engine {engine.endpoint}" for rank in range(TP)]
    for stage, took in report["stage_ms"].items():
        assert max(timeline.busy_ms(rank, stage) for rank in ranks) == pytest.approx(took, abs=1e-3), stage
        assert took == 0 or any(timeline.of(rank, stage, "stage") for rank in ranks), stage
    layers = sum(span.count for rank in ranks for span in timeline.of(rank, "layers", "layers"))
    assert layers == report["layers"]
    whole = timeline.one(f"engine {engine.endpoint}", "reload", "call")
    assert report["total_ms"] <= (whole.end - whole.begin) / 1000


def assert_nests(timeline, engine, publisher):
    """What a rank did is within its calls, these within the engine's, and all of it within the controller's."""
    of_engine = f"engine {engine.endpoint}"
    whole = timeline.one("controller", "reload", "call")
    (asked,) = timeline.of("controller", of_engine, "call")[-1:]
    reload = timeline.one(of_engine, "reload", "call")
    assert reload in whole and asked in whole
    calls = {name: timeline.one(of_engine, name, "call") for name in ("stage", "pause", "commit", "verify")}
    assert all(call in reload for call in calls.values())
    assert calls["commit"] in calls["pause"]
    waited = timeline.one(of_engine, "sequences", "wait")
    in_order = [calls["stage"], waited, calls["commit"], calls["verify"]]
    assert all(one.before(next_one) for one, next_one in itertools.pairwise(in_order))
    for rank in range(TP):
        of_rank = f"rank {rank} of {of_engine}"
        own = {name: timeline.one(of_rank, name, "call") for name in ("stage", "commit", "read_back")}
        assert own["stage"] in calls["stage"]
        assert own["commit"] in calls["commit"] and own["read_back"] in calls["commit"]  # little is read back at once
        assert own["commit"].before(own["read_back"])
        stages = timeline.of(of_rank, kind="stage")
        assert stages and all(any(span in call for call in own.values()) for span in stages)
        for kind in ("chunks", "layers"):
            spans = timeline.of(of_rank, kind, kind)
            assert spans and all(span in own["stage"] for span in spans)
    served = timeline.of(f"publisher {publisher.endpoint}")
    assert served and all(span in whole for span in served)
    assert {span.lane for span in served} >= {f"rank {rank}: {what}" for rank in range(TP) for what in ("session", "digests")}
    assert all(span.begin >= reload.begin for span in served)


@pytest.mark.parametrize("channel", ["shm", "zmq"])
def test_a_timeline_says_what_the_report_says_of_every_rank_and_stage(program, serve, publish, tmp_path, channel):
    engine, publisher = serve(), publish()
    file = tmp_path / "sync.json"
    done = program.reload(engine, "--publisher", publisher.endpoint, "--channel", channel, "--trace", file,
                          "--traceparent", TRACEPARENT)
    timeline = Timeline(file)
    assert_says_what_the_report_says(timeline, engine, done["report"])
    assert_nests(timeline, engine, publisher)
    assert timeline.facts["trace_id"] == TRACE and "error" not in timeline.facts
    facts = timeline.facts_of[f"engine {engine.endpoint}"]
    assert facts["channel"] == channel and facts["version"].startswith(done["version"]["lineage"])
    chunks = [span for span in timeline.of(f"rank 0 of engine {engine.endpoint}", "chunks")]
    assert len(chunks) > 5 and chunks[0].name == "chunk 0"

    # The next reload has none, and nothing of it is left: the one after that tells of itself alone.
    program.reload(engine, "--publisher", publisher.endpoint)
    done = program.reload(engine, "--trace", file)
    timeline = Timeline(file)
    assert_says_what_the_report_says(timeline, engine, done["report"])
    assert not any(name.startswith("publisher") for name in timeline.processes.values())


def test_a_reload_that_fails_has_a_timeline_too_which_says_why(program, serve, publish, tmp_path):
    engine, publisher = serve(failpoints="rank1:quantize=throw@7"), publish()
    file = tmp_path / "sync.json"
    done = program.reload(engine, "--publisher", publisher.endpoint, "--trace", file, status=1)
    message = done["error"]["message"]
    timeline = Timeline(file)
    assert message in timeline.facts["error"] and message in timeline.facts_of["controller"]["error"]
    assert "quantize" in timeline.facts_of[f"engine {engine.endpoint}"]["error"]
    for rank in range(TP):
        assert timeline.one(f"rank {rank} of engine {engine.endpoint}", "stage", "call")
    assert not timeline.of(f"engine {engine.endpoint}", "commit")
    gone = program.run("reload", "--engine", "tcp://127.0.0.1:1", "--trace", file, "--timeout", 1, status=1)
    timeline = Timeline(file)
    assert list(timeline.processes.values()) == ["controller"]
    assert timeline.facts["error"].endswith(gone.json["engines"][0]["error"]["message"])


def test_a_file_that_cannot_be_written_is_refused_before_the_reload_begins(program, serve, tmp_path):
    engine = serve()
    before = program.status(engine)
    refused = program.refused("reload", "--engine", engine.endpoint, "--trace", tmp_path / "nowhere" / "sync.json")
    assert refused["code"] == "invalid_argument"
    assert "nowhere/sync.json': No such file or directory" in refused["message"]
    assert program.status(engine)["last_report"] == before["last_report"]
    for wrong in ("--traceparent", "nonsense"), ("--otlp-endpoint", "localhost:4318"):
        assert wrong[1] in program.run("reload", "--engine", engine.endpoint, *wrong, status=None).errors
    assert program.status(engine)["last_report"] == before["last_report"]


def test_engines_whose_clocks_are_others_are_on_the_controllers_clock(program, serve, publish, checkpoint, tmp_path):
    """As on another host: the monotonic clock of one engine is a day ahead."""
    elsewhere = Program(program.path, tmp_path, ("unshare", "--time", "--monotonic", "86400", "--boottime", "86400", "--fork",
                                                 "--kill-child"))
    publisher, near = publish(), serve()
    far = elsewhere.daemon("serve", "--model", checkpoint("llama", "a"), "--tp", TP, "--quantization", "fp8_per_channel")
    try:
        file = tmp_path / "sync.json"
        program.run("reload", "--engine", f"{near.endpoint},{far.endpoint}", "--publisher", publisher.endpoint, "--channel",
                    "zmq", "--all-or-none", "--trace", file)
    finally:
        far.kill()
    timeline = Timeline(file)
    whole = timeline.one("controller", "reload", "call")
    facts = {engine: timeline.facts_of[f"engine {engine.endpoint}"] for engine in (near, far)}
    assert facts[near]["clock_offset_us"] == 0 and facts[near]["clock_round_trip_us"] == 0
    assert facts[far]["clock_offset_us"] == pytest.approx(86_400e6, rel=1e-3)
    off = facts[far]["clock_round_trip_us"]
    for engine in near, far:
        reload = timeline.one(f"engine {engine.endpoint}", "reload", "call")
        assert whole.begin - off <= reload.begin and reload.end <= whole.end + off
        assert timeline.of(f"engine {engine.endpoint}", "other engines", "wait")
        assert timeline.of(f"rank 1 of engine {engine.endpoint}", "quantize", "stage")
    # The publisher was asked by both, each of which says by how much its clock is another's.
    served = [span for span in timeline.spans if span.process == f"publisher {publisher.endpoint}"]
    assert len({name for name in timeline.processes.values()}) < len(timeline.processes)  # it has a row for each
    assert served and all(whole.begin - 2 * off <= span.begin and span.end <= whole.end + 2 * off for span in served)


def test_a_collector_gets_one_trace_of_all_processes_from_whoever_reloads(program, serve, publish, monkeypatch):
    with Collector() as ours, Collector() as theirs:
        engine = serve("--otlp-endpoint", theirs.url)
        publisher = publish("--otlp-endpoint", theirs.url)
        wait_until(lambda: theirs.services() == ["layercast-engine", *["layercast-rank"] * TP], 20, "the first load was not sent")
        monkeypatch.setenv("TRACEPARENT", TRACEPARENT)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20secret")
        done = program.run("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint, "--otlp-endpoint", ours.url)
        assert ours.headers[0]["api-key"] == "a secret" and "a secret" not in done.errors
        assert ours.services() == ["layercast-controller", "layercast-engine", "layercast-publisher", *["layercast-rank"] * TP]
        engine.stop(), publisher.stop()
        assert len(theirs.requests) == 1  # and not of the reload, which is sent already
    roots = {}
    for service, spans in ours.resources():
        assert {span.trace_id.hex() for span in spans} == {TRACE}
        roots.setdefault(service, root_of(spans))
        assert sum(span.name == "receive" for span in spans) > 0 or service != "layercast-rank"
    controller, of_engine = roots["layercast-controller"], roots["layercast-engine"]
    assert controller.parent_span_id.hex() == PARENT and of_engine.parent_span_id == controller.span_id
    assert roots["layercast-rank"].parent_span_id == roots["layercast-publisher"].parent_span_id == of_engine.span_id
    assert controller.start_time_unix_nano <= of_engine.start_time_unix_nano
    assert of_engine.end_time_unix_nano <= controller.end_time_unix_nano


def test_engines_and_publishers_send_their_own_spans_of_the_callers_trace(program, serve, publish):
    with Collector() as collector:
        engine = serve("--otlp-endpoint", collector.url)
        publisher = publish("--otlp-endpoint", collector.url)
        wait_until(lambda: len(collector.requests) == 1, 20, "the first load was not sent")
        program.reload(engine, "--publisher", publisher.endpoint, "--traceparent", TRACEPARENT)
        wait_until(lambda: len(collector.requests) == 3, 20, "an engine and a publisher were to send their spans")
        roots = {service: root_of(spans) for service, spans in collector.resources()}
        sent = [span for _, spans in collector.resources() for span in spans]
    assert {span.trace_id.hex() for span in sent[:1]} != {TRACE}  # the first load's is its session's
    assert roots["layercast-engine"].parent_span_id.hex() == PARENT
    assert roots["layercast-publisher"].parent_span_id == roots["layercast-engine"].span_id
    assert roots["layercast-publisher"].trace_id.hex() == roots["layercast-rank"].trace_id.hex() == TRACE


def test_a_collector_that_is_gone_or_refuses_holds_nothing_up_and_what_it_did_not_take_is_counted(program, serve, publish):
    with Collector(status=400) as refusing:
        engine, publisher = serve("--otlp-endpoint", "http://127.0.0.1:1"), publish()
        done = program.run("reload", "--engine", engine.endpoint, "--publisher", publisher.endpoint, "--otlp-endpoint", refusing.url)
        assert done.json["ok"] and refusing.tries == 1
    assert f"a trace was not sent to {refusing.url}: it answered 400 (1 so far)" in done.errors
    program.reload(engine, "--publisher", publisher.endpoint)
    engine.stop()
    assert "a trace was not sent to http://127.0.0.1:1: " in engine.errors()
    assert "(2 so far)" in engine.errors()
