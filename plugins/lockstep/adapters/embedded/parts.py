"""The parts of the embedded stack under one form: how each is started, found ready and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lockstep.adapters.embedded import airflow, broker, connect
from lockstep.adapters.embedded.connect import ConnectOptions
from lockstep.adapters.embedded.ports import HOST
from lockstep.adapters.embedded.process import Process
from lockstep.adapters.jars import jar_paths
from lockstep.control.ports import Progress
from lockstep.threads import processors

__all__ = [
    "AIRFLOW",
    "API_SERVER",
    "BROKER",
    "PORTS",
    "SPARK",
    "Part",
    "Port",
    "StackOptions",
    "addresses",
    "airflow_parts",
    "broker_part",
    "log_file",
    "part_names",
    "spark_part",
]

BROKER = "broker"
SPARK = "spark"
AIRFLOW = "airflow-"
API_SERVER = AIRFLOW + airflow.API_SERVER
MOST_CORES = 8


@dataclass(frozen=True)
class Port:
    """A port of the stack: the part that has it, what listens there, and its default."""

    part: str
    use: str
    default: int


PORTS: Mapping[str, Port] = {
    "kafka": Port(BROKER, "the Kafka broker", 9092),
    "kafka_controller": Port(BROKER, "the Kafka controller", 9093),
    "spark": Port(SPARK, "the Spark Connect server", 15002),
    "spark_ui": Port(SPARK, "the Spark UI", 4040),
    "airflow": Port(API_SERVER, "Airflow", 8080),
}
"""Every port that the stack listens on, by the name that stands in options and variables:
`--kafka-port`, LOCKSTEP_KAFKA_PORT."""


@dataclass(frozen=True)
class StackOptions:
    """What `up` can be told. `ports` are those asked for, by name; the others are as recorded, else
    the default. `spark_master` '' is Spark in one process on up to eight cores."""

    ports: Mapping[str, int] = field(default_factory=dict, hash=False)
    with_airflow: bool = True
    driver_memory: str = connect.DEFAULT_MEMORY
    spark_master: str = ""

    @property
    def master(self) -> str:
        return self.spark_master or f"local[{max(2, min(MOST_CORES, processors()))}]"


@dataclass(frozen=True)
class Part:
    """One process of the stack. `wait_ready` raises LockstepError or Unreachable."""

    name: str
    start: Callable[[], Process]
    wait_ready: Callable[[Process], None]


def part_names(with_airflow: bool) -> tuple[str, ...]:
    """The parts in the order in which people are shown them."""
    return (BROKER, SPARK, *(AIRFLOW + part for part in airflow.PARTS if with_airflow))


def log_file(home: Path, name: str) -> Path:
    """Where a part's output goes."""
    return home / "logs" / f"{name}.log"


def addresses(ports: Mapping[str, int], options: StackOptions) -> dict[str, str]:
    """What `Settings` reads of a stack with these ports."""
    found = {
        "kafka": f"{HOST}:{ports['kafka']}",
        "spark_remote": f"sc://{HOST}:{ports['spark']}",
        "spark_ui": f"http://{HOST}:{ports['spark_ui']}",
        "spark_master": options.master,
    }
    if options.with_airflow:
        found["airflow_url"] = airflow.url(ports["airflow"])
    return found


def broker_part(home: Path, ports: Mapping[str, int], progress: Progress) -> Part:
    """The Kafka broker, its data below `kafka/`."""
    port, log = ports["kafka"], log_file(home, BROKER)

    def start() -> Process:
        jars = jar_paths("broker", progress)
        return broker.start(home / "kafka", jars, port, ports["kafka_controller"], log)

    return Part(BROKER, start, lambda running: broker.wait_ready(running, port, log))


def spark_part(
    home: Path, ports: Mapping[str, int], options: StackOptions, progress: Progress
) -> Part:
    """The warm Spark Connect server, what it writes besides tables below `spark/`."""
    log = log_file(home, SPARK)
    chosen = ConnectOptions(
        ports["spark"], ports["spark_ui"], options.master, options.driver_memory
    )

    def start() -> Process:
        return connect.start(home / "spark", jar_paths("spark", progress), chosen, log)

    return Part(SPARK, start, lambda running: connect.wait_ready(running, chosen.port, log))


def airflow_parts(home: Path, variables: Mapping[str, str], port: int) -> tuple[Part, ...]:
    """Airflow's four processes; `variables` are those of `airflow.environment`."""

    def part(short: str) -> Part:
        log = log_file(home, AIRFLOW + short)
        return Part(
            AIRFLOW + short,
            partial(airflow.start, short, variables, log),
            lambda running: airflow.wait_ready(short, running, port, log),
        )

    return tuple(part(short) for short in airflow.PARTS)
