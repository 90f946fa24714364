"""Tools for tests of code that uses this package: a fake Kafka cluster, a real node, certificates.

`FakeCluster` needs nothing but this package, `KafkaServer` needs Java, `CertificateAuthority` the extra `crypto`. Each is imported at its
first use, as pytest imports this package with its plugin.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from aioproducer.testing.certificates import CertificateAuthority
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.jumping import run_jumping
    from aioproducer.testing.kafka_server import KafkaServer
    from aioproducer.testing.security.listener import ListenerSecurity, ListenerTls
    from aioproducer.testing.security.oauthbearer import ListenerTokens, unsecured_token

__all__ = [
    "CertificateAuthority",
    "FakeCluster",
    "KafkaServer",
    "ListenerSecurity",
    "ListenerTls",
    "ListenerTokens",
    "run_jumping",
    "unsecured_token",
]

_HOMES = {
    "CertificateAuthority": "certificates",
    "FakeCluster": "cluster",
    "KafkaServer": "kafka_server",
    "ListenerSecurity": "security.listener",
    "ListenerTls": "security.listener",
    "ListenerTokens": "security.oauthbearer",
    "run_jumping": "jumping",
    "unsecured_token": "security.oauthbearer",
}

# a type checker that saw this function would accept every name
if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
