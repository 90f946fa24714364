"""Makes the security contexts of GSSAPI by the package `gssapi`, over the system's Kerberos library.

1. Tickets come from the ticket cache (KRB5CCNAME, or the default of krb5.conf), or by a keytab into a cache in memory; the library gets
   new ones from a keytab by itself.
2. Each connection has a context and credentials of its own, so that a new ticket is used from the next connection or renewal on.
3. All calls block, for files or a KDC, and are made in threads. The package is imported by the first of them.
4. A fault that may pass is `TokenUnavailable`: no ticket, one that expired, no KDC, clocks that differ. What the KDC says of the client or
   the service is `CredentialsRefused`: attempts go on slowly, so that no account is locked.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import (
    AuthenticationFailed,
    BrokerNotTrusted,
    ConfigError,
    CredentialsRefused,
    TokenUnavailable,
    printable,
)
from aioproducer.sasl.gssapi import Gssapi

if TYPE_CHECKING:
    from types import ModuleType

    from aioproducer.config.security_options import SecurityOptions

_PACKAGE: Final = "gssapi"
_MISSING: Final = (
    f"sasl_mechanism=GSSAPI needs the package {_PACKAGE}: pip install 'aioproducer[kerberos]'. It has no wheel for Linux, where it is "
    "compiled: apt-get install gcc python3-dev libkrb5-dev, or dnf install gcc python3-devel krb5-devel"
)
_DEFAULT_PRINCIPAL: Final = "the principal of the ticket cache"
_OF_KEYTAB: Final = "the first principal of the keytab"
# Kerberos' libraries count their errors from here; the first 128 are those of RFC 4120, section 7.5.9.
_FIRST_CODE: Final = -1765328384
_MASK: Final = 0xFFFF_FFFF
_TICKET_EXPIRED: Final = 32
# The routine error of RFC 2744, section 3.9.1, which has no number of Kerberos with it.
_CREDENTIALS_EXPIRED: Final = 11 << 16
_ROUTINE: Final = 0xFF << 16
_NO_CACHE: Final = (141, 195)
_NEW_TICKET: Final = (
    "run kinit, or give sasl_kerberos_keytab, by which tickets are renewed without it"
)
_NEW_KEYTAB: Final = "the key is not the KDC's: make the keytab anew"


# What the KDC refuses, which is CredentialsRefused; and what may pass, which is TokenUnavailable: by number, what to do.
_REFUSALS: Final = {
    1: "the account has expired",
    2: "the service's account has expired",
    6: "check sasl_kerberos_principal",
    7: "check sasl_kerberos_service_name, and that the KDC has the broker's advertised name; if not, give sasl_kerberos_domain_name",
    12: "the KDC's policy forbids it",
    14: "the KDC has no encryption type in common with this client: see permitted_enctypes in krb5.conf",
    18: "the account is locked",
    19: "the service's account is locked",
    20: _NEW_TICKET,
    23: "the password has expired: change it",
    24: _NEW_KEYTAB,
    31: _NEW_KEYTAB,
}
_PASSING: Final = {
    _TICKET_EXPIRED: _NEW_TICKET,
    **dict.fromkeys(
        (33, 37, 147),
        "the clocks of this machine, the KDC and the broker must agree within 5 minutes",
    ),
    154: "see [realms] and [domain_realm] in krb5.conf",
    156: "check that the KDC runs and can be reached from here",
    **dict.fromkeys(_NO_CACHE, _NEW_TICKET),
}
# One call of the library renews a ticket; others find the old one meanwhile.
_RENEWED: Final = "the library fetches a new one by the keytab, which the next attempt finds"
_UNKNOWN: Final = "see krb5.conf, and what kinit says"


class Kerberos:
    """Makes the mechanism GSSAPI of each connection of a producer.

    Raises:
        ConfigError: the package `gssapi` is not installed.
    """

    def __init__(self, config: SecurityOptions) -> None:
        if sys.modules.get(_PACKAGE) is None and importlib.util.find_spec(_PACKAGE) is None:
            raise ConfigError(_MISSING)
        self._config = config

    @property
    def user(self) -> str:
        """Return the principal, or where it comes from, for error texts."""
        return self._config.sasl_kerberos_principal or (
            _DEFAULT_PRINCIPAL if self._config.sasl_kerberos_keytab is None else _OF_KEYTAB
        )

    def mechanism(self, host: str) -> Gssapi:
        """Return the mechanism of one authentication. `host` is the broker's name, as it would stand in its certificate."""
        service = f"{self._config.sasl_kerberos_service_name}@{self._config.sasl_kerberos_domain_name or host}"
        return Gssapi(service, self.user, partial(self._open, service))

    def _open(self, service: str) -> _Context:
        """Return a new context. The call reads files, and may ask a KDC or the DNS."""
        api = _package()
        config = self._config
        told = _Told(service, self.user, config.sasl_kerberos_keytab)
        try:
            name = (
                None
                if config.sasl_kerberos_principal is None
                else api.Name(config.sasl_kerberos_principal, api.NameType.kerberos_principal)
            )
            credentials = api.Credentials(name=name, usage="initiate", store=self._store())
            told = told._replace(principal=str(credentials.name))
            context = api.SecurityContext(
                name=api.Name(service, api.NameType.hostbased_service),
                creds=credentials,
                mech=api.MechType.kerberos,
                flags=api.RequirementFlag.mutual_authentication | api.RequirementFlag.integrity,
                usage="initiate",
            )
        except api.exceptions.GSSError as error:
            raise told.explain(error) from error
        return _Context(context, told, api.exceptions.GSSError)

    def _store(self) -> dict[str, str] | None:
        """Return where tickets come from; None: the ticket cache."""
        keytab = self._config.sasl_kerberos_keytab
        if keytab is None:
            return None
        # producers with the same keytab share its tickets; the library keeps those of a cache in memory until the process ends
        name = hashlib.sha256(
            f"{keytab}\0{self._config.sasl_kerberos_principal}".encode()
        ).hexdigest()[:32]
        return {"client_keytab": keytab, "ccache": f"MEMORY:aioproducer-{name}"}


class _Told(NamedTuple):
    """Holds what error texts name."""

    service: str
    principal: str
    keytab: str | None

    def explain(self, error: Any) -> AuthenticationFailed:
        """Return the error of this package for one of the library's about tickets."""
        has_expired = error.maj_code & _ROUTINE == _CREDENTIALS_EXPIRED
        number = _TICKET_EXPIRED if has_expired else (error.min_code - _FIRST_CODE) & _MASK
        advice = _REFUSALS.get(number) or _PASSING.get(number, _UNKNOWN)
        said = _said(error)
        if number in _NO_CACHE and self.keytab is not None:
            # the library says of a keytab that it cannot use just that there is no cache
            said, advice = self._of_keytab(self.keytab)
        elif number == _TICKET_EXPIRED and self.keytab is not None:
            advice = _RENEWED
        text = f"no Kerberos ticket for {self.service} as {self.principal}: {said}; {advice}"
        return (CredentialsRefused if number in _REFUSALS else TokenUnavailable)(
            text, "token", Gssapi.name
        )

    def _of_keytab(self, keytab: str) -> tuple[str, str]:
        path = keytab.removeprefix("FILE:")
        if not os.access(path, os.R_OK):
            return (
                f"the keytab {path} cannot be read",
                "check sasl_kerberos_keytab and the file's rights",
            )
        return (
            f"the keytab {path} has no key of this principal",
            "`klist -k` shows its principals: give sasl_kerberos_principal",
        )

    def not_trusted(self, error: Any) -> AuthenticationFailed:
        """Return the error of this package for one of the library's about the broker's message."""
        return BrokerNotTrusted(
            f"GSSAPI: {self.service} does not prove its identity: {_said(error)}",
            "sasl",
            Gssapi.name,
        )


class _Context:
    """Is the client's side of a security context (an `aioproducer.sasl.gssapi.Context`).

    Args:
        context: of the package `gssapi`.
        told: what error texts name.
        gss_error: the root of the package's errors.
    """

    def __init__(self, context: Any, told: _Told, gss_error: type[Exception]) -> None:
        self.principal = told.principal
        self._context = context
        self._told = told
        self._gss_error = gss_error

    @property
    def complete(self) -> bool:
        """Return True if both sides have proved their identity."""
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        """Take the broker's token, or None to begin. Returns the token to send; None: there is none. The first call asks the KDC.

        Raises:
            TokenUnavailable, CredentialsRefused: there is no ticket.
            BrokerNotTrusted: the broker's token is wrong.
        """
        try:
            made: bytes | None = self._context.step(token)
        except self._gss_error as error:
            raise (self._told.explain if token is None else self._told.not_trusted)(
                error
            ) from error
        return made

    def wrap(self, data: bytes) -> bytes:
        """Return a message with its proof of origin, not encrypted."""
        wrapped: bytes = self._context.wrap(data, False).message
        return wrapped

    def unwrap(self, message: bytes) -> bytes:
        """Return what the broker wrapped.

        Raises:
            BrokerNotTrusted: its proof of origin is wrong.
        """
        try:
            data: bytes = self._context.unwrap(message).message
        except self._gss_error as error:
            raise self._told.not_trusted(error) from error
        return data


def _package() -> ModuleType:
    """Return the package `gssapi`.

    Raises:
        ConfigError: it cannot be imported, such as for lack of the system's library.
    """
    try:
        return importlib.import_module(_PACKAGE)
    except ImportError as error:
        raise ConfigError(f"{_MISSING}. Its import failed: {error}") from error


def _said(error: Any) -> str:
    """Return the library's own words for an error: those of Kerberos, or of GSSAPI where Kerberos says none."""
    has_number = error.min_code and error.maj_code & _ROUTINE != _CREDENTIALS_EXPIRED
    code = error.min_code if has_number else error.maj_code
    return printable("; ".join(error.get_all_statuses(code, not has_number)))
