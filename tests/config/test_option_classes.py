"""Classes of options are frozen dataclasses, by methods that all of them share."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pydoc
from typing import Any

import pydantic
import pytest

from aioproducer import ConfigError, Producer, ProducerConfig


def test_no_field_is_set_or_deleted() -> None:
    """Those of a base are frozen, too."""
    made = ProducerConfig(linger_ms=5)
    for name in ("linger_ms", "sasl_oauthbearer_scope", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(made, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(made, name)
    assert made.linger_ms == 5


def test_a_copy_and_a_pickle_are_equal() -> None:
    made = ProducerConfig(linger_ms=5, client_id="a")
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made
    assert hash(copy.copy(made)) == hash(made)


class Acknowledged(ProducerConfig):
    """Refuses acks=0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.acks == 0:
            raise ConfigError("acks=0 is not allowed here")


def test_the_checks_of_a_subclass_are_made() -> None:
    assert Acknowledged(acks=1).acks == 1
    with pytest.raises(ConfigError, match="not allowed here"):
        Acknowledged(acks=0)


class Owned(ProducerConfig):
    """Adds an attribute."""

    owner: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "owner", "billing")


class Slotted(ProducerConfig):
    """Adds a slot."""

    __slots__ = ("owner",)

    owner: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "owner", "billing")


@pytest.mark.parametrize("kind", [Owned, Slotted])
def test_a_copy_has_the_attributes_that_a_subclass_adds(kind: type[Owned | Slotted]) -> None:
    """A producer copies its config if it chooses the client id."""
    made = kind(linger_ms=5)
    for copied in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), Producer(made).config):
        assert isinstance(copied, kind)
        assert (copied.owner, copied.linger_ms) == ("billing", 5)


class Named(ProducerConfig):
    """Has a constructor of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(client_id=name)


def test_the_signature_names_each_option() -> None:
    """Editors and `help` show what a config takes."""
    shown = inspect.signature(ProducerConfig)
    fields = {field.name: field.default for field in dataclasses.fields(ProducerConfig)}
    assert {name: one.default for name, one in shown.parameters.items()} == fields
    assert {one.kind for one in shown.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    # Python 3.14 and later write a union with bars.
    forms = ("Union[float, datetime.timedelta, Literal['auto']]", "float | datetime.timedelta | Literal['auto']")
    assert str(shown.parameters["linger_ms"]) in {f"linger_ms: {form} = 0" for form in forms}
    assert "acks: " in pydoc.render_doc(ProducerConfig)
    assert inspect.signature(Acknowledged) == shown
    assert str(inspect.signature(Named)) == "(name: 'str') -> 'None'"
    assert Named("a").client_id == "a"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extended(ProducerConfig):
    """A dataclass with another field."""

    extra: int = 0


def test_a_dataclass_is_derived() -> None:
    made = Extended(linger_ms="7", extra=3)  # type: ignore[arg-type]
    assert (made.linger_ms, made.extra, made.acks) == (7, 3, ProducerConfig().acks)
    assert dataclasses.replace(ProducerConfig(), linger_ms=5).linger_ms == 5


def test_a_field_of_a_pydantic_model() -> None:
    """pydantic reads the types of the options at run time."""
    model: Any = pydantic.create_model("Model", __config__=pydantic.ConfigDict(arbitrary_types_allowed=True), kafka=(ProducerConfig, ...))
    config = ProducerConfig(linger_ms=5)
    assert model(kafka=config).kafka is config


def test_an_unknown_option() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'linger'"):
        ProducerConfig(linger=5)  # type: ignore[call-arg]
