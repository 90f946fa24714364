"""How to authenticate by tokens of your own function (OAUTHBEARER), which are refreshed in time: `python examples/token_function.py`.

The producer calls the function in a thread, and again before each token ends. A fake cluster that takes unsecured tokens stands in for Kafka;
a real program asks its identity provider. A function that fails is asked again; its error's text, which may have a secret, is not shown.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aioproducer import BootstrapFailed, Producer
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens, unsecured_token


class IdentityProvider:
    """Gives tokens, as a client library of a real one does.

    Attributes:
        calls: the number of tokens that were asked for.
    """

    def __init__(self) -> None:
        self.calls = 0

    def token(self) -> str:
        """Return a JWT: its `exp` says when it ends. Another token is returned with its end: `(token, seconds since 1970)`."""
        self.calls += 1
        return unsecured_token("orders-service", seconds=2.0)


def broken() -> str:
    """Fail, as when the identity provider is away."""
    raise ConnectionError("client secret canary-secret was refused")


async def main() -> None:
    """Send records for longer than a token lives, then try a function that fails."""
    listener = ListenerSecurity(
        "SASL_SSL", tokens=ListenerTokens(extensions={"logicalCluster": "lkc-1"})
    )
    async with FakeCluster(security=listener) as cluster:
        cluster.create_topic("orders")
        provider = IdentityProvider()
        login = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1"},
        }
        # of a real cluster: bootstrap_servers, security_protocol="SASL_SSL" and, for an own authority, ssl_truststore_location
        options: dict[str, Any] = {**cluster.client_options, **login}
        async with Producer(**options, sasl_oauthbearer_token=provider.token) as producer:
            for number in range(40):
                await producer.send_and_wait("orders", f"order {number}".encode())
                await asyncio.sleep(0.1)
            who = producer.health().security[0].principal
        renewals = [login for login in cluster.security.authentications if login.is_renewal]
        print(
            f"{len(cluster.values('orders'))} orders of {who}, sessions renewed: {bool(renewals)}, tokens: {provider.calls}"
        )
        # the failure is printed below
        logging.getLogger("aioproducer").setLevel(logging.ERROR)
        try:
            async with Producer(**options, sasl_oauthbearer_token=broken):
                pass
        except BootstrapFailed as error:
            print(f"no token: {error}")


if __name__ == "__main__":
    asyncio.run(main())
