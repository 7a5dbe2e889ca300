"""The HTTP interface: an invalid request gets a clear 4xx."""

import pytest
from tests.search.toolbox import packed, post

from ostinato.search.index import content_hash


async def test_a_query_from_manifest_to_hits(service, http, files):
    manifest = {path: content_hash(data) for path, data in files.items()}
    status, answer = await post(http, service + "/v1/search/trees", {"files": manifest})
    assert status == 200 and answer["missing"] == sorted(files)
    query = {"tree": answer["tree"], "query": "parse a header", "k": 1}
    status, refusal = await post(http, service + "/v1/search", query)
    assert status == 409 and refusal["error"]["missing"] == sorted(files)
    assert await post(http, service + "/v1/search/files", {"files": packed(files)}) == (200, {"added": 2})
    status, found = await post(http, service + "/v1/search", query)
    assert status == 200 and found["tree"] == answer["tree"]
    (hit,) = found["hits"]
    assert (hit["path"], hit["first"], hit["last"]) == ("shop/calc.py", 11, 13) and hit["score"] > 0


async def test_a_wrong_key_is_refused(service, http):
    for value in ("Bearer other", "Basic key", ""):
        headers = {"Authorization": value}
        status, answer = await post(http, service + "/v1/search/trees", {"files": {}}, headers=headers)
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/search", b"{", 400),
        ("/v1/search", b"[" * 100_000, 400),
        ("/v1/search", [], 400),
        ("/v1/search", b"\xff\xfe", 400),
        ("/v1/search", {"tree": "0" * 64, "query": "x"}, 404),
        ("/v1/search", {"tree": "0" * 64, "query": " "}, 422),
        ("/v1/search", {"tree": "0" * 64, "query": "x" * 3000}, 422),
        ("/v1/search", {"tree": "0" * 64, "query": "x", "k": 0}, 422),
        ("/v1/search", {"tree": "0" * 64, "query": "x", "k": True}, 422),
        ("/v1/search", {"tree": "0" * 64, "query": "x", "k": "5"}, 422),
        ("/v1/search", {"tree": 1, "query": "x"}, 422),
        ("/v1/search/trees", {}, 422),
        ("/v1/search/trees", {"files": {"a": 1}}, 422),
        ("/v1/search/trees", {"files": {"/a": "0" * 64}}, 422),
        ("/v1/search/files", {"files": ["a"]}, 422),
        ("/v1/search/files", {"files": [{"path": "a", "content": "not base64!"}]}, 422),
        ("/v1/search/files", {"files": [{"path": "a"}]}, 422),
        ("/v1/search/files", {"files": [{"path": "a", "content": "A" * 2**21}]}, 422),
        ("/nowhere", {}, 404),
    ],
)
async def test_an_error_names_its_cause(service, http, path, body, status):
    got, answer = await post(http, service + path, body)
    assert got == status and answer["error"]["message"]
    assert "k" not in (body if isinstance(body, dict) else {}) or got == 422


async def test_a_body_too_large_is_refused(service, http):
    async def endless():
        for _ in range(40):
            yield bytes(2**20)

    async with http.post(service + "/v1/search/files", data=endless()) as response:
        assert response.status == 413


async def test_health_needs_no_key(service, http):
    async with http.get(service + "/healthz", headers={"Authorization": ""}) as response:
        assert await response.json() == {"status": "ok"}
