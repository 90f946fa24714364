"""How to send with a password over TLS (SASL_SSL, SCRAM-SHA-512), and what a refusal looks like: `python examples/scram.py`.

The password is a reference to an environment variable, which the producer reads whenever it authenticates. A fake cluster with TLS, a user and
sessions of one second stands in for Kafka.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from aioproducer import BootstrapFailed, Producer
from aioproducer.testing import FakeCluster, ListenerSecurity


async def main() -> None:
    """Send records for longer than a session lasts, then try a wrong password."""
    os.environ["ORDERS_KAFKA_PASSWORD"] = "canary-alice"
    listener = ListenerSecurity("SASL_SSL", users={"alice": "canary-alice"}, session_ms=1500)
    async with FakeCluster(security=listener) as cluster:
        cluster.create_topic("orders")
        # of a real cluster: bootstrap_servers, security_protocol="SASL_SSL" and, for an own authority, ssl_truststore_location
        options: dict[str, Any] = {
            **cluster.client_options,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
        }
        async with Producer(**options, sasl_password="${env:ORDERS_KAFKA_PASSWORD}") as producer:
            for number in range(30):
                await producer.send_and_wait("orders", f"order {number}".encode())
                await asyncio.sleep(0.1)
        renewals = [login for login in cluster.security.authentications if login.is_renewal]
        print(f"{len(cluster.values('orders'))} orders, sessions renewed: {bool(renewals)}")
        try:
            async with Producer(**options, sasl_password="canary-wrong"):
                pass
        except BootstrapFailed as error:
            print(f"refused: {error}")


if __name__ == "__main__":
    asyncio.run(main())
