"""The simulated provider behind real sockets: in threads, and as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest
from openai import OpenAI

from memoflow.errors import ConfigurationError
from memoflow.testing import (
    ProviderProcess,
    SimulatedProvider,
    _process,
    agent,
    call,
    calls,
    connect_refused,
    forever,
    hold,
    refused_url,
    reset_mid_body,
    status,
    text,
    usage,
)
from memoflow.testing._clients import loopback_client
from memoflow.testing.server import main

ROOT = Path(__file__).parents[2]


def _client(url: str, **options: Any) -> OpenAI:
    return loopback_client(url, **{"max_retries": 0, **options})


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def test_one_connection_serves_many_requests() -> None:
    """Connections are kept alive, after plain and streamed replies alike."""
    provider = SimulatedProvider()
    with provider.serve() as url, socket.create_connection(_address(url)) as connection:
        for body in ({"stream": False}, {"stream": True}, {"stream": False}):
            content = json.dumps({"model": "m", "input": "x", **body}).encode()
            head = b"POST /v1/responses HTTP/1.1\r\nauthorization: Bearer k\r\ncontent-length: %d\r\n\r\n"
            connection.sendall(head % len(content) + content)
            received = b""
            while b"echo: x" not in received or not received.endswith((b"}", b"0\r\n\r\n")):
                received += connection.recv(65_536)
            assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert provider.wire_requests == {"POST /v1/responses": 3}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/_control/script"])
def test_a_request_that_is_cut_short_has_not_arrived(path: str) -> None:
    """A client that goes away within its body asked for nothing: no request, and no entry is used."""
    provider = SimulatedProvider(["x"])
    with provider.serve() as url, socket.create_connection(_address(url)) as connection:
        head = b"POST %s HTTP/1.1\r\nauthorization: Bearer k\r\ncontent-length: 99\r\n\r\n"
        connection.sendall(head % path.encode() + b'{"model": "m", "input"')
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert (provider.requests, provider.remaining) == ([], 1)


def test_a_request_that_is_reset_has_not_arrived(capfd: pytest.CaptureFixture[str]) -> None:
    """Nor does one whose connection is reset within its body, of which nothing is printed."""
    provider = SimulatedProvider(["x"])
    with provider.serve() as url:
        with socket.create_connection(_address(url)) as connection:
            connection.sendall(b"POST /v1/responses HTTP/1.1\r\ncontent-length: 99\r\n\r\n{")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with _client(url) as client:
            assert client.responses.create(model="m", input="y").output_text == "x"
    assert len(provider.requests) == 1
    assert capfd.readouterr().err == ""


def test_a_stopped_server_refuses() -> None:
    """After the context ends nobody listens, and held requests are over."""
    held = hold()
    provider = SimulatedProvider([held])
    failures: list[Exception] = []

    def ask() -> None:
        try:
            with _client(url) as client:
                client.responses.create(model="m", input="x")
        except openai.APIConnectionError as error:
            failures.append(error)

    with provider.serve() as url:
        asking = threading.Thread(target=ask)
        asking.start()
        assert held.wait_entered()
    asking.join()
    ask()
    assert [type(error.__cause__) for error in failures] == [httpx2.RemoteProtocolError, httpx2.ConnectError]
    assert provider.requests[0].client_gone


def test_faults_of_connecting_are_not_for_servers() -> None:
    """A server cannot refuse a connection it has accepted: it says so, and the SDK does not retry."""
    provider = SimulatedProvider([connect_refused()])
    with (
        provider.serve() as url,
        _client(url, max_retries=2) as client,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        client.responses.create(model="m", input="x")
    assert (caught.value.status_code, caught.value.code) == (501, "not_over_sockets")
    assert len(provider.requests) == 1


def test_a_refused_url_refuses() -> None:
    """`refused_url` is an address where connecting fails before anything is sent."""
    with refused_url() as url, _client(url) as client, pytest.raises(openai.APIConnectionError) as caught:
        client.responses.create(model="m", input="x")
    assert isinstance(caught.value.__cause__, httpx2.ConnectError)


def test_control_of_a_threaded_server() -> None:
    """A threaded server has the control endpoints too; they are not counted."""
    provider = SimulatedProvider(["x"])
    with provider.serve() as url, httpx2.Client(base_url=url.removesuffix("/v1")) as http:
        assert http.get("/_control/health").json() == {"ok": True}
        assert http.get("/_control/requests").json()["remaining"] == 1
        assert http.post("/_control/script", json={"script": ["y"], "to": "create"}).json() == {
            "remaining": 2
        }
        for path, body in (
            ("script", {"script": [{"entry": "surprise"}]}),
            ("script", {}),
            ("release", {"hold": "missing"}),
            ("reset", {"script": [{"entry": "status"}]}),
        ):
            assert http.post(f"/_control/{path}", json=body).status_code == 400
        assert http.get("/_control/script").status_code == 404
    assert provider.requests == []


@pytest.fixture(scope="module")
def process() -> Iterator[ProviderProcess]:
    """One provider process for the tests that do not end it."""
    with ProviderProcess() as running:
        yield running


def test_a_process_follows_its_script(process: ProviderProcess) -> None:
    """A script is sent to the process, which counts and bills as one in process does."""
    process.reset([agent(calls(call("f")), final="done")], default="over")
    with process.client() as client:
        first = client.responses.create(model="m", input="Go.")
        answer = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "ok"}  # type: ignore[union-attr]
        second = client.responses.create(model="m", input=[answer], previous_response_id=first.id)  # type: ignore[list-item]
    assert second.output_text == "done"
    assert first.usage is not None
    assert second.usage is not None
    assert process.wire_requests == {"POST /v1/responses": 2}
    assert (process.performed, process.remaining) == (2, 1)
    assert process.billed.total == first.usage.total_tokens + second.usage.total_tokens
    record = process.requests[1]
    assert (record.json["previous_response_id"], record.response_id) == (first.id, second.id)
    assert record.wait_ended(0)
    assert record.billed is not None


def test_a_process_takes_further_entries(process: ProviderProcess) -> None:
    """Entries can be added while it runs; the default comes after them."""
    process.reset(["one"], default="over")
    process.push("two", status(429, code="insufficient_quota"))
    with process.client(max_retries=0) as client:
        assert [client.responses.create(model="m", input="x").output_text for _ in range(2)] == ["one", "two"]
        with pytest.raises(openai.RateLimitError):
            client.responses.create(model="m", input="x")
        assert client.responses.create(model="m", input="x").output_text == "over"


def test_an_asynchronous_client_of_a_process(process: ProviderProcess) -> None:
    """The process serves asynchronous clients."""
    process.reset()

    async def ask() -> str:
        async with process.async_client() as client:
            return (await client.responses.create(model="m", input="Hi")).output_text

    assert asyncio.run(ask()) == "echo: Hi"


def test_a_process_breaks_connections(process: ProviderProcess) -> None:
    """Failures of the connection are real ones."""
    process.reset([reset_mid_body(text("x", usage=usage(10, 5)))])
    with process.client(max_retries=0) as client, pytest.raises(openai.APIConnectionError) as caught:
        client.responses.create(model="m", input="x")
    assert isinstance(caught.value.__cause__, httpx2.ReadError)
    assert process.billed.total == 15


ASK = """
import sys
from openai import OpenAI
OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0).responses.create(model="m", input="x")
"""


def test_a_killed_client_is_noticed(process: ProviderProcess) -> None:
    """When the process of a client is killed while its reply is held, the provider notices."""
    process.reset([hold(name="here")])
    client = subprocess.Popen([sys.executable, "-c", ASK, process.base_url])
    assert process.wait_entered("here", timeout=60)
    client.kill()
    client.wait()
    assert process.wait_abandoned("here")
    assert process.requests[0].client_gone


def test_a_process_releases_what_it_holds(process: ProviderProcess) -> None:
    """A held reply of a process is released by name."""
    process.reset([hold("Hello.", name="here")])
    answers: list[str] = []

    def ask() -> None:
        with process.client() as client:
            answers.append(client.responses.create(model="m", input="x").output_text)

    asking = threading.Thread(target=ask)
    asking.start()
    assert process.wait_entered("here")
    process.release("here")
    asking.join()
    assert answers == ["Hello."]
    with pytest.raises(ConfigurationError, match="no hold named"):
        process.release("elsewhere")


def test_background_in_a_process() -> None:
    """Options and background responses work across processes."""
    with ProviderProcess(background_polls=None) as process, process.client() as client:
        created = client.responses.create(model="m", input="x", background=True)
        process.advance()
        process.advance(created.id)
        assert client.responses.retrieve(created.id).status == "completed"


def test_a_process_that_does_not_run_says_so() -> None:
    """Before its start and after its stop a process has no address; stopping twice is harmless."""
    process = ProviderProcess([forever("x")])
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="does not run"):
            _ = process.base_url
        with pytest.raises(ConfigurationError, match="does not run"):
            _ = process.pid
        process.start()
        process.stop()
        process.stop()


def test_a_process_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider process that does not end by itself is killed."""
    monkeypatch.setattr(_process, "_STOP_SECONDS", 0.1)
    process = ProviderProcess().start()
    os.kill(process.pid, signal.SIGSTOP)
    process.stop()
    with pytest.raises(ConfigurationError, match="does not run"):
        _ = process.pid


def test_a_client_that_resets_is_no_trouble(capfd: pytest.CaptureFixture[str]) -> None:
    """A connection that is reset before a request was read leaves no trace, and the server goes on."""
    provider = SimulatedProvider()
    with provider.serve() as url:
        with socket.create_connection(_address(url)) as connection:
            connection.sendall(b"POST /v1/responses HTTP/1.1\r\n")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with _client(url) as client:
            assert client.responses.create(model="m", input="x").output_text == "echo: x"
    assert capfd.readouterr().err == ""
    assert len(provider.requests) == 1


def test_a_process_that_cannot_start_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    """Options nobody knows end the process, and the start fails."""
    with pytest.raises(ConfigurationError, match="ended before it served"):
        ProviderProcess(colour="red").start()  # type: ignore[call-arg]
    assert "colour" in capfd.readouterr().err


PARENT = """
import os, sys, time
from memoflow.testing import ProviderProcess
process = ProviderProcess().start()
if sys.argv[1] == "fork" and os.fork() == 0:
    os.close(1)
    time.sleep(600)
print(process.base_url, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_process_dies_with_its_parent(how: str) -> None:
    """A killed parent takes the provider with it, even if a fork of it holds on to the pipe."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, how], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        address = _address(parent.stdout.readline().decode().strip())
    try:
        with socket.create_connection(address) as connection:
            parent.kill()
            parent.wait()
            connection.settimeout(30)
            assert connection.recv(1) == b""
    finally:
        # The forked child of the parent is in the session that was started for it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def test_the_command_serves_a_script_from_a_file(tmp_path: Path) -> None:
    """`python -m memoflow.testing.server --script FILE` prints its address and follows the file."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["Hello.", {"type": "message", "role": "assistant", "content": []}]))
    command = [sys.executable, "-m", "memoflow.testing.server", "--port", "0", "--script", str(script)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert server.stdout is not None
    with server.stdout:
        started = json.loads(server.stdout.readline())
        assert started["pid"] == server.pid
        with _client(started["base_url"]) as client:
            assert client.responses.create(model="m", input="x").output_text == "Hello."
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def test_the_command_reads_a_script_from_its_input() -> None:
    """`--script -` reads the script from the standard input."""
    command = [sys.executable, "-m", "memoflow.testing.server", "--script", "-"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert server.stdin is not None
    assert server.stdout is not None
    with server.stdout:
        with server.stdin as given:
            given.write(b'["From the input."]')
        with _client(json.loads(server.stdout.readline())["base_url"]) as client:
            assert client.responses.create(model="m", input="x").output_text == "From the input."
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` names every option."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(
        option in shown for option in ("--host", "--port", "--script", "--options", "--die-with-parent")
    )
