"""What a stream costs: the engine that must hold layers until they are whole, and the trainer that walks it."""


def test_a_buffer_limit_refuses_what_the_order_makes_impossible_and_names_the_layers(program, start, checkpoint,
                                                                                   assert_serves):
    old, new = checkpoint("llama", "a"), checkpoint("llama", "b")
    unbound = start("serve", "--model", old, "--tp", 2, "--quantization", "fp8_per_channel")
    ordered = start("publish", "--model", new, "--mode", "stream", "--stream-window", 1)
    shuffled = start("publish", "--model", new, "--mode", "stream", "--order", "shuffled:5")
    needed = program.reload(unbound, "--publisher", ordered.endpoint)["report"]["peak_buffered_bytes"]
    assert program.reload(unbound, "--publisher", shuffled.endpoint)["report"]["peak_buffered_bytes"] > needed

    bound = start("serve", "--model", old, "--tp", 2, "--quantization", "fp8_per_channel", "--buffer-limit", needed)
    failed = program.reload(bound, "--publisher", shuffled.endpoint, status=1)
    assert failed["error"]["code"] == "resource_exhausted"
    message = failed["error"]["message"]
    assert f"of {needed} that the buffer limit allows" in message
    assert "held by incomplete layers" in message and "model.layers." in message and "still awaited" in message
    assert failed["version"] == bound.version
    assert_serves(bound, old, "fp8_per_channel")

    done = program.reload(bound, "--publisher", ordered.endpoint)
    assert done["version"] == ordered.version and done["report"]["peak_buffered_bytes"] <= needed
    assert_serves(bound, new, "fp8_per_channel")


def test_the_report_says_what_a_version_cost_its_trainer(program, start, checkpoint):
    engine = start("serve", "--model", checkpoint("llama", "a"), "--tp", 2, "--quantization", "none")
    for step, mode in enumerate(("snapshot", "stream"), start=1):
        publisher = start("publish", "--model", checkpoint("llama", "b"), "--mode", mode, "--step", step)
        report = program.reload(engine, "--publisher", publisher.endpoint)["report"]
        [share] = report["publishers"]
        assert share["endpoint"] == publisher.endpoint
        assert share["held_up_ms"] > 0 and share["core_ms"] > 0 and share["serving_core_ms"] > 0
