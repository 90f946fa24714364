"""How to send with tokens of an identity provider (OAUTHBEARER, OpenID Connect): `python examples/oidc.py`.

The client's secret is a reference to an environment variable. The producer asks the token endpoint for a token, and for another before the
first one ends. `IdentityProvider` stands in for Keycloak, Microsoft Entra ID or Okta, with tokens of two seconds, and a fake cluster for Kafka.
"""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import logging
import os
import threading
from typing import Any

from aioproducer import BootstrapFailed, Producer
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens, unsecured_token

CLIENT, SECRET = "orders-service", "canary-orders"


class IdentityProvider(http.server.BaseHTTPRequestHandler):
    """A token endpoint for one client, whose tokens live for two seconds."""

    given = 0

    def do_POST(self) -> None:
        """Give a token to the client that knows the secret."""
        knows = (
            self.headers["Authorization"]
            == "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        )
        IdentityProvider.given += knows
        answer = (
            {"access_token": unsecured_token(CLIENT, 2), "expires_in": 2}
            if knows
            else {
                "error": "invalid_client",
                "error_description": "no such client, or another secret",
            }
        )
        self.send_response(200 if knows else 401)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


async def main() -> None:
    """Send records for longer than a token lives, then try a wrong secret."""
    # the refusals below are warnings in the log, too
    logging.basicConfig(level=logging.ERROR)
    os.environ["ORDERS_CLIENT_SECRET"] = SECRET
    provider = http.server.ThreadingHTTPServer(("127.0.0.1", 0), IdentityProvider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    async with FakeCluster(
        security=ListenerSecurity("SASL_SSL", tokens=ListenerTokens())
    ) as cluster:
        cluster.create_topic("orders")
        options: dict[str, Any] = {
            # of a real cluster: bootstrap_servers, security_protocol="SASL_SSL" and, for an own authority, ssl_truststore_location
            **cluster.client_options,
            "sasl_mechanism": "OAUTHBEARER",
            # such as https://keycloak.example.com/realms/kafka/protocol/openid-connect/token
            "sasl_oauthbearer_token_endpoint_url": f"http://127.0.0.1:{provider.server_port}/token",
            "sasl_oauthbearer_client_credentials_client_id": CLIENT,
            "sasl_oauthbearer_scope": "kafka",
        }
        secret = "${env:ORDERS_CLIENT_SECRET}"
        async with Producer(
            **options, sasl_oauthbearer_client_credentials_client_secret=secret
        ) as producer:
            for number in range(25):
                await producer.send_and_wait("orders", f"order {number}".encode())
                await asyncio.sleep(0.1)
        users = {f"{login.principal}" for login in cluster.security.authentications}
        print(
            f"{len(cluster.values('orders'))} orders of {', '.join(users)}, tokens refreshed: {IdentityProvider.given > 1}"
        )
        try:
            async with Producer(
                **options, sasl_oauthbearer_client_credentials_client_secret="canary-wrong"
            ):
                pass
        except BootstrapFailed as error:
            print(f"refused: {error}")


if __name__ == "__main__":
    asyncio.run(main())
