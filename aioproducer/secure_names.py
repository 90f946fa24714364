"""Translates options of other clients that are no option here by another name, above all those about TLS and SASL.

Sources: Kafka's `SslConfigs`, `SaslConfigs` and `AbstractConfig` (`config.providers`); librdkafka's CONFIGURATION.md; the arguments of
`AIOKafkaProducer` and of kafka-python's `KafkaProducer`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError
from aioproducer.named_tuples import NamedTuple
from aioproducer.option_kinds import FLAG
from aioproducer.secret import PROVIDERS, NotText, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["TRANSLATED", "Given", "is_translated", "translated"]

_JAAS: Final = "sasl.jaas.config"
_PROVIDERS: Final = "config.providers"
_PROVIDER_CLASSES: Final = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "dir",
}
# What `ssl.protocol` may say: nothing that forbids what is agreed on here.
_TLS: Final = ("tls", "tlsv1.2", "tlsv1.3")
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer."
# Values that say what is so here in any case: the running loop, versions asked of brokers, no Kerberos and no OAuth, in aiokafka and
# kafka-python; what verifies tokens, and the class or the method that asks a token endpoint, in Java and librdkafka. Such an option is left
# out.
_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = {
    "loop": (None,),
    "api.version": ("auto", None),
    "sasl.client.callback.handler.class": ("software.amazon.msk.auth.iam.iamclientcallbackhandler", None),
    "sasl.kerberos.service.name": ("kafka", None),
    "sasl.kerberos.domain.name": (None,),
    "sasl.kerberos.name": (None,),
    "sasl.oauth.token.provider": (None,),
    "sasl.oauthbearer.method": ("oidc", "default"),
    "sasl.oauthbearer.sub.claim.name": ("sub",),
    "sasl.oauthbearer.scope.claim.name": ("scope",),
    "sasl.oauthbearer.metadata.authentication.type": ("none",),
    "enable.sasl.oauthbearer.unsecure.jwt": ("false", False),
    "sasl.oauthbearer.jwt.validator.class": tuple(f"{_BEARER}{name}jwtvalidator" for name in ("default", "client")),
    "sasl.login.callback.handler.class": tuple(f"{_BEARER}{part}oauthbearerlogincallbackhandler" for part in ("", "secured.")),
}
_ENDPOINT: Final = "ssl_endpoint_identification_algorithm"
# Options which another client's user leaves out by giving None.
_NONE_IS_NOTHING: Final = (
    "ssl.cafile",
    "ssl.certfile",
    "ssl.keyfile",
    "ssl.password",
    "ssl.crlfile",
    "ssl.ciphers",
    "sasl.plain.username",
    "sasl.plain.password",
)


class Given(NamedTuple):
    """Holds an option: its name as it was written, the name that is to be looked up, and its value."""

    written: Any
    name: Any
    value: Any


def _jaas(written: str, value: Any, mechanism: str) -> list[Given]:
    """Return the fields of a JAAS text; `mechanism` is the SASL mechanism that other options name, if it is not empty."""
    if value is None:
        return []
    if not isinstance(value, Secret):
        raise ConfigError(f"{written} must be a string, not {value.type_name if isinstance(value, NotText) else type(value).__name__}")
    # Few configs have a JAAS text.
    from aioproducer.jaas import read_jaas

    login = read_jaas(written, value)
    if mechanism and not mechanism.startswith(login.family):
        raise ConfigError(f"{written} has {login.module}, and sasl_mechanism={mechanism}: the module is for {login.family}")
    fields = {"sasl_username": login.username, "sasl_password": login.password, "sasl_token_auth": login.token_auth or None, **login.others}
    return [Given(written, name, one) for name, one in fields.items() if one is not None]


def _mechanism(options: Mapping[Any, Any]) -> str:
    given = [value for name, value in options.items() if _dotted(name) in {"sasl.mechanism", "sasl.mechanisms"}]
    return given[0].strip().upper() if given and isinstance(given[0], str) else ""


def _check_hostname(written: str, value: Any) -> list[Given]:
    return [] if FLAG.read(written, value) else [Given(written, _ENDPOINT, "none")]


def _verification(written: str, value: Any) -> list[Given]:
    if FLAG.read(written, value):
        return []
    raise ConfigError(
        f"{written}=false: any broker would be believed. Give the CA's certificate as ssl_truststore_location, or an ssl_context of your own"
    )


def _protocol(written: str, value: Any) -> list[Given]:
    if isinstance(value, str) and value.strip().lower() in _TLS:
        return []
    raise ConfigError(f"{written}={value!r}: it is TLS, TLSv1.2 or TLSv1.3; ssl_enabled_protocols chooses between the two")


_SPECIAL: Final[Mapping[str, Callable[[str, Any], list[Given]]]] = {
    "ssl.check.hostname": _check_hostname,
    "enable.ssl.certificate.verification": _verification,
    "ssl.protocol": _protocol,
}
TRANSLATED: Final = (_JAAS, *_SPECIAL, _PROVIDERS)


def is_translated(name: Any) -> bool:
    """Return whether a value of this name is read here, and is no secret."""
    dotted = _dotted(name)
    return dotted in _SPECIAL or dotted in _NOTHING or _is_provider(dotted)


def _dotted(name: Any) -> str:
    return name.replace("_", ".") if isinstance(name, str) else ""


def _is_provider(name: str) -> bool:
    return name == _PROVIDERS or name.startswith(f"{_PROVIDERS}.")


def translated(options: Mapping[Any, Any]) -> Iterator[Given]:
    """Yield the options with those of other clients translated. Secrets of `options` are hidden already.

    Raises:
        ConfigError: a value cannot be translated.
    """
    aliases = _aliases(options)
    for name, value in options.items():
        dotted = _dotted(name)
        if _is_provider(dotted) or _says_nothing(dotted, value):
            continue
        renamed = value if not aliases else _renamed(name, value, aliases)
        if dotted == _JAAS:
            yield from _jaas(name, renamed, _mechanism(options))
        elif dotted in _SPECIAL:
            yield from _SPECIAL[dotted](name, renamed)
        else:
            yield Given(name, name, renamed)


def _says_nothing(dotted: str, value: Any) -> bool:
    if value is None and dotted in _NONE_IS_NOTHING:
        return True
    given = value.strip().lower() if isinstance(value, str) else value
    return any(given is one or (isinstance(given, str) and given == one) for one in _NOTHING.get(dotted, ()))


# Config providers (KIP-297)


def _aliases(options: Mapping[Any, Any]) -> dict[str, str]:
    """Return the names that `config.providers` gives to the providers which are known here."""
    settings = {name: value for name, value in options.items() if isinstance(name, str) and _is_provider(_dotted(name))}
    listed = [
        word for name in (_PROVIDERS, _PROVIDERS.replace(".", "_")) for word in re.split(r"[\s,]+", str(settings.pop(name, ""))) if word
    ]
    aliases = {word: word for word in listed if word in PROVIDERS}
    for name, value in settings.items():
        alias, _, setting = name[len(_PROVIDERS) + 1 :].partition(".")
        aliases[alias] = _provider(name, setting, value)
    unknown = [word for word in listed if word not in aliases]
    if unknown:
        raise ConfigError(f"{_PROVIDERS} names {unknown[0]!r}, and {_PROVIDERS}.{unknown[0]}.class is not given")
    return aliases


def _provider(name: str, setting: str, value: Any) -> str:
    """Return the provider that a setting of `config.providers` names by its class."""
    if setting != "class":
        raise ConfigError(f"{name!r} has no place here: providers have no parameters. Leave it out")
    provider = _PROVIDER_CLASSES.get(str(value).strip())
    if provider is None:
        raise ConfigError(f"{name}: the providers here are {', '.join(_PROVIDER_CLASSES)}. Put other secrets into the mapping before")
    return provider


def _renamed(name: Any, value: Any, aliases: Mapping[str, str]) -> Any:
    """Return a secret with the providers in its references named as they are here.

    Raises:
        ConfigError: a value that is no secret has a reference, which no provider reads.
    """
    reference = re.compile(r"\$\{(" + "|".join(map(re.escape, aliases)) + "):")
    if isinstance(value, Secret):
        return Secret(reference.sub(lambda match: f"${{{aliases[match[1]]}:", value.reference or value.reveal()))
    if not isinstance(value, str) or reference.search(value) is None:
        return value
    if _dotted(name) not in {"sasl.username", "sasl.plain.username"}:
        raise ConfigError(f"{name!r} has a reference: references are read in secret options and sasl_username alone. Give the value itself")
    return reference.sub(lambda match: f"${{{aliases[match[1]]}:", value)
