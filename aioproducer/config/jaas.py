"""Reads `sasl.jaas.config`, in which Java clients write user and password, into values of this package.

The text is one login module of Java's, its control flag, and its options: `...PlainLoginModule required username="alice" password="...";`.
Source: Kafka's `JaasConfig`, which splits the text as `java.io.StreamTokenizer` does: quotes are `"` or `'`, a backslash escapes within
them, `//` and `/* */` are comments. Errors name options and modules that are known, and never quote anything else of the text.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.config.secret import Secret, is_reference
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Login", "read_jaas"]


_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
    "software.amazon.msk.auth.iam.IAMLoginModule": "AWS_MSK_IAM",
    "com.sun.security.auth.module.Krb5LoginModule": "GSSAPI",
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_USERNAME: Final = "username"
_PASSWORD: Final = "password"
_TOKEN_AUTH: Final = "tokenauth"
# Of OAUTHBEARER: what is an option here, by its name here, and whether it is a secret; and the beginning of the names of SASL extensions.
_BEARER: Final = {
    "clientId": ("sasl_oauthbearer_client_credentials_client_id", False),
    "clientSecret": ("sasl_oauthbearer_client_credentials_client_secret", True),
    "scope": ("sasl_oauthbearer_scope", False),
}
_EXTENSION: Final = "extension_"
# Of Amazon MSK's IAM: what is an option here, by its name here; None: it has no effect here. A role is assumed in the cluster's region.
_AWS: Final = {
    "awsProfileName": "sasl_aws_profile_name",
    "awsRoleArn": "sasl_aws_role_arn",
    "awsRoleSessionName": "sasl_aws_role_session_name",
    "awsStsRegion": None,
    "awsDebugCreds": None,
    "awsMaxRetries": None,
    "awsMaxBackOffTimeMs": None,
}
# Of Kerberos: what is an option here, by its name here; and flags, of which `True` must be true, `False` must be false, None may be either.
_KEYTAB: Final = "keyTab"
_TICKET_CACHE: Final = "ticketCache"
_KERBEROS: Final = {
    _KEYTAB: "sasl_kerberos_keytab",
    "principal": "sasl_kerberos_principal",
    "serviceName": "sasl_kerberos_service_name",
}
_KERBEROS_FLAGS: Final[Mapping[str, bool | None]] = {
    "useKeyTab": None,
    "useTicketCache": None,
    "storeKey": None,
    "doNotPrompt": None,
    "renewTGT": None,
    "refreshKrb5Config": None,
    "debug": None,
    "isInitiator": True,
    "useFirstPass": False,
    "tryFirstPass": False,
}
_OPTIONS: Final = {
    "PLAIN": (_USERNAME, _PASSWORD),
    "SCRAM": (_USERNAME, _PASSWORD, _TOKEN_AUTH),
    "OAUTHBEARER": (*_BEARER, _EXTENSION),
    "AWS_MSK_IAM": tuple(_AWS),
    "GSSAPI": (*_KERBEROS, *_KERBEROS_FLAGS, _TICKET_CACHE),
}
# Only what looks like a Java class of this kind is quoted in an error, as any other first word may be a password.
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
    """Holds what a login module is given.

    Attributes:
        module: the class of the login module.
        family: "PLAIN", "SCRAM", "OAUTHBEARER", "AWS_MSK_IAM" or "GSSAPI", the mechanisms that the module is for.
        username: the name, or a reference to it; None: the text has none.
        password: None: the text has none.
        token_auth: True if the two are a delegation token.
        others: the values of other options, by their names here.
    """

    module: str
    family: str
    username: Secret | str | None
    password: Secret | None
    token_auth: bool
    others: Mapping[str, Any] = MappingProxyType({})


class _Token(NamedTuple):
    """Holds a word, or one of the marks `;` and `=`. No mark has the text of a quoted one."""

    text: str
    is_mark: bool


def read_jaas(option: str, text: Secret) -> Login:
    """Read the value of `option`. References within it are not read.

    Raises:
        ConfigError: the text has not one login module of a known class, or its options are bad. No frame of the traceback holds the text.
    """
    found = _login(text.reveal()) if text.reference is None else 'a reference stands for one field within it, as password="${env:NAME}"'
    if isinstance(found, str):
        raise ConfigError(f"{option}: {found}")
    return found


def _login(text: str) -> Login | str:
    """Return what the text says, or why it is none."""
    tokens = list(_tokens(text))
    if None in tokens:
        return "a quote is not closed, or a character stands outside of quotes that must be quoted"
    known = [token for token in tokens if token is not None]
    ends = [number for number, token in enumerate(known) if token.is_mark and token.text == ";"]
    if not known:
        return "it is empty"
    if not ends or ends[-1] != len(known) - 1:
        return "it does not end with ';'"
    if len(ends) > 1:
        return f"it has {len(ends)} login modules: a client has one"
    return _module(known[:-1])


def _tokens(text: str) -> Iterator[_Token | None]:
    """Yield the words and marks of the text; None, at the end, where it cannot be split."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            yield None
            return
        at = match.end()
        if match["mark"] is not None:
            yield _Token(match["mark"], is_mark=True)
        elif match["skipped"] is None:
            quoted = match["double"] if match["double"] is not None else match["single"]
            yield _Token(match["word"] if quoted is None else _ESCAPE.sub(_character, quoted), is_mark=False)


def _character(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)


def _module(tokens: list[_Token]) -> Login | str:
    """Return the login of one entry: class, control flag, options."""
    name = "" if not tokens or tokens[0].is_mark else tokens[0].text
    family = _MODULES.get(name)
    if family is None:
        if _CLASS.fullmatch(name) is None:
            return f"its first word is not the class of a login module: {' or '.join(_MODULES)}"
        return f"{name} is not known here: it is {' or '.join(_MODULES)}"
    if len(tokens) == 1 or tokens[1].text.lower() not in _FLAGS:
        return f"behind the class of the login module stands one of {', '.join(_FLAGS)}"
    options = _options(tokens[2:], _OPTIONS[family])
    return options if isinstance(options, str) else _READERS[family](name, options)


def _options(tokens: list[_Token], known: tuple[str, ...]) -> dict[str, str] | str:
    """Return the options of an entry, or why they are none."""
    options: dict[str, str] = {}
    for at in range(0, len(tokens), 3):
        name, equals, value = (*tokens[at : at + 3], None, None)[:3]
        # A name that is not known may be a part of a password that was not quoted.
        if name is None or name.is_mark or not _is_known(name.text, known):
            return f"an option is not known: it is {' or '.join(known)}"
        if equals is None or not (equals.is_mark and equals.text == "=") or value is None or value.is_mark:
            return f'{name.text} has no value: write {name.text}="..."'
        if name.text in options:
            return f"{name.text} is given twice"
        options[name.text] = value.text
    return options


def _is_known(name: str, known: tuple[str, ...]) -> bool:
    return name in known or (_EXTENSION in known and name.startswith(_EXTENSION))


def _of_bearer(module: str, options: Mapping[str, str]) -> Login:
    """Return what the module of OAUTHBEARER is given: what the token endpoint is asked with, and SASL extensions."""
    others: dict[str, Any] = {}
    for name, (ours, is_secret) in _BEARER.items():
        if name in options:
            others[ours] = Secret(options[name]) if is_secret else options[name]
    extensions = {name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)}
    if extensions:
        others["sasl_oauthbearer_extensions"] = extensions
    return Login(module, _MODULES[module], None, None, token_auth=False, others=others)


def _of_aws(module: str, options: Mapping[str, str]) -> Login:
    """Return what the module of Amazon MSK's IAM is given."""
    others = {ours: options[name] for name, ours in _AWS.items() if ours is not None and name in options}
    return Login(module, _MODULES[module], None, None, token_auth=False, others=others)


def _of_password(module: str, options: Mapping[str, str]) -> Login | str:
    """Return what the modules of PLAIN and SCRAM are given."""
    flag = options.get(_TOKEN_AUTH, "false").lower()
    if flag not in {"true", "false"}:
        return f"{_TOKEN_AUTH} is true or false"
    username = options.get(_USERNAME)
    password = options.get(_PASSWORD)
    return Login(
        module,
        _MODULES[module],
        Secret(username) if username is not None and is_reference(username) else username,
        None if password is None else Secret(password),
        flag == "true",
    )


def _of_kerberos(module: str, options: Mapping[str, str]) -> Login | str:
    """Return what the module of Kerberos is given. Tickets are renewed by themselves here, and no password is asked for."""
    for name, wanted in _KERBEROS_FLAGS.items():
        flag = options.get(name, "").lower()
        if flag not in {"", "true", "false"}:
            return f"{name} is true or false"
        if flag and wanted is not None and (flag == "true") is not wanted:
            return f"{name} has to be {str(wanted).lower()} here: leave it out"
    if _TICKET_CACHE in options:
        return f"{_TICKET_CACHE} has no place here: set the variable KRB5CCNAME"
    if (options.get("useKeyTab", "").lower() == "true") is not (_KEYTAB in options):
        return f"useKeyTab=true and {_KEYTAB} need each other"
    others = {_KERBEROS[name]: value for name, value in options.items() if name in _KERBEROS}
    return Login(module, _MODULES[module], None, None, token_auth=False, others=others)


_READERS: Final[Mapping[str, Callable[[str, Mapping[str, str]], Login | str]]] = {
    "PLAIN": _of_password,
    "SCRAM": _of_password,
    "OAUTHBEARER": _of_bearer,
    "AWS_MSK_IAM": _of_aws,
    "GSSAPI": _of_kerberos,
}
