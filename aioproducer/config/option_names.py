"""The names of options: ours, Java's, librdkafka's, those of aiokafka's and kafka-python's arguments, and of environment variables.

Sources: Kafka's `ProducerConfig`, `SslConfigs`, `SaslConfigs` and `AbstractConfig` (`config.providers`); librdkafka's CONFIGURATION.md.
Most names are rows of the table of options, which is an argument here. The others are translated below.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config.jaas import class_of, read_jaas
from aioproducer.config.option_kinds import FLAG, USER, whole_number
from aioproducer.config.secret import PROVIDERS, has_reference
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from aioproducer.config.option_kinds import Option

_log = logging.getLogger(__name__)

_JAAS: Final = "sasl.jaas.config"
_PROVIDERS: Final = "config.providers"
_PROVIDER_CLASSES: Final = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "dir",
}
# Amazon's tokens for OAUTHBEARER.
_SIGNER: Final = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer."
# Values that say what is so here in any case: what files of Java's and librdkafka's clients with OAUTHBEARER or Amazon's IAM have to say, and
# the defaults of aiokafka's and kafka-python's arguments. None says nothing either.
_SAY_NOTHING: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.client.callback.handler.class": (
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        _SIGNER,
    ),
    "sasl.login.callback.handler.class": (
        *(f"{_BEARER}{part}OAuthBearerLoginCallbackHandler" for part in ("", "secured.")),
        _SIGNER,
    ),
    "sasl.oauthbearer.jwt.retriever.class": tuple(
        f"{_BEARER}{kind}JwtRetriever" for kind in ("Default", "ClientCredentials", "File")
    ),
    "sasl.oauthbearer.jwt.validator.class": tuple(
        f"{_BEARER}{kind}JwtValidator" for kind in ("Default", "Client")
    ),
    "sasl.oauthbearer.grant.type": ("client_credentials",),
    "sasl.oauthbearer.method": ("oidc", "default"),
    "sasl.kerberos.name": (),
    "api.version": ("auto",),
    "loop": (),
}
# librdkafka has one level option for all codecs.
_LEVEL: Final = "compression.level"
_LEVELS: Final = {
    "gzip": "compression_gzip_level",
    "lz4": "compression_lz4_level",
    "zstd": "compression_zstd_level",
}
# librdkafka's name of buffer_memory, in another unit.
_KBYTES: Final = "queue.buffering.max.kbytes"
# Options of KIP-693, which is in no released Kafka. A name that is no field here is an option of the user's circuit breaker.
_BREAKER: Final = "producer.circuit.breaker."
_BREAKERS_OPTIONS: Final = "circuit_breaker_options"
_TRANSLATED: Final = (
    _JAAS,
    _PROVIDERS,
    "ssl.check.hostname",
    "enable.ssl.certificate.verification",
    "ssl.protocol",
    *_SAY_NOTHING,
)


def _names(table: Mapping[str, Option]) -> dict[str, str]:
    """Return the field of every name of every option."""
    names = {}
    for field, option in table.items():
        java = field if option.java is None else option.java or _dotted(field)
        names.update(
            dict.fromkeys((field, java, *option.aliases, *map(_dotted, option.aliases)), field)
        )
    return names


def options_of(
    mapping: Mapping[Any, Any], table: Mapping[str, Option], *, dotted: bool = True
) -> dict[str, Any]:
    """Return the fields that options set, by any of their names.

    Args:
        mapping: the options.
        table: all options.
        dotted: False: names are those of arguments in Python.

    Raises:
        ConfigError: a name is unknown (the text has the nearest), two names mean one option, or a value cannot be translated.
    """
    names = {name: field for name, field in _names(table).items() if dotted or "." not in name}
    if dotted:
        names[_LEVEL] = _LEVEL
    given: dict[str, str] = {}
    options: dict[str, Any] = {}
    aliases = _aliases(mapping)
    for written, name, value in _translated(mapping, aliases):
        field = names.get(_of_breaker(name))
        if field is None and isinstance(name, str) and name.startswith(_BREAKER):
            options[_BREAKERS_OPTIONS] = {
                **(options.get(_BREAKERS_OPTIONS) or {}),
                name.removeprefix(_BREAKER): value,
            }
            continue
        if field is None:
            raise ConfigError(_say_unknown(written, _names(table), dotted=dotted))
        if field in given:
            raise ConfigError(f"{given[field]!r} and {written!r} are both {field}: keep one")
        if (
            aliases
            and isinstance(value, str)
            and has_reference(value)
            and not _takes_references(table, field)
        ):
            raise ConfigError(
                f"{written!r} has a reference: references are read in secret options and sasl_username alone. Give the value itself"
            )
        given[field] = written
        options[field] = whole_number(name, value) * 1024 if name == _KBYTES else value
    if dotted:
        _place_level(options)
        _place_partitioner(options)
    return options


def _of_breaker(name: Any) -> Any:
    """Return the field of a name of KIP-693; any other name is itself."""
    if not isinstance(name, str) or not name.startswith(_BREAKER):
        return name
    rest = name.removeprefix(_BREAKER)
    # the only name that differs from the field's
    rest = "mute.retry.interval.ms" if rest == "mute.retry.interval" else rest
    return "circuit_breaker_" + rest.replace(".", "_")


def _takes_references(table: Mapping[str, Option], field: str) -> bool:
    return field in table and (table[field].kind.is_secret or table[field].kind is USER)


def _say_unknown(name: Any, names: Mapping[str, str], *, dotted: bool) -> str:
    if not isinstance(name, str):
        return f"an option's name is a string, not {type(name).__name__}"
    near = difflib.get_close_matches(name, names, 1, 0.6)
    if not near:
        return f"unknown option {name!r}"
    return f"unknown option {name!r}; did you mean {near[0] if dotted else names[near[0]]!r}?"


def _place_level(options: dict[str, Any]) -> None:
    level = options.pop(_LEVEL, "-1")
    if str(level).strip() == "-1":
        return
    codec = options.get("compression_type", "none")
    codec = str(getattr(codec, "name", codec)).strip().lower()
    if codec not in _LEVELS:
        raise ConfigError(
            f"{_LEVEL}={level!r}: compression {codec} has no levels; leave it out, or choose {', '.join(_LEVELS)}"
        )
    field = _LEVELS[codec]
    if field in options:
        raise ConfigError(f"{_LEVEL!r} and {field.replace('_', '.')!r} are both {field}: keep one")
    options[field] = level


def _place_partitioner(options: dict[str, Any]) -> None:
    """Read librdkafka's words. That of Java's first partitioner, murmur2 and random, is the default here."""
    word = options.get("partitioner")
    if isinstance(word, str) and "." not in word:
        if word != "murmur2_random":
            raise ConfigError(
                f"partitioner={word!r}: of librdkafka's only murmur2_random is here. Give a function that chooses as it did: without one, "
                "keys go to other partitions than before"
            )
        options["partitioner"] = None


# Options of other clients that are no option here by another name


def _dotted(name: Any) -> str:
    return name.replace("_", ".") if isinstance(name, str) else ""


def _upper(value: Any) -> str:
    return value.strip().upper() if isinstance(value, str) else ""


def _translated(
    options: Mapping[Any, Any], aliases: Mapping[str, str]
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield options as the written name, the name that is to be looked up, and the value."""
    reference = re.compile(r"\$\{(" + "|".join(map(re.escape, aliases)) + "):")
    signs = any(
        isinstance(one, str) and class_of(one.strip(), (_SIGNER,)) for one in options.values()
    )
    for name, value in options.items():
        dotted = _dotted(name)
        if aliases and isinstance(value, str):
            value = reference.sub(lambda match: f"${{{aliases[match[1]]}:", value)
        if dotted == _JAAS:
            for field, one in _jaas(name, value, options).items():
                yield name, field, one
        elif dotted == "ssl.check.hostname":
            checks = FLAG.read(name, value)
            yield name, "ssl_endpoint_identification_algorithm", "https" if checks else "none"
        elif signs and dotted in _MECHANISM and _upper(value) == "OAUTHBEARER":
            yield name, name, "AWS_MSK_IAM"
        elif dotted in _TRANSLATED or dotted.startswith(f"{_PROVIDERS}."):
            _check_translated(name, dotted, value)
        else:
            yield name, name, value


def _check_translated(name: str, dotted: str, value: Any) -> None:
    """Raise ConfigError if an option that says what is so in any case says something else."""
    word = value.strip().lower() if isinstance(value, str) else value
    if dotted == "enable.ssl.certificate.verification":
        if not FLAG.read(name, value):
            raise ConfigError(
                f"{name}=false: any broker would be believed. Give the CA's certificate as ssl_truststore_location, or an ssl_context of "
                "your own"
            )
    elif dotted == "ssl.protocol":
        if word not in {"tls", "tlsv1.2", "tlsv1.3"}:
            raise ConfigError(
                f"{name}={value!r}: it is TLS, TLSv1.2 or TLSv1.3; ssl_enabled_protocols chooses between the two"
            )
    elif (
        dotted in _SAY_NOTHING
        and word is not None
        and not class_of(str(word), [known.lower() for known in _SAY_NOTHING[dotted]])
    ):
        known = " or ".join((*_SAY_NOTHING[dotted], "None"))
        raise ConfigError(
            f"{name} has no place here, but as {known}. See docs/topics/porting.md for what else there is"
        )


def _jaas(name: str, value: Any, options: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return the fields of a JAAS text, whose module has to be that of the SASL mechanism."""
    if value is None:
        return {}
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
    login = read_jaas(name, value)
    for other, mechanism in options.items():
        mechanism = _upper(mechanism)
        if _dotted(other) in _MECHANISM and mechanism and not mechanism.startswith(login.family):
            raise ConfigError(
                f"{name} has {login.module}, and sasl_mechanism={mechanism}: the module is for {login.family}"
            )
    return login.fields


def _aliases(options: Mapping[Any, Any]) -> dict[str, str]:
    """Return the names that `config.providers` (KIP-297) gives to the providers which are known here."""
    listed: list[str] = []
    aliases: dict[str, str] = {}
    for name, value in options.items():
        if _dotted(name) == _PROVIDERS:
            listed += re.findall(r"[^\s,]+", str(value))
        elif _dotted(name).startswith(f"{_PROVIDERS}."):
            alias, _, setting = name[len(_PROVIDERS) + 1 :].partition(".")
            if setting != "class":
                raise ConfigError(
                    f"{name!r} has no place here: providers have no parameters. Leave it out"
                )
            known = class_of(str(value).strip(), _PROVIDER_CLASSES)
            if known is None:
                raise ConfigError(
                    f"{name}: the providers here are {', '.join(_PROVIDER_CLASSES)}. Put other secrets into the mapping before"
                )
            aliases[alias] = _PROVIDER_CLASSES[known]
    for word in listed:
        if word not in aliases and word not in PROVIDERS:
            raise ConfigError(
                f"{_PROVIDERS} names {word!r}, and {_PROVIDERS}.{word}.class is not given"
            )
        aliases.setdefault(word, word)
    return aliases


# Environment variables


def environment_options(
    prefix: str, table: Mapping[str, Option], environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the fields that environment variables set: `KAFKA_LINGER_MS=5` is `linger_ms="5"`.

    An empty variable is as good as none. The prefix is shared with other programs (`KAFKA_HEAP_OPTS`), so unknown names are left out, and one
    line of the log names them.

    Args:
        prefix: the beginning of the names; an underscore at its end is not needed.
        table: all options.
        environ: the environment variables; None: those of the process.

    Raises:
        ConfigError: as `options_of`.
    """
    beginning = prefix if prefix.endswith("_") or not prefix else f"{prefix}_"
    known = {*_names(table), *_TRANSLATED, _LEVEL}
    found: dict[str, str] = {}
    left_out: list[str] = []
    for variable, value in (os.environ if environ is None else environ).items():
        name = variable.removeprefix(beginning).lower()
        if value and name and variable.startswith(beginning):
            spelling = next((one for one in (name, name.replace("_", ".")) if one in known), None)
            if spelling is None:
                left_out.append(variable)
            else:
                found[spelling] = value
    if left_out:
        _log.info("No option of a producer, and left out: %s", ", ".join(sorted(left_out)))
    return options_of(found, table)
