"""The manifest of docs/recipes/kubernetes.yaml: what its options refer to is mounted, and what Kubernetes swaps is used."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pytest

from aioproducer import ProducerConfig

yaml = pytest.importorskip("yaml", reason="the manifest is parsed by PyYAML: pip install pyyaml")

ROOT = pathlib.Path(__file__).parents[1]
MANIFEST = (ROOT / "docs/recipes/kubernetes.yaml").read_text(encoding="utf-8")
OBJECTS = {document["kind"]: document for document in yaml.safe_load_all(MANIFEST)}
POD = OBJECTS["Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
OPTIONS = OBJECTS["ConfigMap"]["data"]["kafka.toml"]


def mounted_files() -> set[str]:
    """Return the paths of the files that the container sees."""
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    files = set()
    for mount in CONTAINER["volumeMounts"]:
        volume = volumes[mount["name"]]
        items = (
            volume["secret"]["items"]
            if "secret" in volume
            else [{"path": name} for name in OBJECTS["ConfigMap"]["data"]]
        )
        files |= {f"{mount['mountPath']}/{item['path']}" for item in items}
    return files


def test_what_the_options_name_is_there() -> None:
    """Each file is in a volume, each variable in the environment, and no secret in the manifest."""
    named = set(re.findall(r'"(/[^"]+)"', OPTIONS))
    named |= {
        f"{folder}/{file}" for folder, file in re.findall(r"\$\{dir:([^:}]+):([^}]+)\}", OPTIONS)
    }
    assert named
    assert named < mounted_files()
    assert set(re.findall(r"\$\{env:(\w+)\}", OPTIONS)) == {
        variable["name"] for variable in CONTAINER["env"]
    }
    assert all("value" not in variable for variable in CONTAINER["env"])
    config = ProducerConfig.from_mapping(tomllib.loads(OPTIONS))
    assert config.sasl_password.reference == "${dir:/etc/kafka/user:password}"  # type: ignore[union-attr]
    assert "/etc/orders/kafka.toml" in mounted_files()
    assert "/etc/orders/kafka.toml" in MANIFEST.partition("kafka.toml: |")[0]
    assert "Secret" not in OBJECTS
