"""Checks bearer tokens as Amazon MSK does, and plays AWS's STS, for tests: written from the descriptions of Signature Version 4 and of STS.

Sources: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)"; README of aws-msk-iam-auth; STS's API AssumeRole.
"""

from __future__ import annotations

import base64
import calendar
import contextlib
import hashlib
import hmac
import http.server
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ACCESS_KEY", "SECRET_KEY", "MskAuthority", "offline", "sts"]

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "canary-wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class MskAuthority:
    """Verifies tokens as the brokers of a region do.

    Args:
        region: of the cluster.
        keys: secret keys by access key.
        sessions: session tokens by access key, for keys that have one.

    Attributes:
        verified: the parameters of each good token, in order.
    """

    def __init__(
        self, region: str, keys: Mapping[str, str], sessions: Mapping[str, str] | None = None
    ) -> None:
        self.verified: list[dict[str, str]] = []
        self._region = region
        self._keys = dict(keys)
        self._sessions = dict(sessions or {})

    def __call__(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token; None: it is not good."""
        url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii"))
        told = dict(parse_qsl(url.query, strict_parsing=True))
        key, date, region, service, ending = told["X-Amz-Credential"].split("/")
        signed_at = calendar.timegm(time.strptime(told["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
        good = (
            "=" not in token,
            (url.scheme, url.hostname, url.path)
            == ("https", f"kafka.{self._region}.amazonaws.com", "/"),
            told["Action"] == "kafka-cluster:Connect",
            told["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256",
            told["X-Amz-SignedHeaders"] == "host",
            (region, service, ending) == (self._region, "kafka-cluster", "aws4_request"),
            told["X-Amz-Date"].startswith(date),
            signed_at <= time.time() < signed_at + int(told["X-Amz-Expires"]),
            told.get("X-Amz-Security-Token") == self._sessions.get(key),
        )
        if (
            not all(good)
            or key not in self._keys
            or told["X-Amz-Signature"] != self._signature(told, str(url.hostname), self._keys[key])
        ):
            return None
        self.verified.append(told)
        return {
            "sub": f"arn:aws:iam::123456789012:user/{key}",
            "exp": signed_at + int(told["X-Amz-Expires"]),
        }

    def _signature(self, told: Mapping[str, str], host: str, secret_key: str) -> str:
        # the parameters that are added behind the signature are not signed
        signed = sorted(
            (name, value)
            for name, value in told.items()
            if name not in {"X-Amz-Signature", "User-Agent"}
        )
        query = "&".join(
            f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in signed
        )
        request = "\n".join(
            ("GET", "/", query, f"host:{host}", "", "host", hashlib.sha256(b"").hexdigest())
        )
        scope = told["X-Amz-Credential"].partition("/")[2]
        text = "\n".join(
            (
                "AWS4-HMAC-SHA256",
                told["X-Amz-Date"],
                scope,
                hashlib.sha256(request.encode()).hexdigest(),
            )
        )
        key = b"AWS4" + secret_key.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.new(key, text.encode(), "sha256").hexdigest()


def offline(monkeypatch: Any, folder: Any, **variables: str) -> None:
    """Leave AWS's default chain nothing but these variables, and the files `config` and `credentials` of a folder."""
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ROLE_ARN",
        "AWS_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    files = {
        "AWS_CONFIG_FILE": "config",
        "AWS_SHARED_CREDENTIALS_FILE": "credentials",
        "BOTO_CONFIG": "boto",
    }
    settings = {name: str(folder / file) for name, file in files.items()}
    for name, value in {**settings, "AWS_EC2_METADATA_DISABLED": "true", **variables}.items():
        monkeypatch.setenv(name, value)


_ROLE = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{session}</SessionToken>
<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
_DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>AccessDenied</Code>
<Message>canary-message</Message></Error><RequestId>1</RequestId></ErrorResponse>"""


@contextlib.contextmanager
def sts(
    *, key: str = "", secret: str = "", session: str = ""
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve AssumeRole over loopback HTTP: with these credentials, or with AccessDenied. Yields its URL and the requests, with their region."""
    asked: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            # Credential=KEY/DATE/REGION/sts/aws4_request
            region = self.headers["Authorization"].split("/")[2]
            asked.append(
                {name: values[0] for name, values in parse_qs(body).items()} | {"region": region}
            )
            answer = (
                _ROLE.format(key=key, secret=secret, session=session) if key else _DENIED
            ).encode()
            self.send_response(200 if key else 403)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
