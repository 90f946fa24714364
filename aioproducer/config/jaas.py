"""Reads `sasl.jaas.config`, in which Java clients write user and password, into values of this package.

The text is one login module of Java's, its control flag, and its options: `...PlainLoginModule required username="alice" password="...";`.
Source: Kafka's `JaasConfig`, which splits the text as `java.io.StreamTokenizer` does: quotes are `"` or `'`, a backslash escapes within
them, `//` and `/* */` are comments. Errors name options and modules that are known, and never quote anything else of the text: any other word
may be a part of a password that was not quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from aioproducer.config.option_kinds import unquoted
from aioproducer.config.secret import is_reference
from aioproducer.errors import ConfigError

# SASL extensions of OAUTHBEARER have names with this beginning.
_EXTENSION: Final = "extension_"
_USER: Final = {"username": "sasl_username", "password": "sasl_password"}
# Options of Kerberos that are true or false; of some only one of the two is what happens here.
_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "useKeyTab",
            "useTicketCache",
            "storeKey",
            "doNotPrompt",
            "renewTGT",
            "refreshKrb5Config",
            "debug",
        ),
        ("true", "false"),
    ),
    "isInitiator": ("true",),
    "useFirstPass": ("false",),
    "tryFirstPass": ("false",),
}
# A role is assumed in the cluster's region.
_AWS: Final[Mapping[str, str | None]] = {
    "awsProfileName": "sasl_aws_profile_name",
    "awsRoleArn": "sasl_aws_role_arn",
    "awsRoleSessionName": "sasl_aws_role_session_name",
    **dict.fromkeys(("awsStsRegion", "awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")),
}
# The mechanism of each login module, and what its options are here; None: it is read below, or has no effect here.
_MODULES: Final[Mapping[str, tuple[str, Mapping[str, str | None]]]] = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN", _USER),
    "org.apache.kafka.common.security.scram.ScramLoginModule": (
        "SCRAM",
        {**_USER, "tokenauth": "sasl_token_auth"},
    ),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": (
        "OAUTHBEARER",
        {
            "clientId": "sasl_oauthbearer_client_credentials_client_id",
            "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
            "scope": "sasl_oauthbearer_scope",
            _EXTENSION: None,
            # TLS of the token endpoint
            "ssl.truststore.location": "https_ca_location",
            "ssl.truststore.certificates": "https_ca_pem",
            **dict.fromkeys(("ssl.truststore.type", "ssl.protocol")),
            **_AWS,
        },
    ),
    "software.amazon.msk.auth.iam.IAMLoginModule": ("AWS_MSK_IAM", _AWS),
    # tickets are renewed by themselves here, and no password is asked for
    "com.sun.security.auth.module.Krb5LoginModule": (
        "GSSAPI",
        {
            "keyTab": "sasl_kerberos_keytab",
            "principal": "sasl_kerberos_principal",
            "serviceName": "sasl_kerberos_service_name",
            **dict.fromkeys((*_FLAGS, "ticketCache")),
        },
    ),
}
_CONTROLS: Final = ("required", "requisite", "sufficient", "optional")
# Only what looks like a Java class of this kind is quoted in an error.
_CLASS: Final = re.compile(r"(?:[a-z_]\w*\.)+[A-Z]\w*LoginModule")
_TOKEN: Final = re.compile(
    r"""(?P<skipped>\s+ | //[^\r\n]* | /\*.*?\*/)
    | "(?P<double>(?:\\.|[^"\\\r\n])*)"
    | '(?P<single>(?:\\.|[^'\\\r\n])*)'
    | (?P<mark>[;=])
    | (?P<word>\$\{[^{}\s]+\} | [\w$.\u00a0-\U0010ffff-]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Login(NamedTuple):
    """Holds what a login module is given: its class, the beginning of its mechanism's name, and values by their options' names here."""

    module: str
    family: str
    fields: Mapping[str, Any]


class _Token(NamedTuple):
    """Holds a word, or one of the marks `;` and `=`. No mark has the text of a quoted one."""

    text: str
    is_mark: bool


def read_jaas(option: str, text: str) -> Login:
    """Read the value of `option`. References within it are not read.

    Raises:
        ConfigError: the text has not one login module of a known class, or its options are bad.
    """
    if is_reference(text):
        raise ConfigError(
            f'{option}: a reference stands for one field within it, as password="${{env:NAME}}"'
        )
    try:
        return _login(list(_tokens(unquoted(text))))
    except ValueError as why:
        raise ConfigError(f"{option}: {why}") from None


def class_of(name: str, known: Iterable[str]) -> str | None:
    """Return the class that a name means: libraries that shade Kafka's (Databricks, Amazon) put a package before its own."""
    return next((one for one in known if f".{name}".endswith(f".{one}")), None)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(
                "a quote is not closed, or a character stands outside of quotes that must be quoted"
            )
        at = match.end()
        if match["mark"] is not None:
            yield _Token(match["mark"], is_mark=True)
        elif match["word"] is not None:
            yield _Token(match["word"], is_mark=False)
        elif match["skipped"] is None:
            quoted = match["double"] if match["double"] is not None else match["single"]
            yield _Token(_ESCAPE.sub(_character, quoted), is_mark=False)


def _character(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)


def _login(tokens: list[_Token]) -> Login:
    """Return what one entry says: class, control flag, options."""
    end = _Token(";", is_mark=True)
    if not tokens:
        raise ValueError("it is empty")
    if tokens[-1] != end:
        raise ValueError("it does not end with ';'")
    if tokens.count(end) > 1:
        raise ValueError(f"it has {tokens.count(end)} login modules: a client has one")
    name = tokens[0].text
    module = class_of(name, _MODULES)
    if module is None:
        known = " or ".join(_MODULES)
        raise ValueError(
            f"{name} is not known here: it is {known}"
            if _CLASS.fullmatch(name)
            else f"its first word is not the class of a login module: {known}"
        )
    if tokens[1].text.lower() not in _CONTROLS:
        raise ValueError(
            f"behind the class of the login module stands one of {', '.join(_CONTROLS)}"
        )
    family, places = _MODULES[module]
    options = _options(tokens[2:-1], places)
    _check_flags(options)
    fields: dict[str, Any] = {
        ours: options[theirs]
        for theirs, ours in places.items()
        if ours is not None and theirs in options
    }
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    if extensions:
        fields["sasl_oauthbearer_extensions"] = extensions
    return Login(name, family, fields)


def _options(tokens: list[_Token], known: Mapping[str, Any]) -> dict[str, str]:
    options: dict[str, str] = {}
    for at in range(0, len(tokens), 3):
        name, *rest = tokens[at : at + 3]
        if name.is_mark or not (
            name.text in known or (_EXTENSION in known and name.text.startswith(_EXTENSION))
        ):
            raise ValueError(f"an option is not known: it is {' or '.join(known)}")
        if len(rest) < 2 or rest[0] != _Token("=", is_mark=True) or rest[1].is_mark:
            raise ValueError(f'{name.text} has no value: write {name.text}="..."')
        if name.text in options:
            raise ValueError(f"{name.text} is given twice")
        options[name.text] = rest[1].text
    return options


def _check_flags(options: Mapping[str, str]) -> None:
    for name, accepted in (*_FLAGS.items(), ("tokenauth", ("true", "false"))):
        if name in options and options[name].lower() not in accepted:
            raise ValueError(f"{name} is {' or '.join(accepted)} here")
    if "ticketCache" in options:
        raise ValueError("ticketCache has no place here: set the variable KRB5CCNAME")
    if (options.get("useKeyTab", "").lower() == "true") is not ("keyTab" in options):
        raise ValueError("useKeyTab=true and keyTab need each other")
