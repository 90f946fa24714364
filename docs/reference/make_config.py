"""Writes `config.md` beside it, of the table of options in `aioproducer/config/producer_config.py`: `python docs/reference/make_config.py`."""

from __future__ import annotations

import enum
import pathlib
from typing import TYPE_CHECKING

from aioproducer.config.producer_config import OPTIONS, ProducerConfig
from aioproducer.config.security_options import SECURITY_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.config.option_kinds import Option

PAGE = pathlib.Path(__file__).with_name("config.md")

HEAD = """\
# Options

<!-- Made by docs/reference/make_config.py of aioproducer/config/producer_config.py: change it there. -->

`Producer(linger_ms=5)`, or one `ProducerConfig(linger_ms=5)` for several producers. Both check everything at once, and do no I/O. Values
may be text, as in environment files; integers of numpy's and other types are integers, and `Decimal`, numpy's floats and `timedelta` are taken
for times. `producer.config` shows what is in force. `config.replace(linger_ms=5)` returns a config with other options, and
`Producer(config, linger_ms=5)` takes it: options beside a config take precedence over the config's.

Type checkers and editors know the options as `aioproducer.ProducerOptions`, which also serves as a field of a settings class.
`Producer(**settings)` takes the options of such a class. `inspect.signature(ProducerConfig)` and `help` show each option with its type and default. A
class may derive from `ProducerConfig`, to check more in its `__post_init__`.

`ProducerConfig.from_mapping({"linger.ms": "5"})` takes Java's names, which are ours with dots for underscores unless the table says
otherwise, and librdkafka's, with their values and units; librdkafka's `compression.level` is that of the codec which is chosen.

`Producer.from_env()` and `ProducerConfig.from_env()` read environment variables: `KAFKA_BOOTSTRAP_SERVERS`, `KAFKA_LINGER_MS`, and so on,
each name of the table below, or of Java's or librdkafka's, with underscores and in upper case; `from_env(prefix="SHOP_")` reads those of
another prefix. An empty variable counts as none. A name that is no option is left out, since other programs share the prefix
(`KAFKA_HEAP_OPTS`); one line of the log names them all.

A password may be in the variable, or the variable holds a [reference](#tls-and-sasl) to it, as `KAFKA_SASL_PASSWORD='${file:/run/secrets/kafka}'`.
"""

FIRST = """\
## The ones that you will touch

Most programs set the first, and few more than these. All others have defaults that suit a service and a job alike.

"""

ALL = """\
## All options

"""

# What most programs set: where, safety, latency against throughput, memory and the two limits of waiting.
TOUCHED = (
    "bootstrap_servers",
    "compression_type",
    "linger_ms",
    "max_block_ms",
    "delivery_timeout_ms",
    "buffer_memory",
)

CONFLICTS = """\
## Options that depend on each other

If two options that you gave exclude each other, the constructor raises `ConfigError`. A default gives way to a given option, with one warning:

- `delivery_timeout_ms` is at least `linger_ms + request_timeout_ms`; `auto` counts as 0.
- A first pause or time (`retry_backoff_ms`, `reconnect_backoff_ms`, `socket_connection_setup_timeout_ms`) is not above its `max`.
- Where `reconnect_backoff_ms` is given alone, `reconnect_backoff_max_ms` is the same: the pause does not grow (as in Java).
- `buffer_memory` holds at least one batch of `batch_size`.
- zstd needs `message_format_max=2`; a partitioner of your own decides about keys by itself, without `partitioner_ignore_keys`.
"""

SECURITY = """\
## TLS and SASL

Java's names with underscores; [porting](../topics/porting.md#tls-and-sasl) has those of other clients, which `from_mapping` takes, and
`Producer` where they are names of Python arguments. An unknown name is an error, with the nearest known one. `bootstrap_servers="SASL_SSL://host:port"` needs no `security_protocol`.
"""

SECRETS = """\
Passwords and keys are held as `Secret`: no repr, log, error, pickle or JSON shows one. In place of its text each may be a
reference, which is read at each use, so that a new password needs no restart:

| reference | what it is |
|---|---|
| `${env:NAME}` | an environment variable |
| `${file:/path:key}` | a key of a properties file |
| `${file:/path}` | a whole file, without blanks at its ends |
| `${dir:/path:file}` | a file of a directory, without blanks at its ends |

A reference is the whole value of a secret option, of `sasl_username`, or of `username` or `password` in `sasl.jaas.config`, and is read
nowhere else; any other text, as Azure's `$ConnectionString`, stands for itself. A config can be pickled when its secrets are references.
A secret that is `${NAME}`, without `env:`, logs a warning.
`config.providers` may give Kafka's own providers (`EnvVarConfigProvider`, `FileConfigProvider`, `DirectoryConfigProvider`) other names.

Java's classes of security and of providers may be those of a library that shades Kafka's: `kafkashaded.org.apache.kafka...` of Databricks is `org.apache.kafka...`.

An option that the protocol does not use is an error, as is one that contradicts another; a value that is another client's default
(`sasl_mechanism="PLAIN"` without SASL, None) is left out.

- `SASL_PLAINTEXT` and `SASL_SSL` need `sasl_mechanism`; PLAIN and SCRAM need `sasl_username` and `sasl_password`. `sasl.jaas.config` stands
  for the last two: `PlainLoginModule` or `ScramLoginModule`; its `tokenauth=true` is `sasl_token_auth`. PLAIN without TLS logs a warning.
- OAUTHBEARER needs `sasl_oauthbearer_token` or `sasl_oauthbearer_token_endpoint_url`, and the options of tokens are for it alone. In
  `sasl.jaas.config` it is `OAuthBearerLoginModule`; its `extension_NAME` are `sasl_oauthbearer_extensions`, and its
  `ssl.truststore.location` and `.certificates` are `https_ca_location` and `https_ca_pem`. Without TLS it logs a warning.
- OAUTHBEARER with Amazon's `IAMOAuthBearerLoginCallbackHandler` is AWS_MSK_IAM.
- A [token endpoint](../topics/security.md#token-endpoints) needs a client id and a secret. `https_ca_location` and `https_ca_pem` exclude each
  other, and need https. What a client proves by an assertion (JWT bearer, `private_key_jwt`) is done by a
  [token function](../topics/recipes.md#tokens-for-a-signed-assertion).
- GSSAPI has neither user name nor password, and needs no option: tickets come from the ticket cache. `Krb5LoginModule` in `sasl.jaas.config`
  is read into the options of Kerberos (`keyTab`, `principal`, `serviceName`; what Java needs besides is left out).
- `ssl_context` is alone: other `ssl_` options are an error beside it. `ssl_endpoint_identification_algorithm` may say what its `check_hostname`
  says: another word is an error, too.
- The client's key is in one of `ssl_keystore_location` (with its certificates), `ssl_keystore_key` with `ssl_keystore_certificate_chain`, or
  `ssl_key_location` with `ssl_certificate_location`.
- `ssl_endpoint_identification_algorithm=none` logs a warning. `enable.ssl.certificate.verification=false` is refused.
- `ssl.protocol` is left out where it says no less than TLSv1.2. In kafka-python's words, `ssl_check_hostname=False` is `none`.
"""


def page() -> str:
    """The whole page."""
    defaults = ProducerConfig()
    rows = {
        name: (
            f"`{name}`",
            _default(getattr(defaults, name)),
            one.kind.values,
            one.doc,
            _others(name, one),
        )
        for name, one in OPTIONS.items()
    }
    head = ("option", "default", "values", "what it is", "other names")
    return "\n".join(
        [
            HEAD,
            FIRST + _table(head[:4], [rows[name][:4] for name in TOUCHED]),
            ALL + _table(head, [row for name, row in rows.items() if name not in SECURITY_NAMES]),
            CONFLICTS,
            SECURITY,
            _table(head, [row for name, row in rows.items() if name in SECURITY_NAMES]),
            SECRETS,
        ]
    )


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"`{value.name.lower()}`"
    if value == ():
        return "none"
    if value == "":
        return "empty"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    return (
        f"`{value:.0f}`"
        if isinstance(value, float)
        else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _others(name: str, option: Option) -> str:
    java = {"": [], None: ["none in Java"]}.get(option.java, [f"`{option.java}`"])
    return ", ".join([*java, *(f"`{other}`" for other in option.aliases if other != name)])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
