"""How to send with a client certificate (mTLS), and how a certificate is rotated: `python examples/mtls.py`.

The files are written by this program's own certificate authority; in production cert-manager, Vault or your administrators write them. A fake
cluster that demands client certificates stands in for Kafka.
"""

from __future__ import annotations

import asyncio
import pathlib
import tempfile

from aioproducer import Producer
from aioproducer.testing import CertificateAuthority, FakeCluster, ListenerSecurity, ListenerTls


async def main() -> None:
    """Send one record with each of two client certificates, which are in the same file one after the other."""
    authority = CertificateAuthority()
    tls = ListenerTls(
        authority.server("127.0.0.1", "localhost"),
        client_auth="required",
        client_authority=authority,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        keystore = folder / "client.pem"
        keystore.write_bytes(authority.client("orders-service").pem)
        async with FakeCluster(security=ListenerSecurity("SSL", tls=tls)) as cluster:
            cluster.create_topic("orders")
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SSL",
                ssl_truststore_location=str(authority.write(folder / "ca.pem")),
                ssl_keystore_location=str(keystore),  # the key, then the certificate
            ) as producer:
                await producer.send_and_wait("orders", b"with the first certificate")
                keystore.write_bytes(authority.client("orders-service-2").pem)
                # The next connection has the new certificate. Open connections stay as they are.
                await cluster.brokers[1].stop()
                await cluster.brokers[1].start()
                await producer.send_and_wait("orders", b"with the second certificate")
            print([value.decode() for value in cluster.values("orders") if value is not None])
            print(
                "known as",
                ", ".join(
                    sorted({f"{login.principal}" for login in cluster.security.authentications})
                ),
            )


if __name__ == "__main__":
    asyncio.run(main())
