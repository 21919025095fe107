"""The witness: what it tells of requests it saw, over TLS and without, whole and cut."""

from __future__ import annotations

import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certification.live.evidence import Usage, hashed
from certification.live.witness import Exchange, UnclearWire, Witness

LOOPBACK = ipaddress.ip_address("127.0.0.1")
REPLY = {"id": "resp_1", "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}}
USAGE = Usage(
    input_tokens=5, cached_input_tokens=0, cache_write_tokens=0, output_tokens=3, reasoning_tokens=0
)


class Handler(BaseHTTPRequestHandler):
    """Answers everything alike."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(REPLY).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def certificate(directory: Path) -> tuple[Path, bytes]:
    """A file with a key and a certificate for loopback, and the certificate's bytes."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(LOOPBACK)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    file = directory / "server.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file, made.public_bytes(serialization.Encoding.DER)


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[str, Path, bytes]]:
    """An HTTPS server on loopback: its URL, its certificate's file and bytes."""
    file, der = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/v1/responses", file, der
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_certificate_of_the_server_is_told(tls: tuple[str, Path, bytes]) -> None:
    """As the SHA-256 of its DER form, by which the public record of certificates names it."""
    url, file, der = tls
    trusting = ssl.create_default_context(cafile=str(file))
    with Witness("openai", verify=trusting) as witness, witness.client() as client:
        assert client.post(url, json={"max_output_tokens": 9}).json() == REPLY
        (exchange,) = witness.exchanges
    wire = exchange.wire()
    assert (wire.certificate, wire.host, wire.output_cap, wire.usage) == (hashed(der), "elsewhere", 9, USAGE)
    assert (wire.response_id, wire.ended, wire.retry_count) == (hashed(b"resp_1"), True, None)


def test_certificates_from_the_environment_are_not_trusted(
    tls: tuple[str, Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sets the environment cannot stand in the provider's place."""
    url, file, _ = tls
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with Witness("openai") as witness, witness.client() as client:
        with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
            client.post(url, json={})
        with pytest.raises(UnclearWire, match=r"^A request got no reply at all\.$"):
            witness.exchanges[0].wire()


def test_a_proxy_from_the_environment_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request goes where it says."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.handle_request, daemon=True)
    thread.start()
    with Witness("openai") as witness, witness.client() as client:
        assert client.post(f"http://127.0.0.1:{server.server_port}/v1", json={}).status_code == 200
    thread.join()
    server.server_close()


def exchange(*events: Any, provider: str = "openai", stream: bool = True, **sent: Any) -> Exchange:
    """A stream of these events, or a whole reply."""
    if stream:
        parts = [f"event: x\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    else:
        parts = [json.dumps(event).encode() for event in events]
    return Exchange(
        provider, "elsewhere", 0, {"stream": stream, "max_tokens": 9, **sent}, 200, None, parts, whole=True
    )


CREATED = {"type": "response.created", "response": {"id": "resp_1", "usage": None}}
COMPLETED = {"type": "response.completed", "response": REPLY}
BEGINNING = {"id": "msg_1", "usage": {"input_tokens": 5, "output_tokens": 1}}
STARTED = {"type": "message_start", "message": BEGINNING}
STOPPED = {"type": "message_stop"}


def test_a_stream_is_told_by_its_last_event() -> None:
    """It ended, and the last event has the usage."""
    wire = exchange(CREATED, COMPLETED).wire()
    assert (wire.ended, wire.usage, wire.streamed, wire.output_cap) == (True, USAGE, True, 9)


def test_a_stream_that_was_left_has_no_usage() -> None:
    """What it said in the beginning of what it would cost is not what it cost."""
    begun = exchange(STARTED, provider="anthropic")
    begun.parts.append(b'event: x\ndata: {"type": "mess')
    wire = begun.wire()
    assert (wire.ended, wire.usage, wire.response_id) == (False, None, hashed(b"msg_1"))


def test_counts_of_a_message_replace_each_other() -> None:
    """They are cumulative, and cached input is counted beside the rest."""
    delta = {"type": "message_delta", "usage": {"output_tokens": 3, "cache_read_input_tokens": 2}}
    wire = exchange(STARTED, delta, STOPPED, provider="anthropic").wire()
    assert wire.usage == USAGE.model_copy(update={"input_tokens": 7, "cached_input_tokens": 2})


@pytest.mark.parametrize(
    "made",
    [
        exchange({"usage": {}}, stream=False),
        exchange(COMPLETED | {"response": {**REPLY, "usage": {"input_tokens": -1}}}),
        exchange(COMPLETED | {"response": {**REPLY, "usage": {"input_tokens": "5"}}}),
        exchange(COMPLETED | {"response": {**REPLY, "id": 7}}),
        Exchange("openai", "elsewhere", 0, {}, 200, None, [b"<html>"], whole=True),
        Exchange("openai", "elsewhere", 0, {}, 200, None, [b"\x1f\x8b\x08"], whole=True),
    ],
    ids=["no id", "negative", "text", "id of another type", "not JSON", "compressed"],
)
def test_what_is_not_clear_is_not_told(made: Exchange) -> None:
    """A figure or an id that the witness cannot read is no evidence, and nothing of it is repeated."""
    with pytest.raises(UnclearWire) as unclear:
        made.wire()
    assert str(unclear.value).endswith(".")
    assert not any(text in str(unclear.value) for text in ("html", "-1", "7"))


def test_an_exchange_shows_nothing_of_what_passed() -> None:
    """Not even where somebody prints it."""
    shown = repr(exchange({"marker": "marker-5f3a9c"}, input="marker-5f3a9c"))
    assert "marker" not in shown
