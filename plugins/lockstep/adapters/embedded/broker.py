"""A real Kafka broker: one KRaft node that is broker and controller, on loopback."""

from __future__ import annotations

import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from lockstep.adapters.embedded import process
from lockstep.adapters.embedded.java import java_command
from lockstep.adapters.embedded.ports import HOST, listens
from lockstep.adapters.embedded.process import Process
from lockstep.errors import LockstepError

__all__ = ["STOP_SECONDS", "answers", "start", "wait_ready"]

NAME = "the Kafka broker"
LOG_CONFIGURATION = Path(__file__).with_name("broker_log4j2.properties")
READY_SECONDS = 60
STOP_SECONDS = 20
ANSWER_SECONDS = 3

# One node: each internal topic has one copy and few partitions, which also makes it start sooner.
# Topics are made on purpose only: a misspelt name must be an error, not an empty topic. Records keep
# for ever: a replay writes them with the times at which things happened.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
num.partitions=4
log.retention.ms=-1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
controlled.shutdown.enable=false
"""


def start(
    folder: Path, jars: Sequence[Path], port: int, controller_port: int, log: Path
) -> Process:
    """Start the broker on its data below `folder` (made and formatted at the first start)."""
    java = java_command()
    data = folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "server.properties"
    configuration.write_text(
        PROPERTIES.format(host=HOST, port=port, controller_port=controller_port, data=data)
    )
    class_path = os.pathsep.join(str(jar) for jar in jars)
    options = ["-cp", class_path, f"-Dlog4j2.configurationFile=file:{LOG_CONFIGURATION}"]
    if not (data / "meta.properties").exists():
        _format([java, *options], configuration)
    heap = ["-Xms256m", "-Xmx768m", "-XX:+UseG1GC"]
    return process.start(
        [java, *heap, *options, "kafka.Kafka", configuration], log, os.environ, folder
    )


def wait_ready(broker: Process, port: int, log: Path) -> None:
    """Wait until clients are served. Raises LockstepError, Unreachable."""
    process.wait_ready(broker, NAME, log, lambda: answers(port), READY_SECONDS)


def answers(port: int) -> bool:
    """Whether a broker is registered and serves metadata there."""
    if not listens(port):
        return False
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # Without a log callback the client writes its connection errors to standard error.
    client = AdminClient(
        {"bootstrap.servers": f"{HOST}:{port}", "log_level": 0, "error_cb": lambda _: None}
    )
    try:
        return bool(client.list_topics(timeout=ANSWER_SECONDS).brokers)
    except KafkaException:
        return False


def _format(java: Sequence[str], configuration: Path) -> None:
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if cluster.startswith("-"):
        cluster = "A" + cluster[1:]  # The tool would take it for an option.
    command = [*java, "kafka.tools.StorageTool", "format"]
    done = subprocess.run(
        [*command, "--cluster-id", cluster, "--config", str(configuration)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LockstepError(
            "the folder of the Kafka broker could not be formatted",
            expected="an empty folder that can be written",
            found=(done.stderr or done.stdout).strip()[-800:],
            next_step=f"see what is in {configuration.parent}",
        )
