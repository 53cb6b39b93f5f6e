"""What the scraper sends to prove who it is, and that it never shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from aiohttp import web

from monitor.model import ProblemReason
from monitor.sources.scrape import ScrapeTarget
from tests.sources.served import PAGE, MakeScraper, Serve, good, http_answer, page_of, problem_of


async def test_token_rotation_needs_no_restart(
    serve: Serve, scraper: MakeScraper, tmp_path: Path
) -> None:
    accepted = "EXAMPLE-TOKEN"

    async def guarded(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization")
        if given is None:
            return web.json_response({"error": "Unauthorized"}, status=401)
        if given != f"Bearer {accepted}":
            return web.json_response({"error": "Forbidden"}, status=403)
        return await good(request)

    served = await serve(guarded)
    problem = await problem_of(scraper(served.url()))
    assert problem.reason is ProblemReason.UNAUTHORIZED
    assert "401" in problem.detail
    assert "authorization: {bearer_file: FILE}" in problem.hint

    token = tmp_path / "token"
    token.write_text("EXAMPLE-TOKEN\n")
    one = scraper(served.url(), bearer_file=token)
    assert (await page_of(one)).body == PAGE
    accepted = "NEXT-TOKEN"
    problem = await problem_of(one)
    assert problem.reason is ProblemReason.UNAUTHORIZED
    assert "403" in problem.detail
    assert str(token) in problem.hint
    assert "EXAMPLE-TOKEN" not in repr(problem)
    token.write_text("NEXT-TOKEN\n")
    assert (await page_of(one)).body == PAGE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file or directory"),
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"one\ntwo", "more than one line"),
        (b"x" * 70_000, "larger than 65536 bytes"),
    ],
)
async def test_a_token_file_that_cannot_be_used(
    serve: Serve, scraper: MakeScraper, tmp_path: Path, content: bytes | None, expected: str
) -> None:
    served = await serve(good)
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    problem = await problem_of(scraper(served.url(), bearer_file=token))
    assert problem.reason is ProblemReason.UNAUTHORIZED
    assert str(token) in problem.detail
    assert expected in problem.detail
    assert served.requests == []


async def test_a_pipe_in_place_of_a_token_does_not_stop_the_daemon(
    serve: Serve, scraper: MakeScraper, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "token")
    served = await serve(good)
    problem = await problem_of(scraper(served.url(), bearer_file=tmp_path / "token"))
    assert problem.reason is ProblemReason.UNAUTHORIZED
    assert "not a regular file" in problem.detail


async def test_every_kind_of_credential_is_sent(
    serve: Serve, scraper: MakeScraper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str | None, str | None, str | None]] = []

    async def note(request: web.Request) -> web.Response:
        heads = request.headers
        sent.append((heads.get("Authorization"), heads.get("X-Team"), heads.get("X-Key")))
        return await good(request)

    served = await serve(note)
    monkeypatch.setenv("ENGINE_TOKEN", "from-the-environment")
    (tmp_path / "key").write_text("k-123\n")
    await page_of(scraper(served.url(), bearer_env="ENGINE_TOKEN"))
    await page_of(scraper(f"http://user:p%40ss@127.0.0.1:{served.port}/metrics"))
    await page_of(
        scraper(
            served.url(), headers={"X-Team": "search"}, header_files={"X-Key": tmp_path / "key"}
        )
    )
    assert sent == [
        ("Bearer from-the-environment", None, None),
        ("Basic dXNlcjpwQHNz", None, None),
        (None, "search", "k-123"),
    ]
    problem = await problem_of(scraper(served.url(), bearer_env="NO_SUCH_VARIABLE"))
    assert problem.reason is ProblemReason.UNAUTHORIZED
    assert "NO_SUCH_VARIABLE" in problem.detail
    problem = await problem_of(scraper(served.url(), headers={"X-A": "b\r\nX-Evil: 1"}))
    assert problem.reason is ProblemReason.UNAUTHORIZED
    assert "Evil" not in repr(problem)


async def test_no_secret_in_any_text(
    serve: Serve, serve_bytes: Serve, scraper: MakeScraper, tmp_path: Path
) -> None:
    secret = "s3cr3t"
    (tmp_path / "token").write_text(secret)

    def answering(response: web.Response) -> object:
        async def answer(_: web.Request) -> web.Response:
            return response

        return answer

    servers = [
        await serve(answering(web.Response(status=500, reason=secret))),
        await serve(answering(web.Response(status=403, text=secret))),
        await serve(answering(web.Response(status=302, headers={"Location": f"//x/?t={secret}"}))),
        await serve(answering(web.Response(body=secret.encode(), content_type="text/html"))),
        await serve_bytes(secret.encode() + b"\r\n\r\n"),
        await serve_bytes(http_answer(b"x", f"Content-Encoding: {secret}", length=1)),
        await serve_bytes(http_answer(b"x", length=9)),
        await serve_bytes(b""),
    ]
    for served in servers:
        url = f"http://admin:{secret}@127.0.0.1:{served.port}/metrics?token={secret}"
        one = scraper(
            url, bearer_file=tmp_path / "token", headers={"X-Key": secret}, timeout_seconds=1.0
        )
        problem = await problem_of(one)
        for text in (repr(problem), repr(one.target), repr(one), str(one.target)):
            assert secret not in text, text
    for bad in (f"ftp://u:{secret}@h/", f"http://u:{secret}@h:99999/", f"{secret}"):
        with pytest.raises(ValueError, match="url must be") as caught:
            ScrapeTarget(name="qwen", url=bad)
        assert secret not in str(caught.value)
        assert caught.value.__context__ is None
