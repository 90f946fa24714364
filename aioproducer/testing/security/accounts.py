"""The users and delegation tokens that one fake broker knows, and their SCRAM credentials."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HASHES", "Accounts", "ScramCredential"]

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SALT_BYTES: Final = 20


class ScramCredential(NamedTuple):
    """Holds what a server stores of a password (RFC 5802 section 3), and its user.

    Attributes:
        salt: of the password.
        iterations: of PBKDF2.
        stored_key: proves the client.
        server_key: proves the server.
        owner: the user; of a delegation token its owner.
        ends: loop time at which the token expires; None: never.
    """

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    owner: str
    ends: float | None = None


class _Account(NamedTuple):
    password: str
    owner: str
    generation: int  # of the password: each has salts of its own
    ends: float | None = None

    def __repr__(self) -> str:
        return f"<account of {self.owner}>"


class Accounts:
    """Holds the users and delegation tokens of one broker.

    A new password has new salts, which are equal on all brokers and in each run: a seed of the simulation repeats byte for byte.

    Args:
        users: passwords by user.
        iterations: of SCRAM credentials.
    """

    def __init__(self, users: Mapping[str, str], iterations: int) -> None:
        self.iterations = iterations
        self._users = {user: _Account(password, user, 0) for user, password in users.items()}
        self._tokens: dict[str, _Account] = {}
        self._credentials: dict[tuple[object, ...], ScramCredential] = {}

    def copy(self) -> Accounts:
        """Return accounts of the same users, for another broker."""
        other = Accounts({}, self.iterations)
        other._users, other._tokens = dict(self._users), dict(self._tokens)
        # a generation has one password on all brokers
        other._credentials = self._credentials
        return other

    def grant(self, user: str, password: str, generation: int) -> None:
        """Add a user, or change the password. `generation` is a number that no earlier password has."""
        self._users[user] = _Account(password, user, generation)

    def grant_token(
        self, token_id: str, token_hmac: str, owner: str, generation: int, ends: float
    ) -> None:
        """Add a delegation token (KIP-48), which expires at the loop time `ends`."""
        self._tokens[token_id] = _Account(token_hmac, owner, generation, ends)

    def revoke(self, name: str) -> bool:
        """Remove a user or a delegation token. Returns whether it was there."""
        found = self._users.pop(name, None), self._tokens.pop(name, None)
        return any(found)

    def knows(self, user: str) -> bool:
        """Return whether the user has an account."""
        return user in self._users

    def accepts(self, user: str, password: str) -> bool:
        """Return whether this is the user's password."""
        account = self._users.get(user)
        return account is not None and hmac.compare_digest(
            account.password.encode(), password.encode()
        )

    def scram(
        self, mechanism: str, name: str, *, is_token: bool, now: float
    ) -> ScramCredential | None:
        """Return the SCRAM credential of a user, or of a delegation token that has not expired; None: there is none."""
        account = (self._tokens if is_token else self._users).get(name)
        if account is None or (account.ends is not None and account.ends <= now):
            return None
        kept = (mechanism, name, is_token, account.generation, self.iterations)
        if kept not in self._credentials:
            self._credentials[kept] = self._derived(mechanism, name, account)
        return self._credentials[kept]

    def _derived(self, mechanism: str, name: str, account: _Account) -> ScramCredential:
        hash_name = HASHES[mechanism]
        salt = hashlib.sha256(f"{mechanism} {name} {account.generation}".encode()).digest()[
            :_SALT_BYTES
        ]
        # as Kafka's ScramFormatter: the password is UTF-8 without SASLprep
        salted = hashlib.pbkdf2_hmac(hash_name, account.password.encode(), salt, self.iterations)
        stored = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
        return ScramCredential(
            salt,
            self.iterations,
            stored,
            hmac.digest(salted, b"Server Key", hash_name),
            account.owner,
            account.ends,
        )
