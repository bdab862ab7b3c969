"""An engine's HTTP door, asked by OpenAI's own client. The oracle is the engine's `generate`: the same seed gives the same tokens."""

import concurrent.futures
import json
import os
import urllib.error
import urllib.request

import openai
import pytest

PROMPT = [3, 11, 4]
HTTP = ("--http-bind", "127.0.0.1:0")
KEY = "a-key-that-only-the-job-knows"


@pytest.fixture
def serve(start, checkpoint):
    return lambda *arguments: start("serve", "--model", checkpoint("llama", "a"), *HTTP, *arguments)


def client_of(engine, key="none"):
    return openai.OpenAI(base_url=f"http://{engine.ready['http']}/v1", api_key=key, max_retries=0, timeout=60)


def ask(client, prompt=PROMPT, model=None, extra=None, **fields):
    return client.completions.create(model=model, prompt=prompt, extra_body=extra or {}, **fields)


def fetch(engine, path, body=None, **headers):
    """(status, headers, text)"""
    request = urllib.request.Request(f"http://{engine.ready['http']}{path}", body and json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_completions_are_what_generate_gives(program, serve):
    engine = serve("--tp", 2)
    client = client_of(engine)
    model, = client.models.list().data
    assert model.id == "llama_a" and client.models.retrieve("llama_a").version == engine.version
    asked = dict(max_tokens=12, temperature=0.9, seed=5, logprobs=0, n=2, extra={"ignore_eos": True})
    answer = ask(client, [PROMPT, [250, 77]], **asked)
    streamed = list(ask(client, [PROMPT, [250, 77]], stream=True, stream_options={"include_usage": True}, **asked))
    for index, (prompt, seed) in enumerate([(PROMPT, 5), (PROMPT, 6), ([250, 77], 7), ([250, 77], 8)]):
        expected = program.generate(engine, prompt, "--max-new", 12, "--temperature", 0.9, "--seed", seed, "--logprobs", "--ignore-eos")
        choice = answer.choices[index]
        assert choice.token_ids == expected["tokens"] and choice.logprobs.token_logprobs == expected["logprobs"]
        assert choice.logprobs.tokens == [f"token_id:{token}" for token in expected["tokens"]]
        assert choice.finish_reason == expected["finish"] and choice.spans == expected["spans"]
        assert choice.version == engine.version and choice.weight_version == f"{engine.version['lineage']}@{engine.version['step']}"
        pieces = [chunk.choices[0] for chunk in streamed if chunk.choices and chunk.choices[0].index == index]
        assert sum((piece.token_ids for piece in pieces), []) == expected["tokens"]
        assert sum((piece.logprobs.token_logprobs for piece in pieces), []) == expected["logprobs"]
        assert [piece.finish_reason for piece in pieces if piece.finish_reason] == [expected["finish"]]
    assert answer.usage.prompt_tokens == 5 and answer.usage.completion_tokens == 48
    assert streamed[-1].usage == answer.usage and not streamed[-1].choices
    greedy = ask(client, max_tokens=4, temperature=0)
    assert greedy.choices[0].token_ids == program.generate(engine, PROMPT, "--max-new", 4)["tokens"]


def test_what_cannot_be_done_is_refused_by_its_name(serve):
    client = client_of(serve())
    for fields, words in [({"prompt": "Say hello"}, "no tokenizer"), ({"echo": True}, "echo"), ({"logprobs": 3}, "logprobs"),
                          ({"presence_penalty": 0.5}, "presence_penalty"), ({"extra": {"min_p": 0.1}}, "min_p"), ({"n": 0}, "n: "),
                          ({"max_tokens": 9999}, "positions"), ({"temperature": -1}, "temperature")]:
        with pytest.raises(openai.BadRequestError, match=words):
            ask(client, **fields)
    with pytest.raises(openai.NotFoundError, match="gpt"):
        ask(client, model="gpt")
    with pytest.raises(openai.ConflictError, match="other@1"):
        ask(client, extra={"least_version": {"lineage": "other", "step": 1}})


def test_no_request_is_lost_while_versions_change(program, serve, checkpoint):
    """Each answer is of the versions that it names: one of them alone gives just what an engine that serves it gives."""
    engine = serve("--pause-mode", "keep")
    folders = {name: checkpoint("llama", name) for name in "ab"}
    client, seen = client_of(engine), set()
    alone = {}
    for name in "ba":
        version = program.reload(engine, "--model", folders[name])["version"]
        alone[version["digest"]] = [program.generate(engine, PROMPT, "--max-new", 16, "--temperature", 0.8, "--seed", seed, "--ignore-eos")["tokens"]
                                    for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        def keep_asking(seed):
            answers = []
            while not done:
                answers.append(ask(client, max_tokens=16, temperature=0.8, seed=seed, extra={"ignore_eos": True}).choices[0])
            return answers

        done = False
        asking = [pool.submit(keep_asking, seed) for seed in range(4)]
        try:
            for name in "baba":
                assert program.reload(engine, "--model", folders[name])["ok"]
        finally:
            done = True
        for seed, one in enumerate(asking):
            for choice in one.result():
                assert len(choice.token_ids) == 16 and choice.finish_reason == "length"
                assert choice.spans[-1]["version"] == choice.version
                assert [span["start"] for span in choice.spans[1:]] == [span["end"] for span in choice.spans[:-1]]
                assert choice.spans[0]["start"] == 0 and choice.spans[-1]["end"] == 16
                first = choice.spans[0]
                expected = alone[first["version"]["digest"]][seed]
                assert choice.token_ids[: first["end"]] == expected[: first["end"]], "the tokens before a change are its version's"
                seen |= {span["version"]["digest"] for span in choice.spans}
    assert seen == set(alone)


def test_an_adapter_is_a_model(program, start, checkpoint, checkpoint_cache):
    import adapters

    kept = adapters.Kept(checkpoint_cache)
    base = kept.base(checkpoint("llama", "a"))
    engine = start("serve", "--model", base, "--adapter-slots", 2, "--max-adapter-rank", 16, *HTTP,
                   "--adapter", f"policy={kept.adapter(base, 'all-linear', 'plain', 0)}")
    client = client_of(engine)
    assert [model.id for model in client.models.list().data] == [base.name, "policy"]
    assert client.models.retrieve("policy").parent == base.name
    expected = program.generate(engine, PROMPT, "--adapter", "policy", "--max-new", 8)
    choice = ask(client, model="policy", max_tokens=8, temperature=0).choices[0]
    assert choice.token_ids == expected["tokens"] and choice.spans == expected["spans"] and choice.spans[0]["adapter"]
    assert ask(client, model=base.name, max_tokens=8, temperature=0).choices[0].token_ids == program.generate(engine, PROMPT, "--max-new", 8)["tokens"]


def test_an_engine_that_sleeps_says_so(program, serve):
    engine = serve()
    assert fetch(engine, "/health")[0] == 200
    program.run("sleep", "--engine", engine.endpoint)
    with pytest.raises(openai.InternalServerError, match="asleep") as refused:
        ask(client_of(engine))
    assert refused.value.status_code == 503 and fetch(engine, "/health")[0] == 503
    program.run("wake", "--engine", engine.endpoint)
    assert ask(client_of(engine)).choices[0].token_ids and fetch(engine, "/health")[0] == 200


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "http.key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    return file


def test_whoever_has_not_the_key_is_refused(serve, key_file):
    engine = serve("--http-key-file", key_file, "--dashboard")
    with pytest.raises(openai.AuthenticationError, match="expected the key"):
        ask(client_of(engine, "a-key-that-nobody-knows-here"))
    for path in ("/v1/models", "/dashboard/status", "/nothing"):
        assert fetch(engine, path)[0] == 401
    assert fetch(engine, "/health")[0] == fetch(engine, "/dashboard")[0] == 200
    assert ask(client_of(engine, KEY)).choices[0].token_ids
    assert KEY not in engine.errors() and KEY not in str(fetch(engine, "/v1/models"))


def test_beyond_loopback_a_key_is_needed_or_insecure(program, start, checkpoint, key_file):
    words = ("serve", "--model", checkpoint("llama", "a"), "--http-bind", "0.0.0.0:0")
    refused = program.refused(*words)
    assert refused["code"] == "invalid_argument" and "--http-key-file" in refused["message"]
    os.chmod(key_file, 0o644)
    assert "others can read" in program.refused(*words, "--http-key-file", key_file)["message"]
    os.chmod(key_file, 0o600)
    assert start(*words, "--http-key-file", key_file).ready["http"].startswith("0.0.0.0:")
    assert start(*words, "--insecure").ready["http"].startswith("0.0.0.0:")
    assert start("serve", "--model", checkpoint("llama", "a")).ready["http"] is None


def test_a_page_of_another_site_is_not_taken_for_somebody_of_this_host(serve):
    engine = serve()
    body = {"prompt": PROMPT}
    assert fetch(engine, "/v1/completions", body, **{"Content-Type": "application/json"})[0] == 200
    assert fetch(engine, "/v1/completions", body, **{"Content-Type": "text/plain"})[0] == 415
    assert fetch(engine, "/v1/completions", body, **{"Content-Type": "application/json", "Host": "evil.example"})[0] == 403
    assert fetch(engine, "/v1/models", Host="evil.example:8000")[0] == 403
