"""Translates options of other clients that are no option here by another name, above all those about TLS and SASL.

Sources: Kafka's `SslConfigs`, `SaslConfigs` and `AbstractConfig` (`config.providers`); librdkafka's CONFIGURATION.md; the arguments of
`AIOKafkaProducer` and of kafka-python's `KafkaProducer`.
"""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.config.option_kinds import FLAG, is_secret, whole_number
from aioproducer.config.secret import PROVIDERS, NotText, Secret, hide
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioproducer.config.option_kinds import Option


__all__ = [
    "Given",
    "NOT_HERE",
    "TRANSLATED",
    "environment_options",
    "hide_secrets",
    "is_translated",
    "keyword_options",
    "known_name",
    "options_of",
    "say_unknown",
    "translated",
    "why_not",
]

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
    from aioproducer.config.jaas import read_jaas

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


# Holds Java's and librdkafka's option names: their fields here, their units, and why some are not supported.
#
# Sources: Kafka's `ProducerConfig`, `SslConfigs` and `SaslConfigs`; librdkafka's CONFIGURATION.md.
# The table of options is an argument.


# librdkafka has one level option for all codecs.
_LEVEL: Final = "compression.level"
_LEVELS: Final = {"gzip": "compression_gzip_level", "lz4": "compression_lz4_level", "zstd": "compression_zstd_level"}
# Java's first partitioner. It hashes keys by murmur2, and sends records without a key to a sticky partition. That is the default
# here.
_PARTITIONERS: Final = {"murmur2_random": None}

# The prefix of KIP-693, which is in no released Kafka. A name that is no field here is an option of the circuit breaker.
_BREAKER: Final = "producer.circuit.breaker."
_BREAKERS_OPTIONS: Final = "circuit_breaker_options"
# The only name of KIP-693 that differs from the field's.
_BREAKERS: Final = {"mute.retry.interval": "circuit_breaker_mute_retry_interval_ms"}

# The first row that matches a name gives its reason.
NOT_HERE: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "it is the JVM's; leave it out",
        (
            "security.providers",
            "ssl.provider",
            "ssl.keymanager.algorithm",
            "ssl.trustmanager.algorithm",
            "ssl.secure.random.implementation",
            "ssl.engine.factory.class",
            "auto.include.jmx.reporter",
        ),
    ),
    (
        "Kafka 4.4 has it: here names are resolved by `start`, again and again within max_block_ms; leave it out",
        ("bootstrap.resolve.timeout.ms",),
    ),
    ("Kafka 4.4 has it; leave it out", ("metadata.cluster.check.enable",)),
    ("here memory is always taken by need; leave it out", ("buffer.memory.allocation.strategy",)),
    (
        "brokers verify tokens and read their claims; leave it out",
        (
            "sasl.oauthbearer.jwks.*",
            "sasl.oauthbearer.expected.*",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.*.claim.name",
        ),
    ),
    ("the method follows from the options: it is oidc or default; leave it out", ("sasl.oauthbearer.method",)),
    (
        "give sasl_oauthbearer_token a function that makes such a token, or asks for it",
        ("sasl.oauthbearer.config", "sasl.oauthbearer.metadata.authentication.type", "enable.sasl.oauthbearer.unsecure.jwt"),
    ),
    (
        "tickets come from the keytab or the ticket cache, and are renewed by themselves; leave it out",
        ("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.ticket.renew.*"),
    ),
    ("give sasl_kerberos_service_name, and sasl_kerberos_domain_name if all brokers have one", ("sasl.kerberos.name",)),
    (
        "classes of Java have no place here: give sasl_oauthbearer_token a function",
        ("sasl.login.callback.handler.class", "sasl.login.class", "sasl.client.callback.handler.class", "oauth*"),
    ),
    (
        "it is about OpenSSL in librdkafka: give an ssl_context",
        (
            "ssl.engine.*",
            "ssl_engine_callback_data",
            "ssl.providers",
            "ssl.curves.list",
            "ssl.sigalgs.list",
            "ssl.ca.certificate.stores",
            "ssl.certificate.verify_cb",
            "ssl_certificate_verify_cb",
            "ssl_key",
            "ssl_certificate",
            "ssl_ca",
        ),
    ),
    ("two-phase commit (KIP-939) is in no released Kafka; leave it out", ("transaction.two.phase.commit.enable",)),
    ("with enable_idempotence a record that is lost fails, and those after it are sent: leave it out", ("enable.gapless.guarantee",)),
    ("librdkafka's plugins are its own: give `interceptors`", ("plugin.library.paths",)),
    (
        "ask `producer.metrics()`, or give its producers to an exporter of aioproducer.telemetry",
        ("metrics.context.*", "metric.reporters", "statistics.interval.ms", "stats_cb"),
    ),
    ("a batch takes memory by need, and no first size (KIP-782) is needed; leave it out", ("batch.initial.size",)),
    ("this client tells brokers no metrics (KIP-714); leave it out", ("enable.metrics.push",)),
    ("memory is bounded in bytes, by buffer_memory: give that", ("queue.buffering.max.messages", "queued.max.messages.kbytes")),
    ("batches are bounded in bytes, by batch_size: give that", ("batch.num.messages",)),
    (
        "await the delivery, or give on_failed, which gets the records that failed",
        ("dr_cb", "dr_msg_cb", "on_delivery", "delivery.report.only.error", "opaque"),
    ),
    ("errors are raised where they happen; give on_delivery_error for failed records that no code looks at", ("error_cb", "throttle_cb")),
    (
        "use logging.getLogger('aioproducer')",
        ("debug", "log_cb", "logger", "log_level", "log.queue", "log.thread.name", "log.connection.close"),
    ),
    ("give `partitioner` a function", ("partitioner_cb",)),
    ("the sticky partition changes with each full batch; linger_ms is for partial ones: give that", ("sticky.partitioning.linger.ms",)),
    ("`send` waits up to max_block_ms for a topic to appear: give that", ("topic.metadata.propagation.max.ms",)),
    ("retry_backoff_ms and retry_backoff_max_ms pace metadata too: give those", ("topic.metadata.refresh.fast.*",)),
    ("it is always so; leave it out", ("topic.metadata.refresh.sparse", "socket.*able", "api.version.request", "produce.offset.report")),
    ("a connection ends with its first failure; leave it out", ("socket.max.fails",)),
    (
        "versions are asked of each broker; message_format_max is for old ones: give that, or leave it out",
        ("api.version*", "broker.version.fallback"),
    ),
    (
        "names are resolved each time a broker is dialled, by the system; leave it out",
        ("broker.address.ttl", "broker.address.family", "resolve_cb"),
    ),
    ("every backoff has 20 % of jitter; leave it out", ("reconnect.backoff.jitter.ms",)),
    ("a producer belongs to the loop in which it is started; leave it out", ("loop",)),
    ("give the producer a `dialer`", ("socket_cb", "connect_cb", "closesocket_cb", "open_cb")),
    ("records are sent in the order of the calls; leave it out", ("queuing.strategy", "msg_order_cmp")),
    (
        "topics are named where they are sent to: give their options here, for all topics",
        ("topic.blacklist", "default_topic_conf", "default.topic.config"),
    ),
    (
        "it is about how librdkafka works inside; leave it out",
        (
            "builtin.features",
            "message.copy.max.bytes",
            "receive.message.max.bytes",
            "socket.blocking.max.ms",
            "enabled_events",
            "background_event_cb",
            "enable.random.seed",
            "enable.sparse.connections",
            "internal.termination.signal",
            "metadata.request.timeout.ms",
            "queue.buffering.backpressure.threshold",
            "client.software.*",
            "test.mock.*",
        ),
    ),
    ("it belongs to a serializer: give it to that", ("schema.registry.*", "auto.register.schemas", "use.latest.version")),
    (
        "it is a consumer's; this is a producer: leave it out",
        (
            "group.*",
            "auto.offset.*",
            "auto.commit.*",
            "enable.auto.*",
            "fetch.*",
            "max.poll.*",
            "max.partition.fetch.bytes",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "isolation.level",
            "check.crcs",
            "partition.assignment.strategy",
            "coordinator.query.interval.ms",
            "queued.min.messages",
            "offset.store.*",
            "consume*",
            "rebalance_cb",
            "offset_commit_cb",
            "enable.partition.eof",
            "share.*",
            "exclude.internal.topics",
            "key.deserializer",
            "value.deserializer",
        ),
    ),
)


class _Place(NamedTuple):
    """Holds the field of a name, and the factor from the name's unit to the field's."""

    field: str
    scale: int = 1


_OF_BREAKER: Final = _Place("a breaker's own")


def _names(table: Mapping[str, Option]) -> dict[str, _Place]:
    """Return every name of every option: the field's, Java's, librdkafka's, and those of proposals."""
    names = {}
    for field, option in table.items():
        names[field] = _Place(field)
        if option.java is not None:
            names[option.java or field.replace("_", ".")] = _Place(field)
        names.update({name: _Place(field, scale) for name, scale in option.librdkafka.items()})
        names.update(dict.fromkeys(option.kips, _Place(field)))
        names.update({spelling: _Place(field) for name in option.python for spelling in (name, name.replace("_", "."))})
    return names


def hide_secrets(options: dict[Any, Any], table: Mapping[str, Option]) -> None:
    """Hide, in place, each value unless its name is that of an option without secrets."""
    names = _names(table)

    def is_shown(name: Any) -> bool:
        place = _place(name, names)
        if place is None or place is _OF_BREAKER:
            return place is _OF_BREAKER or name == _LEVEL or is_translated(name)
        return not is_secret(table[place.field].kind)

    hide(options, is_shown)


def known_name(name: str, table: Mapping[str, Option]) -> str | None:
    """Return the name by which `options_of` takes an option whose name is written with underscores; None: it takes none of that name."""
    names, dotted = _names(table), name.replace("_", ".")
    known = next((spelling for spelling in (name, dotted) if spelling in names), None)
    return known if known is not None or not (dotted == _LEVEL or dotted in TRANSLATED) else dotted


def keyword_options(options: dict[str, Any], table: Mapping[str, Option]) -> dict[str, Any]:
    """Return the fields that keyword arguments set, by our names, or those of aiokafka's and kafka-python's arguments.

    Its secrets are hidden already.

    Raises:
        ConfigError: a name is unknown or not supported, or two names mean one option.
    """
    names = {name: place for name, place in _names(table).items() if "." not in name}
    return _fields(options, names, lambda name: say_unknown(name, table, dotted=False))


def options_of(mapping: Mapping[str, Any], table: Mapping[str, Option]) -> dict[str, Any]:
    """Return the fields that a mapping of dotted names sets. Its secrets are hidden already.

    Raises:
        ConfigError: a name is unknown or not supported, or two names mean one option.
    """
    names = {**_names(table), _LEVEL: _Place("compression_level")}
    options = _fields(mapping, names, lambda name: say_unknown(name, table, dotted=True))
    _place_level(options)
    _place_partitioner(options)
    return options


def _fields(mapping: Mapping[str, Any], names: Mapping[str, _Place], say: Callable[[Any], str]) -> dict[str, Any]:
    """Return the fields that options set; `say` returns the text of the error for a name that is not in `names`."""
    given: dict[str, str] = {}
    options: dict[str, Any] = {}
    for written, name, value in translated(mapping):
        place = _place(name, names)
        if place is _OF_BREAKER:
            options[_BREAKERS_OPTIONS] = {**(options.get(_BREAKERS_OPTIONS) or {}), name.removeprefix(_BREAKER): value}
            continue
        if place is None:
            raise ConfigError(say(written))
        if place.field in given:
            raise ConfigError(f"{given[place.field]!r} and {written!r} are both {place.field}: keep one")
        given[place.field] = written
        options[place.field] = _in_our_unit(name, value, place.scale)
    return options


def _place(name: Any, names: Mapping[str, _Place]) -> _Place | None:
    """Return the field of a name; None: the name is unknown."""
    if not isinstance(name, str):
        return None
    if name in names or not name.startswith(_BREAKER):
        return names.get(name)
    rest = name.removeprefix(_BREAKER)
    field = _BREAKERS.get(rest, "circuit_breaker_" + rest.replace(".", "_"))
    return names.get(field, _OF_BREAKER)


def _in_our_unit(name: str, value: Any, scale: int) -> Any:
    if scale == 1:
        return value
    try:
        return whole_number(name, value) * scale
    except ConfigError as error:
        raise ConfigError(f"{error}, of {scale}") from None


def _place_level(options: dict[str, Any]) -> None:
    if "compression_level" not in options:
        return
    level = options.pop("compression_level")
    if str(level).strip() == "-1":
        return
    codec = options.get("compression_type", "none")
    codec = str(getattr(codec, "name", codec)).strip().lower()
    field = _LEVELS.get(codec)
    if field is None:
        raise ConfigError(f"{_LEVEL}={level!r}: compression {codec} has no levels; leave it out, or choose {', '.join(_LEVELS)}")
    if field in options:
        raise ConfigError(f"{_LEVEL!r} and {field.replace('_', '.')!r} are both {field}: keep one")
    options[field] = level


def _place_partitioner(options: dict[str, Any]) -> None:
    word = options.get("partitioner")
    if isinstance(word, str) and "." not in word:
        if word not in _PARTITIONERS:
            raise ConfigError(
                f"partitioner={word!r}: of librdkafka's only {', '.join(_PARTITIONERS)} is here. Give a function that chooses as it did: "
                "without one, keys go to other partitions than before"
            )
        options["partitioner"] = _PARTITIONERS[word]


def why_not(name: str) -> str | None:
    """Return why an option of Java or librdkafka is not supported, by any spelling of its name; None: it is no option of theirs."""
    # Imported for errors alone.
    from fnmatch import fnmatchcase

    spellings = (name, name.replace("_", "."))
    rows = (why for why, patterns in NOT_HERE if any(fnmatchcase(one, pattern) for one in spellings for pattern in patterns))
    return next(rows, None)


def say_unknown(name: Any, table: Mapping[str, Option], *, dotted: bool) -> str:
    """Return the error text for a name that is no option: the reason, or the nearest name, dotted or as a field."""
    if not isinstance(name, str):
        return f"an option's name is a string, not {type(name).__name__}"
    # Imported for errors alone.
    import difflib

    why = why_not(name)
    if why is not None:
        return f"{name!r} has no place here: {why}"
    names = _names(table)
    near = [name] if name in names else difflib.get_close_matches(name, names, 1, 0.6)
    if not near:
        return f"unknown option {name!r}"
    return f"unknown option {name!r}; did you mean {near[0] if dotted else names[near[0]].field!r}?"


# Reads options from environment variables: `KAFKA_LINGER_MS=5` is `linger_ms="5"`.
#
# Two beginnings of names are read. `AIOPRODUCER_` belongs to this package, so an unknown name is an error. The user's prefix, `KAFKA_` unless
# another one is given, is shared with other programs (`KAFKA_HEAP_OPTS`), so unknown names are left out, and one line of the log names them.


_log = logging.getLogger(__name__)

_OURS: Final = "AIOPRODUCER_"
# Variables of the package that are no options: two choose its build, one the folder of fetched files (aioproducer/testing/testing/jars.py).
_NO_OPTIONS: Final = frozenset({"PURE", "REQUIRE_EXT", "CACHE"})


def environment_options(prefix: str, table: Mapping[str, Option], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options that environment variables set, by the names that `options_of` takes. Secrets are hidden.

    An empty variable is as good as none. A variable of `AIOPRODUCER_` takes precedence over one of `prefix`.

    Args:
        prefix: the beginning of the names; an underscore at its end is not needed.
        table: all options.
        environ: the environment variables; None: those of the process.

    Raises:
        ConfigError: a variable of `AIOPRODUCER_` is no option (the text has the nearest), or one of `prefix` is not text.
    """
    beginning = prefix if prefix.endswith("_") or not prefix else f"{prefix}_"
    variables = os.environ if environ is None else environ
    shared, ours = _hidden(variables, beginning, table), _hidden(variables, _OURS, table)
    # From here on no frame holds the secrets of the environment.
    del environ, variables
    unknown = next((name for name in ours if known_name(name, table) is None and name.upper() not in _NO_OPTIONS), None)
    if unknown is not None:
        raise ConfigError(f"{_OURS}{unknown.upper()}: {say_unknown(unknown, table, dotted=False)}")
    if beginning != _OURS:
        _report(sorted(f"{beginning}{name.upper()}" for name in shared if known_name(name, table) is None))
    return {name: value for name, value in (shared | ours).items() if known_name(name, table) is not None}


def _report(left_out: list[str]) -> None:
    if left_out:
        _log.info("No option of a producer, and left out: %s", ", ".join(left_out))


def _hidden(environ: Mapping[str, str], beginning: str, table: Mapping[str, Option]) -> dict[str, Any]:
    """Return the variables with this prefix, by the names that `options_of` takes, or in lower case. Secrets are hidden.

    Empty variables are left out.
    """
    found: dict[str, Any] = {
        known_name(name, table) or name: value
        for variable, value in environ.items()
        if variable.startswith(beginning) and value and (name := variable[len(beginning) :].lower())
    }
    hide_secrets(found, table)
    return found
