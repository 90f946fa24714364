"""The manifest of docs/recipes/kubernetes.yaml: what its options refer to is mounted, and what Kubernetes swaps is used."""

from __future__ import annotations

import asyncio
import pathlib
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from mounted import MountedFiles
from whole import jumping

from aioproducer import Producer, ProducerConfig
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTls
from aioproducer.testing.certificates import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import Mapping

yaml = pytest.importorskip("yaml", reason="the manifest is parsed by PyYAML: pip install pyyaml")

ROOT = pathlib.Path(__file__).parents[1]
MANIFEST = (ROOT / "docs/recipes/kubernetes.yaml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/topics/recipes.md").read_text(encoding="utf-8")
OBJECTS = {document["kind"]: document for document in yaml.safe_load_all(MANIFEST)}
POD = OBJECTS["Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
OPTIONS = OBJECTS["ConfigMap"]["data"]["kafka.toml"]
CA, NEW_CA = CertificateAuthority(), CertificateAuthority("the CA of next year")
ADDRESS = ("demo-kafka-bootstrap.kafka.svc", 9093)


def mounted_files() -> set[str]:
    """Return the paths of the files that the container sees."""
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    files = set()
    for mount in CONTAINER["volumeMounts"]:
        volume = volumes[mount["name"]]
        items = volume["secret"]["items"] if "secret" in volume else [{"path": name} for name in OBJECTS["ConfigMap"]["data"]]
        files |= {f"{mount['mountPath']}/{item['path']}" for item in items}
    return files


def test_what_the_options_name_is_there() -> None:
    """Each file is in a volume, each variable in the environment, and no secret in the manifest."""
    named = set(re.findall(r'"(/[^"]+)"', OPTIONS))
    named |= {f"{folder}/{file}" for folder, file in re.findall(r"\$\{dir:([^:}]+):([^}]+)\}", OPTIONS)}
    assert named
    assert named < mounted_files()
    assert set(re.findall(r"\$\{env:(\w+)\}", OPTIONS)) == {variable["name"] for variable in CONTAINER["env"]}
    assert all("value" not in variable for variable in CONTAINER["env"])
    config = ProducerConfig.from_mapping(tomllib.loads(OPTIONS))
    assert config.sasl_password.reference == "${dir:/etc/kafka/user:password}"  # type: ignore[union-attr]
    assert "/etc/orders/kafka.toml" in mounted_files()
    assert "/etc/orders/kafka.toml" in MANIFEST.partition("kafka.toml: |")[0]
    assert "Secret" not in OBJECTS


def test_the_mounts_follow_their_secrets() -> None:
    """No mount of a single file (subPath), which Kubernetes never updates; the user may read them; the pod's end leaves time for stop()."""
    assert all(mount["readOnly"] and "subPath" not in mount for mount in CONTAINER["volumeMounts"])
    secrets = [volume["secret"] for volume in POD["volumes"] if "secret" in volume]
    # the group may read, as the user does not own the files
    assert all(secret.get("defaultMode", 0o644) & 0o040 for secret in secrets)
    assert POD["securityContext"]["fsGroup"]
    config = ProducerConfig.from_mapping(tomllib.loads(OPTIONS))
    assert POD["terminationGracePeriodSeconds"] * 1000 > config.close_timeout_ms


@jumping
async def test_a_pod_sends_on_while_its_secrets_change(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password and the brokers' CA are rotated under the options of the manifest, each by one rename: no record fails."""
    monkeypatch.setenv("KAFKA_USERNAME", "orders")
    user = MountedFiles(tmp_path / "user", {"password": b"canary-one"})
    bundle = MountedFiles(tmp_path / "cluster-ca", {"ca.crt": CA.pem})
    config = ProducerConfig.from_mapping(tomllib.loads(OPTIONS.replace("/etc/kafka", str(tmp_path))))

    def tls(authority: CertificateAuthority) -> ListenerTls:
        return ListenerTls(authority.server(ADDRESS[0]))

    security: Mapping[str, Any] = {"users": {"orders": "canary-one"}, "mechanisms": ("SCRAM-SHA-512",), "session_ms": 3000}
    async with FakeCluster(memory=True, security=ListenerSecurity("SASL_SSL", tls=tls(CA), **security)) as cluster:
        assert cluster.network is not None
        cluster.network.alias(*ADDRESS, cluster.brokers[1].address)
        cluster.brokers[1].advertise(*ADDRESS)
        cluster.create_topic("orders")
        async with Producer(config, dialer=cluster.network) as producer:
            sent = [await producer.send("orders", b"0")]
            user.swap({"password": b"canary-two"})
            cluster.security.grant("orders", "canary-two")
            await asyncio.sleep(4)
            sent.append(await producer.send("orders", b"1"))
            bundle.swap({"ca.crt": CA.pem + NEW_CA.pem})
            cluster.security.change(tls=tls(NEW_CA))
            cluster.disconnect_all()
            sent.append(await producer.send("orders", b"2"))
            await asyncio.gather(*sent)
        assert cluster.values("orders") == [b"0", b"1", b"2"]
        logins = cluster.security.authentications
        assert {(login.principal, login.error) for login in logins} == {("orders", 0)}
        assert any(login.is_renewal for login in logins)
        assert cluster.security.tls_failures == []


def test_the_page_says_what_follows() -> None:
    section = PAGE.partition("\n## Kubernetes\n")[2].partition("\n## ")[0]
    assert "kubernetes.yaml" in section
    assert "subPath" in section
