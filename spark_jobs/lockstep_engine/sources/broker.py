"""A connection to a Kafka broker that waits for its answers.

What goes over it is written and read by aiokafka's classes of the protocol
(https://kafka.apache.org/protocol.html). Its own connection, and that of kafka-python, copy what comes
four times, each time to memory that is new; here it comes into a buffer that is used again.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    CorrelationIdError,
    IncompatibleBrokerVersion,
    KafkaProtocolError,
    for_code,
)
from aiokafka.protocol.admin import ApiVersionRequest, SaslAuthenticateRequest, SaslHandShakeRequest
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.types import Array, Schema

from lockstep.control.kafka_options import KafkaConnection

__all__ = ["Broker"]

Answer = Mapping[str, Any]
"""By the names of its fields, as aiokafka has them."""

_CLIENT: Final = "lockstep"
_MOST_BYTES: Final = 1 << 28
"""Of an answer. Larger ones are none: where TLS is spoken the first bytes say 352 MB."""
_SMALL: Final = 1 << 15
"""Texts have fewer bytes, by the protocol."""


class Broker:
    """A broker at an address, which is told who asks. `ask` is `tell` and `answer`; several can be told
    before the first answer is taken. Raises OSError where it is silent for `seconds` or goes away, and
    KafkaError where it does not let the client in or says what is no answer."""

    def __init__(self, host: str, port: int, connection: KafkaConnection, seconds: float) -> None:
        self._socket, self._seconds = _connected(host, port, connection, seconds), seconds
        self._told: deque[tuple[int, RequestStruct]] = deque()
        self._number = 0
        self._buffer = memoryview(bytearray(_SMALL))
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            found = self.ask(ApiVersionRequest())
            self._versions = {
                one["api_key"]: (one["min_version"], one["max_version"])
                for one in found["api_versions"]
            }
            if connection.security_protocol.startswith("SASL"):
                self._log_in(host, connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Request[Any]) -> Answer:
        self.tell(request)
        return self.answer()

    def tell(self, request: Request[Any]) -> None:
        """Ask, and do not wait. The newest version that both sides know is spoken."""
        try:
            wanted = request.prepare(self._versions)
        except NotImplementedError as error:
            raise IncompatibleBrokerVersion(str(error)) from error
        self._number += 1
        header = wanted.build_request_header(self._number, _CLIENT)
        text = header.encode() + wanted.encode()
        self._told.append((self._number, wanted))
        self._socket.sendall(struct.pack(">i", len(text)) + text)

    def answer(self) -> Answer:
        """The next one. What is large in it is not to be read any more once another one is taken."""
        number, request = self._told.popleft()
        size = struct.unpack(">i", self._received(4))[0]
        if not 0 <= size <= _MOST_BYTES:
            raise KafkaProtocolError(f"an answer of {size:,} bytes is none of a broker's")
        answer = _decoded(_Bytes(self._received(size)), number, request)
        # At a client that has asked for more than its quota allows the broker does not look for a while.
        self._socket.settimeout(self._seconds + answer.get("throttle_time_ms", 0) / 1000)
        return answer

    def _received(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = memoryview(bytearray(size + size // 4))
        wanted, place = self._buffer[:size], 0
        while place < size:
            came = self._socket.recv_into(wanted[place:])
            if not came:
                raise ConnectionResetError("the broker has closed the connection")
            place += came
        return wanted

    def _log_in(self, host: str, connection: KafkaConnection) -> None:
        mechanism = connection.sasl_mechanism
        found = self.ask(SaslHandShakeRequest(mechanism))
        if found["error_code"]:
            raise AuthenticationMethodNotSupported(
                f"the broker has no {mechanism}, but {', '.join(found['enabled_mechanisms'])}"
            )
        for text, answered in _exchange(host, connection):
            told = self.ask(SaslAuthenticateRequest(text))
            if told["error_code"]:
                said = told["error_message"] or for_code(told["error_code"]).__name__
                raise AuthenticationFailedError(f"the broker does not let the client in: {said}")
            try:
                answered(told["sasl_auth_bytes"])
            except ValueError as error:
                raise AuthenticationFailedError(
                    f"the broker is not who it says: {error}"
                ) from error


def _decoded(found: _Bytes, number: int, request: RequestStruct) -> Answer:
    """Raises KafkaProtocolError."""
    try:
        header = request.parse_response_header(found)
        if header.correlation_id != number:
            raise CorrelationIdError(f"answer {header.correlation_id} came in place of {number}")
        schema = request.RESPONSE_TYPE.SCHEMA
        answer: Answer = _named(schema, schema.decode(found))
    except (ValueError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise KafkaProtocolError(f"what the broker says is no answer: {said}") from error
    return answer


def _named(kind: object, value: Any) -> Any:
    """What was read, by names of fields, as aiokafka (0.14) itself does it; but that fails where a list
    is null, as lists of an answer that tells of an error are. They are empty here."""
    if isinstance(kind, Schema):
        parts = zip(kind.names, kind.fields, value, strict=True)
        return {name: _named(of, part) for name, of, part in parts}
    if isinstance(kind, Array):
        return [_named(kind.array_of, one) for one in value or ()]
    return value


class _Bytes:
    """Bytes of an answer, read one after the other: few by value, many in place."""

    def __init__(self, found: memoryview) -> None:
        self._found, self._place = found, 0

    def read(self, size: int) -> bytes | memoryview:
        start, self._place = self._place, self._place + size
        part = self._found[start : self._place]
        return bytes(part) if size <= _SMALL else part


def _exchange(host: str, connection: KafkaConnection) -> Iterator[tuple[bytes, Any]]:
    """What a client says to be let in, and who is to be told the answer."""
    # Few need it, and it takes a third of a second.
    from kafka.net.sasl import get_sasl_mechanism

    mechanism = get_sasl_mechanism(connection.sasl_mechanism)(
        host=host,
        security_protocol=connection.security_protocol,
        sasl_mechanism=connection.sasl_mechanism,
        sasl_plain_username=connection.username,
        sasl_plain_password=connection.password,
    )
    while not mechanism.is_done():
        yield mechanism.auth_bytes(), mechanism.receive


def _connected(host: str, port: int, connection: KafkaConnection, seconds: float) -> socket.socket:
    plain = socket.create_connection((host, port), seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not connection.security_protocol.endswith("SSL"):
            return plain
        return _encryption(connection).wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _encryption(connection: KafkaConnection) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=connection.ca_file or None)
    found.check_hostname = connection.check_hostname
    if connection.certificate_file:
        # Without a password OpenSSL would ask for it at the terminal.
        found.load_cert_chain(connection.certificate_file, password=connection.key_password)
    return found
