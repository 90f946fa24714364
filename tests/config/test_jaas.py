"""Tests of `aioproducer.config.jaas`, by the option `sasl.jaas.config`: texts of Kafka's documents, and what is refused without a quote."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.config.jaas import read_jaas
from aioproducer.config.secret import Secret
from aioproducer.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def made(text: Any, mechanism: str = "PLAIN", **others: Any) -> ProducerConfig:
    """A config of Java's options."""
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": text}
    return ProducerConfig.from_mapping(given | others)


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        (f'{PLAIN} required username="alice" password="canary-alice";', "alice", "canary-alice"),
        (
            f'{PLAIN} required \n    username="alice" \n    password="canary-alice";\n',
            "alice",
            "canary-alice",
        ),
        (f"{PLAIN} required username='alice' password='canary-\"a\"';", "alice", 'canary-"a"'),
        (f'{PLAIN} REQUIRED username=alice password="canary-;=";', "alice", "canary-;="),
        (f'{PLAIN} required password="canary-a" username="alice" ;', "alice", "canary-a"),
        (
            rf'{PLAIN} required username="al\"ice" password="canary-\\\'\n\t\101\x";',
            'al"ice',
            "canary-\\'\n\tAx",
        ),
        (
            f'{PLAIN} optional // mine\n username="alice" /* "of ; mine" */ password="canary-//a/*b*/";',
            "alice",
            "canary-//a/*b*/",
        ),
        (
            f'{PLAIN} required username="$ConnectionString" password="canary-Endpoint=sb://x/;Key=a=";',
            "$ConnectionString",
            None,
        ),
        (
            f"{PLAIN} required username=alice_b-c.d$1 password=canary-ä;",
            "alice_b-c.d$1",
            "canary-ä",
        ),
        (
            f'{PLAIN} required username="ä,=" password="canary-${{unknown:x}}";',
            "ä,=",
            "canary-${unknown:x}",
        ),
    ],
)
def test_texts_that_are_read(text: str, username: str, password: str | None) -> None:
    """Quotes, escapes and comments as Kafka's clients read them."""
    config = made(text)
    assert config.sasl_username == username
    assert config.sasl_token_auth is False
    assert config.sasl_password == Secret(password or "canary-Endpoint=sb://x/;Key=a=")


@pytest.mark.parametrize("package", ["kafkashaded.", "com.example.shaded."])
def test_the_class_of_a_library_that_shades_kafkas(package: str) -> None:
    """As Databricks' libraries have to be configured."""
    config = made(f'{package}{PLAIN} required username="alice" password="canary-alice";')
    assert (config.sasl_username, config.sasl_password) == ("alice", Secret("canary-alice"))
    with pytest.raises(ConfigError, match="PlainLoginModule is not known here: it is org"):
        made(f'{package.rstrip(".")}{PLAIN} required username="alice" password="canary-alice";')


def test_what_databricks_documents_for_tokens() -> None:
    """The shaded callback handler, and `ssl.*` of the token endpoint within the JAAS text."""
    handler = f"kafkashaded.{BEARER.replace('OAuthBearerLoginModule', 'secured.OAuthBearerLoginCallbackHandler')}"
    url = {"sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
    config = made(
        f"kafkashaded.{BEARER} required clientId='me' clientSecret='canary-a' scope='https://x/.default' ssl.protocol='SSL' "
        "ssl.truststore.type=PEM ssl.truststore.location='/etc/ca.pem';",
        "OAUTHBEARER",
        **url,
        **{"sasl.login.callback.handler.class": handler},
    )
    assert config.sasl_oauthbearer_scope == "https://x/.default"
    assert config.https_ca_location == "/etc/ca.pem"
    text = f'{BEARER} required clientId=me clientSecret=canary-a ssl.truststore.certificates="-----BEGIN...";'
    assert made(text, "OAUTHBEARER", **url).https_ca_pem == "-----BEGIN..."


@pytest.mark.parametrize("quote", ['"', "'"])
def test_quotes_around_the_text(quote: str) -> None:
    """An environment file of Docker keeps them, as around `bootstrap_servers`."""
    inner = "'" if quote == '"' else '"'
    text = f"{PLAIN} required username={inner}alice{inner} password={inner}canary-alice{inner};"
    config = made(f"{quote}{text}{quote}")
    assert (config.sasl_username, config.sasl_password) == ("alice", Secret("canary-alice"))


@pytest.mark.parametrize(
    ("options", "keytab", "principal", "service"),
    [
        ("", None, None, "kafka"),
        ("useTicketCache=true renewTGT=true doNotPrompt=true", None, None, "kafka"),
        (
            'useTicketCache=true principal="alice@A.TEST" serviceName="ours"',
            None,
            "alice@A.TEST",
            "ours",
        ),
        (
            'useKeyTab=true storeKey=true debug=false isInitiator=true keyTab="/etc/a.keytab" principal="alice/b@A.TEST" serviceName="kafka"',
            "/etc/a.keytab",
            "alice/b@A.TEST",
            "kafka",
        ),
    ],
)
def test_kerberos(options: str, keytab: str | None, principal: str | None, service: str) -> None:
    """What says where tickets come from is read; what Java needs to renew them is left out."""
    config = made(f"{KERBEROS} required {options};", "GSSAPI")
    assert (
        config.sasl_kerberos_keytab,
        config.sasl_kerberos_principal,
        config.sasl_kerberos_service_name,
    ) == (keytab, principal, service)
    assert config.sasl_username is config.sasl_password is None


def test_a_delegation_token() -> None:
    """A token's id and HMAC, by SCRAM."""
    config = made(
        f'{SCRAM} required username="token-id" password="canary-hmac" tokenauth="true";',
        "SCRAM-SHA-512",
    )
    assert (config.sasl_username, config.sasl_password, config.sasl_token_auth) == (
        "token-id",
        Secret("canary-hmac"),
        True,
    )
    assert (
        made(
            f'{SCRAM} required username="a" password="canary-a" tokenauth=false;', "SCRAM-SHA-256"
        ).sasl_token_auth
        is False
    )


def test_references_in_one_field() -> None:
    """They stay references, quoted or not; the text itself is gone."""
    config = made(
        f'{SCRAM} required username="${{env:USER}}" password=${{file:/etc/kafka/secrets:password}};',
        "SCRAM-SHA-256",
    )
    assert config.sasl_username == Secret("${env:USER}")
    assert isinstance(config.sasl_password, Secret)
    assert config.sasl_password.reference == "${file:/etc/kafka/secrets:password}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        (" // nothing", "it is empty"),
        ("canary-alice", "it does not end with ';'"),
        ("canary-alice;", "its first word is not the class of a login module"),
        ('"canary-alice";', "its first word is not the class of a login module"),
        ("canary.Secret required;", "its first word is not the class of a login module"),
        (";", "its first word is not the class of a login module"),
        (f"{PLAIN};", "behind the class of the login module stands one of required, "),
        (
            f'{PLAIN} username="alice" password="canary-alice";',
            "behind the class of the login module stands one of required, ",
        ),
        (f"{PLAIN} required username=alice password=canary-a", "it does not end with ';'"),
        (f"{PLAIN} required username=alice password=canary-a; more", "it does not end with ';'"),
        (f"{PLAIN} required; {SCRAM} required;", "it has 2 login modules: a client has one"),
        (f'{PLAIN} required username="alice" password="canary-alice;', "a quote is not closed"),
        (f'{PLAIN} required username="alice" password="canary-al\nice";', "a quote is not closed"),
        (
            f"{PLAIN} required username=alice password=canary-#;",
            "a character stands outside of quotes",
        ),
        (
            f"{PLAIN} required username=alice password=canary- alice;",
            "an option is not known: it is username or password",
        ),
        (
            f"{PLAIN} required username=alice password=;",
            'password has no value: write password="..."',
        ),
        (f"{PLAIN} required username alice;", 'username has no value: write username="..."'),
        (f"{PLAIN} required password==canary-a;", 'password has no value: write password="..."'),
        (f"{PLAIN} required password=canary-a password=canary-b;", "password is given twice"),
        (
            f"{PLAIN} required username=a password=canary-a tokenauth=true;",
            "an option is not known: it is username or password",
        ),
        (
            f"{SCRAM} required username=a password=canary-a tokenauth=canary-b;",
            "tokenauth is true or false",
        ),
        (
            "${file:/etc/kafka:jaas}",
            'a reference stands for one field within it, as password="${env:NAME}"',
        ),
        (
            f'{BEARER} required password="canary-a";',
            "an option is not known: it is clientId or clientSecret or scope or extension_",
        ),
        (f"{BEARER} required extension_a=b extension_a=c;", "extension_a is given twice"),
        (
            'software.amazon.msk.auth.iam.IAMLoginModule required x="canary-a";',
            "an option is not known: it is awsProfileName or awsRoleArn or",
        ),
        (f'{KERBEROS} required keyTab="canary-a";', "useKeyTab=true and keyTab need each other"),
        (
            f'{KERBEROS} required useKeyTab=false keyTab="canary-a";',
            "useKeyTab=true and keyTab need each other",
        ),
        (f"{KERBEROS} required useKeyTab=true;", "useKeyTab=true and keyTab need each other"),
        (f'{KERBEROS} required useTicketCache="canary-yes";', "useTicketCache is true or false"),
        (
            f'{KERBEROS} required ticketCache="/canary-cache";',
            "ticketCache has no place here: set the variable KRB5CCNAME",
        ),
        (f"{KERBEROS} required isInitiator=false;", "isInitiator is true here"),
        (f"{KERBEROS} required useFirstPass=true;", "useFirstPass is false here"),
        (
            f'{KERBEROS} required password="canary-a";',
            "an option is not known: it is keyTab or principal or serviceName or useKeyTab",
        ),
        (
            'com.example.MyLoginModule required password="canary-a";',
            "com.example.MyLoginModule is not known here: it is org.apache",
        ),
    ],
)
def test_texts_that_are_refused(text: str, why: str) -> None:
    """Nothing of the text is quoted but names that are known."""
    for make in (
        lambda: read_jaas("sasl.jaas.config", text),
        lambda: made(text, ""),
        lambda: made(text),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value).startswith("sasl.jaas.config: ")
        assert why in str(caught.value)
        assert "canary" not in str(caught.value)


def test_extensions_and_what_a_token_endpoint_is_asked_with() -> None:
    """KIP-342's extensions, as Confluent Cloud documents them; the client's id and secret go to the options of the token endpoint."""
    text = f'{BEARER} required extension_logicalCluster="lkc-1" extension_identityPoolId=pool-1 clientId=me clientSecret="canary-a" scope=s;'
    login = read_jaas("sasl.jaas.config", text)
    assert (login.family, login.fields) == (
        "OAUTHBEARER",
        {
            "sasl_oauthbearer_client_credentials_client_id": "me",
            "sasl_oauthbearer_client_credentials_client_secret": "canary-a",
            "sasl_oauthbearer_scope": "s",
            "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
        },
    )
    config = ProducerConfig.from_mapping(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{BEARER} required extension_logicalCluster="lkc-1";',
            "oauth_cb": print,
        }
    )
    assert config.sasl_oauthbearer_extensions == (("logicalCluster", "lkc-1"),)


@pytest.mark.parametrize(
    ("text", "mechanism", "others", "why"),
    [
        (
            f"{PLAIN} required username=a password=canary-a;",
            "SCRAM-SHA-256",
            {},
            "has .*PlainLoginModule, and sasl_mechanism=SCRAM-SHA-256",
        ),
        (
            f"{SCRAM} required username=a password=canary-a;",
            "plain",
            {},
            "has .*ScramLoginModule, and sasl_mechanism=PLAIN: .* for SCRAM",
        ),
        (
            f"{PLAIN} required username=a password=canary-a;",
            "PLAIN",
            {"sasl.username": "a"},
            "'sasl.jaas.config' and 'sasl.username' are both",
        ),
        (f"{PLAIN} required username=a;", "PLAIN", {}, "sasl_password is not given"),
        (f"{PLAIN} required;", "PLAIN", {}, "sasl_username is not given"),
        (
            f"{PLAIN} required username=a password=canary-a;",
            "PLAIN",
            {"security.protocol": "SSL"},
            "sasl_username needs SASL",
        ),
        (b"canary-a", "PLAIN", {}, "sasl.jaas.config must be a string, not bytes"),
    ],
)
def test_texts_that_contradict_other_options(
    text: Any, mechanism: str, others: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        made(text, mechanism, **others)
    assert "canary" not in str(caught.value)


def test_as_an_argument() -> None:
    """Java's name with underscores, as all names here."""
    from aioproducer import Producer

    text = f"{PLAIN} required username=alice password=canary-a;"
    config = Producer(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=text
    ).config
    assert (config.sasl_username, config.sasl_password) == ("alice", Secret("canary-a"))
    assert made(None, **{"sasl.username": "a", "sasl.password": "canary-a"}).sasl_username == "a"
