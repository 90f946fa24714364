"""A dialer with TLS for `WireClient`: over sockets or over the memory streams of a fake cluster."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast

from aioproducer.testing.security.tls import TlsStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.interfaces import Receiver, Stream
    from aioproducer.testing import FakeCluster
    from aioproducer.testing.security.listener import ServerCertificate


def client_context(
    authority: bytes, certificate: ServerCertificate | None = None, folder: Any = None, versions: Sequence[Any] = ("TLSv1.2", "TLSv1.3")
) -> ssl.SSLContext:
    """A context that trusts one authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode())
    context.minimum_version, context.maximum_version = (ssl.TLSVersion[version.replace(".", "_")] for version in versions)
    if certificate is not None:
        path = folder / "client.pem"
        path.write_bytes(certificate.pem)
        context.load_cert_chain(path)
    return context


class TlsDialer:
    """Checks the certificate for `name`. Keeps the state of TLS of each connection, and how each handshake failed."""

    def __init__(self, cluster: FakeCluster, context: ssl.SSLContext, name: str = "localhost") -> None:
        self._network, self._context, self._name = cluster.network, context, name
        self.up: list[ssl.SSLObject] = []
        self.failures: list[str] = []

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        stream = TlsStream(receiver(), self._context, on_up=self.up.append, on_failure=self.failures.append, server_hostname=self._name)
        if self._network is not None:
            await self._network.dial(host, port, lambda: stream)
        else:
            await asyncio.get_running_loop().create_connection(lambda: cast("asyncio.Protocol", stream), host, port)
        return stream
