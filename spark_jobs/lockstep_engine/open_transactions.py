"""Transactions that are open on a topic: which partition waits, for whom, and since when.

A reader with `read_committed` sees nothing behind the first open transaction of a partition. Most end
within seconds, by their producer or by the coordinator's time-out. One that its coordinator knows
nothing of (it *hangs*) never does, until somebody aborts it at the partition itself (KIP-664).

By kafka-python, whose administration can ask all this; nothing of Spark here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AbortTransactionSpec, TransactionState

__all__ = ["OpenTransaction", "abort_transaction", "open_transactions"]

_UNDER_WAY = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
    }
)


@dataclass(frozen=True)
class OpenTransaction:
    """What a partition waits for; `transactional_id` is '' where no coordinator knows the producer,
    `start_offset` that of the transaction's first record, `coordinator_epoch` the newest that the
    partition knows (-1: none), which no other may be below."""

    topic: str
    partition: int
    since: datetime
    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    is_hanging: bool

    def __str__(self) -> str:
        who = f"'{self.transactional_id}'" if self.transactional_id else "an unknown producer"
        text = (
            f"partition {self.partition} of topic {self.topic} waits for an open transaction since "
            f"{self.since:%Y-%m-%d %H:%M:%S}Z of {who}"
        )
        if not self.is_hanging:
            return text
        return (
            f"{text}, of which its coordinator knows nothing: if that stays, run kafka-transactions.sh "
            f"abort --topic {self.topic} --partition {self.partition} "
            f"--start-offset {self.start_offset}"
        )


def open_transactions(
    admin: KafkaAdminClient, topic: str, partitions: Collection[int]
) -> tuple[OpenTransaction, ...]:
    """The open transactions on these partitions, by partition and start. Raises KafkaError."""
    places = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    found = [
        (place.partition, producer)
        for place, state in admin.describe_producers(places).items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset >= 0
    ]
    if not found:
        return ()
    producers = sorted({producer.producer_id for _, producer in found})
    listings = admin.list_transactions(producer_id_filters=producers).values()
    ids = {listing.producer_id: listing.transactional_id for one in listings for listing in one}
    described = admin.describe_transactions(ids.values())
    transactions = []
    for partition, producer in found:
        transactional_id = ids.get(producer.producer_id, "")
        known = described.get(transactional_id)
        is_known = (
            known is not None
            and known.state in _UNDER_WAY
            and TopicPartition(topic, partition) in known.topic_partitions
        )
        if known is not None and not is_known and producer.producer_epoch >= known.producer_epoch:
            # It has ended since it was seen. One that hangs is of a producer that was fenced.
            continue
        since = known.transaction_start_time_ms if is_known else producer.last_timestamp
        transactions.append(
            OpenTransaction(
                topic,
                partition,
                datetime.fromtimestamp(max(since, 0) / 1000, UTC),
                transactional_id,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_transaction_start_offset,
                not is_known,
            )
        )
    return tuple(sorted(transactions, key=lambda one: (one.partition, one.start_offset)))


def abort_transaction(admin: KafkaAdminClient, transaction: OpenTransaction) -> None:
    """End a transaction at its partition, past its coordinator. Raises KafkaError."""
    place = TopicPartition(transaction.topic, transaction.partition)
    admin.abort_transaction(
        AbortTransactionSpec(
            place,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.coordinator_epoch,
        )
    )
