"""Holds Java's and librdkafka's option names: their fields here, their units, and why some are not supported.

Sources: Kafka's `ProducerConfig`, `SslConfigs` and `SaslConfigs`; librdkafka's CONFIGURATION.md.
The table of options is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError
from aioproducer.named_tuples import NamedTuple
from aioproducer.option_kinds import whole_number
from aioproducer.secret import hide
from aioproducer.secure_kinds import is_secret
from aioproducer.secure_names import TRANSLATED, is_translated, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer.option_kinds import Option

__all__ = ["NOT_HERE", "hide_secrets", "keyword_options", "known_name", "options_of", "say_unknown", "why_not"]

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
