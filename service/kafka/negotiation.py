"""What a connection has to say before it is served: who it is, by SASL (KIP-43, KIP-152). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, NamedTuple

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.mechanisms import Exchange, Mechanisms, PasswordCheck, Proven, RefusedError
from pidkeeper.service.kafka.wire.api_versions import (
    Features,
    api_versions_response,
    no_features,
    read_api_versions_request,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response, read_request_header
from pidkeeper.service.kafka.wire.primitives import Reader, WireError
from pidkeeper.service.kafka.wire.sasl import (
    authenticate_response,
    handshake_response,
    read_authenticate_request,
    read_handshake_request,
)
from pidkeeper.service.kafka.wire.versions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Versions

MAX_FRAME_BYTES: Final = 8 * 1024
"""Largest request of a client that nobody knows: a header, and a message with the longest token."""


class PasswordCall(NamedTuple):
    """A password to be checked by a thread, and what makes the answer of the outcome."""

    matches: Callable[[], bool]
    answer: Callable[[bool], bytes]


class Negotiation:
    """That of one connection. It has ended once one of these is not None:

    `principal`: who it is, by SASL (then `credential` is by what) or by its certificate, if it has one that lets it in
    and asks for something else than SASL. `refused`: why it is to be closed, after the last answer. `served` and
    `features`: what is answered to whoever is let in, which some clients ask only before.
    """

    def __init__(
        self,
        mechanisms: Mechanisms,
        served: Mapping[int, Versions],
        *,
        encrypted: bool,
        certified: Principal | None,
        features: Callable[[], Features | None] = no_features,
    ) -> None:
        self.principal: Principal | None = None
        self.credential: Hashable = None
        self.refused: str | None = None
        self.mechanism = ""
        self._mechanisms = mechanisms
        self._served = served
        self._features = features
        self._offered = mechanisms.offered(encrypted=encrypted)
        self._certified = certified
        self._exchange: Exchange | None = None

    def respond(self, data: bytes) -> tuple[bytes | PasswordCall, int]:
        """Answer the frame at the front of `data`: the response, and how many bytes were used, 0 if it is incomplete.

        Raises WireError for what nobody may send here.
        """
        length = int.from_bytes(data[:4], "big")
        if length > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {length} bytes before it has authenticated")
        if len(data) < 4 or len(data) < 4 + length:
            return b"", 0
        reader = Reader(data[4 : 4 + length])
        header = read_request_header(reader, self._served)
        serve = self._steps.get(header.api_key)
        if serve is None:
            if self._certified is None or self._exchange is not None:
                raise WireError(f"API key {header.api_key} before it has authenticated")
            self.principal = self._certified
            return b"", 0
        return serve(self, header, reader), 4 + length

    def _api_versions(self, header: RequestHeader, reader: Reader) -> bytes:
        read_api_versions_request(reader, header.api_version)
        return self._frame(header, api_versions_response(header.api_version, self._served, self._features()))

    def _handshake(self, header: RequestHeader, reader: Reader) -> bytes:
        request = read_handshake_request(reader, header.api_version)
        error = ErrorCode.NONE
        if self._exchange is not None:
            error, self.refused = ErrorCode.ILLEGAL_SASL_STATE, "it begins to authenticate twice"
        elif request.mechanism not in self._offered:
            error, self.refused = ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{request.mechanism[:32]!r} is not offered"
        else:
            self.mechanism = request.mechanism
            self._exchange = self._mechanisms.begin(request.mechanism)
        return self._frame(header, handshake_response(error, self._offered))

    def _authenticate(self, header: RequestHeader, reader: Reader) -> bytes | PasswordCall:
        request = read_authenticate_request(reader, header.api_version)
        if self._exchange is None:
            raise WireError("it authenticates without a handshake")
        try:
            step = self._exchange.step(request.auth_bytes)
        except RefusedError as error:
            return self._refuse(header, str(error))
        if isinstance(step, PasswordCheck):
            return PasswordCall(step.matches, lambda matches: self._judge(header, step.proven, matches=matches))
        if isinstance(step, Proven):
            self._accept(step)
        return self._frame(header, authenticate_response(header.api_version, message=step.message))

    def _judge(self, header: RequestHeader, proven: Proven | None, *, matches: bool) -> bytes:
        if proven is None:
            return self._refuse(header, "nobody: there is no such user")
        if not matches:
            return self._refuse(header, f"{proven.principal.name}: the password is another one")
        self._accept(proven)
        return self._frame(header, authenticate_response(header.api_version))

    def _accept(self, proven: Proven) -> None:
        self.credential = proven.credential
        self.principal = proven.principal

    def _refuse(self, header: RequestHeader, why: str) -> bytes:
        self.refused = why
        detail = f"authentication by {self.mechanism} failed: user or password are wrong"
        body = authenticate_response(header.api_version, ErrorCode.SASL_AUTHENTICATION_FAILED, detail)
        return self._frame(header, body)

    def _frame(self, header: RequestHeader, body: bytes) -> bytes:
        return frame_response(header, self._served[header.api_key], body)

    _steps: Final[Mapping[int, Callable[[Negotiation, RequestHeader, Reader], bytes | PasswordCall]]] = {
        API_VERSIONS: _api_versions,
        SASL_HANDSHAKE: _handshake,
        SASL_AUTHENTICATE: _authenticate,
    }
