"""How to send with tokens of an identity provider (OAUTHBEARER, OpenID Connect): `python examples/oidc.py`.

The client's secret is a reference to an environment variable. The producer asks the token endpoint for a token, and for another before the
first one ends. `TokenServer` stands in for the identity provider (Keycloak, Microsoft Entra ID, Okta), with tokens of two seconds, and a
fake cluster that verifies its tokens for Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from aioproducer import BootstrapFailed, Producer
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens, TokenServer


async def main() -> None:
    """Send records for longer than a token lives, then try a wrong secret."""
    # the refusals below are warnings in the log, too
    logging.basicConfig(level=logging.ERROR)
    os.environ["ORDERS_CLIENT_SECRET"] = "canary-orders"
    with TokenServer({"orders-service": "canary-orders"}, lifetime=2) as endpoint:
        listener = ListenerSecurity("SASL_SSL", tokens=ListenerTokens(unsecured=False, verify=endpoint.verify))
        async with FakeCluster(security=listener) as cluster:
            cluster.create_topic("orders")
            options: dict[str, Any] = {
                # of a real cluster: bootstrap_servers, security_protocol="SASL_SSL" and, for an own authority, ssl_truststore_location
                **cluster.client_options,
                "sasl_mechanism": "OAUTHBEARER",
                # such as https://keycloak.example.com/realms/kafka/protocol/openid-connect/token
                "sasl_oauthbearer_token_endpoint_url": endpoint.url,
                "sasl_oauthbearer_client_credentials_client_id": "orders-service",
                "sasl_oauthbearer_scope": "kafka",
            }
            secret = "${env:ORDERS_CLIENT_SECRET}"
            async with Producer(**options, sasl_oauthbearer_client_credentials_client_secret=secret) as producer:
                for number in range(25):
                    await producer.send_and_wait("orders", f"order {number}".encode())
                    await asyncio.sleep(0.1)
            users = {f"{login.principal}" for login in cluster.security.authentications}
            print(f"{len(cluster.values('orders'))} orders of {', '.join(users)}, tokens refreshed: {len(endpoint.requests) > 1}")
            try:
                async with Producer(**options, sasl_oauthbearer_client_credentials_client_secret="canary-wrong"):
                    pass
            except BootstrapFailed as error:
                print(f"refused: {error}")


if __name__ == "__main__":
    asyncio.run(main())
