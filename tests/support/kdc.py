"""A Kerberos realm on loopback for tests: MIT's KDC in a temporary folder, its principals, keytabs and tickets.

    with Kdc() as kdc:
        kdc.add("alice")
        kdc.keytab("alice")                             # the path of a keytab
        kdc.kinit("alice")                              # the path of a ticket cache
        os.environ |= kdc.environment                   # KRB5_CONFIG; and KRB5CCNAME=... for a ticket cache
        security = KafkaSecurity(users={}, kerberos=kdc.broker())

It needs the programs `krb5kdc`, `kdb5_util`, `kadmin.local` and `kinit`: on Debian the packages krb5-kdc, krb5-admin-server and krb5-user.
It needs no rights of root, and reads and writes no file of the system.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import KafkaError
from aioproducer.testing.kafka_server import HOST, free_ports, guarded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

__all__ = ["REALM", "BrokerKerberos", "Kdc", "KdcFailed"]


REALM: Final = "EXAMPLE.TEST"
_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
# Debian has programs of administrators there, which is in the PATH of root alone.
_ADMINISTRATORS: Final = "/usr/sbin"
_START_SECONDS: Final = 10.0
_TOOL_SECONDS: Final = 30.0

_KRB5_CONF: Final = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 dns_canonicalize_hostname = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {host}:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_KDC_CONF: Final = """\
[kdcdefaults]
 kdc_listen = {host}:{port}
 kdc_tcp_listen = {host}:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/kadm5.acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  max_life = 1h
 }}
[logging]
 kdc = FILE:{folder}/kdc.log
"""


class KdcFailed(KafkaError):
    """Reports a program of Kerberos that is missing, failed or did not start; the text contains what it printed."""


class BrokerKerberos(NamedTuple):
    """Holds what a broker needs to take tickets.

    Attributes:
        principal: the broker's, such as "kafka/localhost@EXAMPLE.TEST".
        keytab: the path of its key.
        config: the path of the realm's `krb5.conf`.
    """

    principal: str
    keytab: Path
    config: Path


class Kdc:
    """Runs a KDC of the realm EXAMPLE.TEST in a process of its own.

    Attributes:
        folder: holds its files, until `__exit__` removes it.
        environment: the variables by which programs and libraries find the realm.
    """

    def __init__(self) -> None:
        self.folder: Path = Path(tempfile.mkdtemp(prefix="aioproducer-kdc-"))
        self._port = free_ports(1)[0]
        self.environment: Mapping[str, str] = {"KRB5_CONFIG": str(self.folder / "krb5.conf")}
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> list[str]:
        """Return the programs that are not installed."""
        return [name for name in _PROGRAMS if _found(name) is None]

    def __enter__(self) -> Self:
        """Make the realm and start its KDC, in 0.2 s.

        Raises:
            KdcFailed: a program is missing or failed, or the KDC did not answer within 10 s.
        """
        try:
            missing = self.missing()
            if missing:
                raise KdcFailed(
                    f"{', '.join(missing)} not found: apt-get install krb5-kdc krb5-admin-server krb5-user"
                )
            told = {"realm": REALM, "host": HOST, "port": self._port, "folder": self.folder}
            (self.folder / "krb5.conf").write_text(_KRB5_CONF.format(**told), encoding="utf-8")
            (self.folder / "kdc.conf").write_text(_KDC_CONF.format(**told), encoding="utf-8")
            # -W: the random numbers of a test need no patience; the master key is stashed in the folder
            self._run("kdb5_util", "create", "-s", "-W", "-r", REALM, "-P", "canary-master")
            self.start()
        # no process and no folder stays behind, whatever ends the start
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the KDC and remove the folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the process of the KDC, and wait until it listens.

        Raises:
            KdcFailed: it did not within 10 s, or ended.
        """
        log = (self.folder / "kdc.out").open("ab")
        with log:
            self._process = subprocess.Popen(
                guarded([str(_found("krb5kdc")), "-n", "-r", REALM]),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise KdcFailed(
                    f"krb5kdc does not listen\n{(self.folder / 'kdc.out').read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.01)

    def stop(self) -> None:
        """Kill the process of the KDC, if it runs; its database remains."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def add(self, name: str, *options: str) -> str:
        """Add a principal with a random key. Returns its full name. `options` are those of kadmin's `addprinc`."""
        self._kadmin("addprinc", "-randkey", *options, name)
        return f"{name}@{REALM}"

    def keytab(self, name: str) -> Path:
        """Return the path of a new keytab of a principal. Its key is the one that it has already."""
        path = self.folder / f"{name.replace('/', '-')}-{time.monotonic_ns()}.keytab"
        self._kadmin("ktadd", "-norandkey", "-k", str(path), name)
        return path

    def kinit(self, name: str, *options: str) -> Path:
        """Return the path of a new ticket cache of a principal; `options` are those of `kinit`, such as "-l", "1h"."""
        path = self.folder / f"{name}-{time.monotonic_ns()}.cache"
        self._run(
            "kinit",
            *options,
            "-c",
            str(path),
            "-k",
            "-t",
            str(self.keytab(name)),
            f"{name}@{REALM}",
        )
        return path

    def broker(self, service: str = "kafka", host: str = "localhost") -> BrokerKerberos:
        """Add the principal of a broker, and return what it needs."""
        name = f"{service}/{host}"
        return BrokerKerberos(self.add(name), self.keytab(name), self.folder / "krb5.conf")

    def _kadmin(self, *words: str) -> None:
        self._run("kadmin.local", "-r", REALM, *words)

    def _run(self, program: str, *words: str) -> None:
        command = [str(_found(program)), *words]
        done = subprocess.run(
            command,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TOOL_SECONDS,
            check=False,
        )
        # kadmin.local reports some errors of its commands by its text alone
        if done.returncode or (program == "kadmin.local" and done.stderr):
            raise KdcFailed(
                f"{program} {' '.join(words)} failed: {(done.stderr + done.stdout).decode(errors='replace').strip()}"
            )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}


def _found(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=_ADMINISTRATORS)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1.0):
        return True
    return False
