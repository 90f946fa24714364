"""The specifications of all messages, field by field, as text that `spec` parses.

Names, types, versions, tags and defaults are facts of Kafka's open protocol, as its message definitions state them
(`clients/src/main/resources/common/message/*.json`, Apache-2.0).

A line of the text is `name type [versions] [tagN] [=default] [secret]`. The fields of a structure are indented below it.

    i8 i16 i32 i64 bool uuid str bytes   as in Kafka; a uuid is 16 raw bytes, bytes also hold records
    {}    [] [i32] [str]                 a structure; an array of structures, of numbers, of strings
    ?     ?12+                           may be null: always, or from version 12 on
    3+    0-12                           the versions that have the field; all versions if absent
    secret                               may hold credentials: a message's repr shows the length alone
"""

from __future__ import annotations

from typing import Final

from aioproducer.wire.messages import admin, cluster, fetch, groups, produce, sasl, transactions
from aioproducer.wire.spec import parse

SPECS: Final = parse(
    "".join(family.TEXT for family in (produce, transactions, cluster, fetch, groups, admin, sasl))
)
