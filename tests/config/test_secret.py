"""Tests of `aioproducer.config.secret`: what hides a secret, and where references are read."""

from __future__ import annotations

import copy
import dataclasses
import json
import pathlib
import pickle
import pprint

import pytest

from aioproducer.config.secret import Secret, has_reference, is_reference
from aioproducer.errors import ConfigError

TEXT = "canary-alice"


@dataclasses.dataclass
class Holder:
    secret: Secret


def test_a_secret_is_not_shown() -> None:
    """Not by any way in which a program writes down a value by mistake."""
    secret = Secret(TEXT)
    holder = Holder(secret)
    shown = [
        repr(secret),
        str(secret),
        f"{secret} {secret!r} {secret:>40}",
        "{:s} {!s}".format(secret, secret),  # noqa: UP032
        "%s %r" % (secret, secret),  # noqa: UP031
        pprint.pformat({"secret": [secret]}),
        repr(holder),
        repr(dataclasses.asdict(holder)),
        json.dumps({"secret": secret}, default=str),
    ]
    assert [text for text in shown if "canary" in text] == []
    assert repr(secret) == "<Secret hidden>"
    assert secret.reveal() == TEXT
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_copies_are_the_secret_itself() -> None:
    """No copy of the text is made."""
    secret = Secret(TEXT)
    assert copy.copy(secret) is copy.deepcopy(secret) is secret
    assert copy.deepcopy({"secret": secret})["secret"] is secret


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_only_references_are_pickled(protocol: int) -> None:
    """A reference means the same in another process; a text would lie in a file or on a wire."""
    reference = Secret("${env:PASSWORD}")
    assert pickle.loads(pickle.dumps(reference, protocol)) == reference
    with pytest.raises(
        TypeError, match="a secret that was given as text is not pickled: give a reference"
    ) as caught:
        pickle.dumps(Secret(TEXT), protocol)
    assert "canary" not in str(caught.value)


def test_secrets_are_equal_by_their_text() -> None:
    """References by what they name, without a look at it."""
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret("canary-bob")
    assert Secret("\ud800") != Secret(TEXT)
    assert Secret(" ${env:A} ") == Secret("${env:A}") != Secret("${env:B}")
    assert Secret("${env:A}") != Secret(TEXT)
    assert Secret(TEXT) != TEXT
    assert len({Secret(TEXT), Secret(TEXT)}) == 1
    assert (bool(Secret("")), bool(Secret(TEXT)), bool(Secret("${env:A}"))) == (False, True, True)


# References


@pytest.mark.parametrize(
    "text",
    [
        "$ConnectionString",
        "${unknown:x}",
        "${env}",
        "${env:}",
        "$env:NAME",
        "${ENV:NAME}",
        "{env:NAME}",
        "${env:A}${env:B}",
        "canary-${env:A}",
        "${vault:secret/kafka:password}",
        "",
        " canary- ",
    ],
)
def test_any_other_text_is_the_secret_itself(text: str) -> None:
    """Azure's user name, and what looks like a reference of another system."""
    assert Secret(text).reference is None
    assert Secret(text).reveal() == text
    assert not is_reference(text)


def test_a_reference_within_other_text_is_known() -> None:
    """The options refuse it: it would be taken for the password."""
    assert has_reference("canary-${env:A}")
    assert not has_reference("${unknown:x}")


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read at each use, as it is: blanks may belong to a password."""
    secret = Secret("${env:KAFKA_PASSWORD}")
    monkeypatch.setenv("KAFKA_PASSWORD", " canary-first")
    assert secret.reveal() == " canary-first"
    monkeypatch.setenv("KAFKA_PASSWORD", "canary-second")
    assert secret.reveal() == "canary-second"
    assert repr(secret) == "<Secret ${env:KAFKA_PASSWORD}>"
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(
        ConfigError,
        match=r"^\$\{env:KAFKA_PASSWORD\}: there is no environment variable KAFKA_PASSWORD$",
    ):
        secret.reveal()


def test_a_whole_file(tmp_path: pathlib.Path) -> None:
    """As Kubernetes and Docker mount secrets: an editor's line end at its end is none of the secret's. It is read at each use."""
    path = tmp_path / "password"
    path.write_text("canary-ä b\n", "utf-8")
    whole, of_directory = Secret(f"${{file:{path}}}"), Secret(f"${{dir:{tmp_path}:password}}")
    assert whole.reveal() == of_directory.reveal() == "canary-ä b"
    path.write_text("canary-rotated")
    assert whole.reveal() == of_directory.reveal() == "canary-rotated"


PROPERTIES = r"""
# password=canary-no
! password=canary-no
  password = canary-a=b:c\\d\u00e9\
      e
password.old:canary-old
with\ blank canary-blank
empty=
quoted="canary-quoted"
"""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("password", "canary-a=b:c\\dée"),
        ("password.old", "canary-old"),
        ("with blank", "canary-blank"),
        ("quoted", '"canary-quoted"'),
    ],
)
def test_a_key_of_a_properties_file(tmp_path: pathlib.Path, key: str, value: str) -> None:
    """As `java.util.Properties` reads the file, since Kafka's own provider does."""
    path = tmp_path / "secrets.properties"
    path.write_text(PROPERTIES)
    assert Secret(f"${{file:{path}:{key}}}").reveal() == value


def test_a_file_whose_name_has_a_colon(tmp_path: pathlib.Path) -> None:
    """A file that is there is a whole file: Windows' drives have a colon, too."""
    (tmp_path / "a:b").write_text("canary-colon")
    assert Secret(f"${{file:{tmp_path}/a:b}}").reveal() == "canary-colon"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("${file:HERE/none}", "HERE/none cannot be read: No such file or directory"),
        ("${file:HERE/none:password}", "HERE/none cannot be read: No such file or directory"),
        ("${file:HERE/secrets:password2}", "the file has no key 'password2'"),
        ("${file:HERE/secrets:empty}", "it is empty"),
        ("${file:HERE/nothing}", "it is empty"),
        ("${file:HERE/binary}", "HERE/binary is no UTF-8 text"),
        ("${file:HERE}", "HERE cannot be read: Is a directory"),
        ("${dir:HERE:none}", "HERE/none cannot be read: No such file or directory"),
        ("${dir:HERE/secrets}", "write ${dir:/path:file}"),
        ("${dir:HERE:../secrets}", "write ${dir:/path:file}"),
    ],
)
def test_a_reference_that_cannot_be_read(tmp_path: pathlib.Path, reference: str, why: str) -> None:
    """The error names the file; it has nothing of the content."""
    (tmp_path / "secrets").write_text("password=canary-alice\nempty=\n")
    (tmp_path / "binary").write_bytes(b"canary-\xff")
    (tmp_path / "nothing").write_text("\n")
    given = reference.replace("HERE", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        Secret(given).reveal()
    assert str(caught.value) == f"{given}: {why.replace('HERE', str(tmp_path))}"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("${file:/etc/token}", "/etc/token"),
        ("${file:/etc/secrets.properties:token}", "/etc/secrets.properties"),
        ("${dir:/etc/secrets:token}", "/etc/secrets/token"),
        ("${env:TOKEN}", None),
        ("canary-token", None),
    ],
)
def test_the_file_of_a_reference(text: str, file: str | None) -> None:
    assert Secret(text).file == (None if file is None else pathlib.Path(file))
