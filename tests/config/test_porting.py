"""docs/topics/porting.md: its list of renames makes a program for aiokafka one for us, and both write the same."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import pathlib
import re
import ssl
import warnings
from typing import Any

import aiokafka
import aiokafka.errors
import aiokafka.partitioner
import pytest
from whole import jumping, running

import aioproducer
from aioproducer import ProducerConfig
from aioproducer.testing import FakeCluster

with warnings.catch_warnings():
    # of its own import
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

PAGE = (pathlib.Path(__file__).parents[2] / "docs/topics/porting.md").read_text(encoding="utf-8")
RENAMES = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", PAGE.partition("So this,")[0], re.MULTILINE)
THEIRS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def ported(program: str) -> str:
    """A program after the renames, in their order."""
    for theirs, ours in RENAMES:
        program = re.sub(rf"\b{re.escape(theirs)}\b", ours, program)
    return program


async def run(program: str) -> tuple[list[str], list[Any]]:
    """Run the program. Returns its output and the log, with time stamps only where the program gave them."""
    printed: list[str] = []
    names: dict[str, Any] = {"print": lambda *words: printed.append(" ".join(map(str, words)))}
    exec(program, names)  # our own page
    async with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        await names["publish"](cluster.bootstrap_servers)
        log = [
            (partition, record.offset, record.key, record.value, record.headers)
            for partition in range(3)
            for record in cluster.records("orders", partition)
        ]
        assert cluster.violations == []
    return printed, log


@pytest.mark.asyncio
async def test_a_ported_program_writes_the_same() -> None:
    """The page's program, with aiokafka and after the renames with us: the same words, the same log."""
    program, *_ = THEIRS
    mine = ported(program)
    assert "aiokafka" not in mine.lower()
    theirs, ours = await run(program), await run(mine)
    assert ours == theirs
    printed, log = ours
    assert printed[0].endswith(" 0 1700000000000")
    assert printed[1:] == ["1", "2", "3", "too large", "[0, 1, 2]"]
    assert [value for *_, value, _ in log] == [b"placed", b"step 0", b"step 1", b"step 2"]


@jumping
async def test_a_ported_retry_loop_catches_a_send_and_a_delivery_that_took_too_long() -> None:
    """A record that waits for metadata, and one whose batch expires: aiokafka has one error for both."""
    program = (
        "from aiokafka.errors import KafkaTimeoutError\n"
        "async def publish(producer):\n"
        "    for attempt in range(9):\n"
        "        try:\n"
        "            await producer.send_and_wait('later', b'x')\n"
        "            return attempt\n"
        "        except KafkaTimeoutError:\n"
        "            pass\n"
    )
    names: dict[str, Any] = {}
    exec(ported(program), names)  # by our own page
    options = {"max_block_ms": 2_000, "request_timeout_ms": 1_000, "delivery_timeout_ms": 3_000}
    async with running(auto_create=False, **options) as (cluster, producer):
        retried = asyncio.create_task(names["publish"](producer))
        await asyncio.sleep(3)
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1_000)
        cluster.create_topic("later")
        await cluster.seen("Produce", 5)
        await asyncio.sleep(3)
        cluster.faults.clear()
        assert await retried >= 2
        assert cluster.values("later") == [b"x"]


REFUSED = {"max_batch_size": "did you mean 'batch_size'"}
PARAMETERS = {
    name: parameter
    for name, parameter in inspect.signature(aiokafka.AIOKafkaProducer.__init__).parameters.items()
    if name != "self"
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_argument_of_aiokafkas_at_its_own_default(name: str) -> None:
    """It is taken, and asks for nothing that is not here; a name that is another one here is refused with that."""
    default = PARAMETERS[name].default
    if name in REFUSED:
        with pytest.raises(aioproducer.ConfigError, match=REFUSED[name]):
            aioproducer.Producer(**{name: default})
        return
    for make in (
        aioproducer.Producer,
        lambda **options: aioproducer.Producer(ProducerConfig.from_mapping(options)),
    ):
        config = make(**{name: default}).config
        plain = ProducerConfig(client_id=config.client_id)
        # aiokafka's own choices, which are honoured
        expected = {"request_timeout_ms": {name: 40_000}, "enable_idempotence": {name: False}}.get(
            name, {}
        )
        assert config == dataclasses.replace(plain, **expected)


@pytest.mark.parametrize(
    "options", [{"loop": None}, {"api_version": "auto"}, {"api_version": None}], ids=str
)
def test_what_older_programs_for_aiokafka_give(options: dict[str, Any]) -> None:
    """Frameworks hand on each argument of their own, at the default that aiokafka had."""
    plain = ProducerConfig(client_id="mine")
    assert aioproducer.Producer(client_id="mine", **options).config == plain
    assert ProducerConfig.from_mapping({"client.id": "mine", **options}) == plain


def test_all_arguments_of_aiokafkas_at_their_defaults() -> None:
    """A program may fill every argument from its own settings, as some do."""
    options = {
        name: parameter.default for name, parameter in PARAMETERS.items() if name not in REFUSED
    }
    config = aioproducer.Producer(**options).config
    assert config.bootstrap_servers == ("localhost:9092",)
    assert config.acks is aioproducer.Acks.ALL
    assert config.partitioner is None
    assert config.client_id.startswith("aioproducer-")


@pytest.mark.parametrize("written", ["plaintext", "PLAINTEXT", " Plaintext "])
def test_no_security(written: str) -> None:
    """It is accepted by the names of librdkafka and Java, and of aiokafka."""
    assert ProducerConfig.from_mapping({"security.protocol": written}) == ProducerConfig()
    assert aioproducer.Producer(
        security_protocol=written, client_id="mine"
    ).config == ProducerConfig(client_id="mine")


# kafka-python's arguments for security at its own defaults.
KAFKA_PYTHONS = {
    name: default
    for name, default in KafkaProducer.DEFAULT_CONFIG.items()
    if name.startswith(("security_", "ssl_", "sasl_"))
}


def test_arguments_of_kafka_pythons_at_their_defaults() -> None:
    """One by one, and all of them together."""
    assert len(KAFKA_PYTHONS) > 14
    plain = ProducerConfig(client_id="mine")
    for options in (KAFKA_PYTHONS, *({name: default} for name, default in KAFKA_PYTHONS.items())):
        assert aioproducer.Producer(client_id="mine", **options).config == plain
        assert ProducerConfig.from_mapping({"client_id": "mine", **options}) == plain


CONTEXT = ssl.create_default_context()


USER = {"sasl_username": "alice", "sasl_password": "canary-alice"}
PORTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # aiokafka
    (
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "canary-alice",
            "ssl_context": CONTEXT,
        },
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "ssl_context": CONTEXT,
            **USER,
        },
    ),
    (
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "ours",
            "sasl_kerberos_domain_name": "kafka.example.com",
        },
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "ours",
            "sasl_kerberos_domain_name": "kafka.example.com",
        },
    ),
    # librdkafka
    (
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "ours",
            "sasl.kerberos.principal": "alice@EXAMPLE.TEST",
            "sasl.kerberos.keytab": "/etc/alice.keytab",
        },
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "ours",
            "sasl_kerberos_principal": "alice@EXAMPLE.TEST",
            "sasl_kerberos_keytab": "/etc/alice.keytab",
        },
    ),
    # kafka-python
    (
        {
            "security_protocol": "SSL",
            "ssl_cafile": "ca.pem",
            "ssl_certfile": "client.pem",
            "ssl_keyfile": "client.key",
            "ssl_password": "canary-key",
            "ssl_crlfile": "crl.pem",
            "ssl_ciphers": "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384",
            "ssl_check_hostname": False,
        },
        {
            "security_protocol": "SSL",
            "ssl_truststore_location": "ca.pem",
            "ssl_certificate_location": "client.pem",
            "ssl_key_location": "client.key",
            "ssl_key_password": "canary-key",
            "ssl_crl_location": "crl.pem",
            "ssl_cipher_suites": ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"),
            "ssl_endpoint_identification_algorithm": "",
        },
    ),
]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    PORTED,
    ids=["aiokafka", "aiokafka-kerberos", "librdkafka-kerberos", "kafka-python"],
)
def test_arguments_about_security_of_other_clients(
    theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    """They are taken by their names, as arguments and in a mapping."""
    expected = ProducerConfig(client_id="mine", **ours)
    if not any("." in name for name in theirs):
        assert aioproducer.Producer(client_id="mine", **theirs).config == expected
    assert ProducerConfig.from_mapping({"client.id": "mine", **theirs}) == expected


@pytest.mark.parametrize(
    "partitioner",
    [aiokafka.partitioner.DefaultPartitioner, aiokafka.partitioner.DefaultPartitioner()],
)
def test_the_default_partitioner_of_another_client(partitioner: Any) -> None:
    """It hashes keys as Kafka's own does."""
    assert ProducerConfig(partitioner=partitioner).partitioner is None


TRANSFER = """
from aiokafka import AIOKafkaProducer, TopicPartition


async def publish(servers):
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="bank", transaction_timeout_ms=30_000) as producer:
        async with producer.transaction():
            await producer.send("orders", b"debit", partition=0)
            await producer.send_and_wait("orders", b"credit", partition=1)
            await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 3}, "group")
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"aborted", partition=2)
        await producer.abort_transaction()
        try:
            async with producer.transaction():
                raise LookupError("mine")
        except LookupError as error:
            print(error)
        await producer.begin_transaction()
        await producer.send("orders", b"last", partition=2)
        await producer.commit_transaction()
"""


@pytest.mark.asyncio
async def test_a_ported_transaction_writes_the_same() -> None:
    """aiokafka's calls are ours, by the same names: the same is visible."""
    logs = []
    for program in (
        TRANSFER,
        ported(TRANSFER).replace("from aiokafka import", "from aioproducer import"),
    ):
        names: dict[str, Any] = {"print": lambda *_: None}
        exec(program, names)  # our own
        async with FakeCluster() as cluster:
            cluster.create_topic("orders", partitions=3)
            await names["publish"](cluster.bootstrap_servers)
            visible = [
                cluster.values("orders", partition, isolation="read_committed")
                for partition in range(3)
            ]
            logs.append((visible, cluster.committed("group")))
    assert logs[0] == logs[1] == ([[b"debit"], [b"credit"], [b"last"]], {("orders", 0): 3})
