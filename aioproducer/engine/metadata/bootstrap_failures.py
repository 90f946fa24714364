"""Why the bootstrap addresses gave no metadata, and when that is final."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import AuthenticationFailed, BootstrapFailed, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.errors import KafkaError
    from aioproducer.net.broker_node import BrokerNode

__all__ = ["BootstrapFailures"]

# A broker that starts, or that does not know a user yet, gets a second attempt, unless so many refuse in all.
_REFUSALS: Final = 2
_REFUSALS_IN_ALL: Final = 3


class BootstrapFailures:
    """Holds the latest failure of each bootstrap address.

    Args:
        nodes: the nodes of the bootstrap addresses.
    """

    def __init__(self, nodes: Sequence[BrokerNode]) -> None:
        self._nodes = nodes
        self._errors: dict[str, KafkaError] = {}

    def note(self, node: BrokerNode, error: KafkaError) -> None:
        """Note that a request to a node failed."""
        self._errors[node.where] = error

    @property
    def is_final(self) -> bool:
        """Return True if every address was tried, one was refused twice or three were refused, and none let this client in.

        The refusals are those of the connections: a request may have stopped to wait before its connection was refused.
        """
        refusals = [node.control.refusals for node in self._nodes]
        return (
            (max(refusals) >= _REFUSALS or sum(refusals) >= _REFUSALS_IN_ALL)
            and all(node.control.failures or node.where in self._errors for node in self._nodes)
            and all(isinstance(error, (AuthenticationFailed, ConnectionLost)) for error in self._errors.values())
        )

    def refused(self) -> BootstrapFailed:
        """Return the error of a start that is refused; its cause is the refusal."""
        refused = max(self._nodes, key=lambda node: node.control.refusals)
        raised = BootstrapFailed(f"no broker let this client in. {self._told()}")
        raised.__cause__ = refused.control.last_error
        return raised

    def timed_out(self, timeout: float) -> BootstrapFailed:
        """Return the error of a start that took `timeout` seconds."""
        return BootstrapFailed(
            f"no broker could be reached within {round(timeout, 3):g} s. {self._told()}. Check bootstrap_servers and that Kafka runs there."
        )

    def _told(self) -> str:
        return "; ".join(map(self._reason, self._nodes))

    def _reason(self, node: BrokerNode) -> str:
        told = str(node.control.last_error or self._errors.get(node.where) or node.control.delay() or "no answer yet")
        return told if told.startswith(node.where) else f"{node.where}: {told}"
