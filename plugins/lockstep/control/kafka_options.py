"""How a Kafka client connects, from `kafka.*` options of a source or sink: pure, one reading for all.

Options are named as Spark's Kafka source names them, which are Kafka's own Java settings behind
`kafka.`. Spark takes them as they are; the clients written in C and in Python have other names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lockstep.errors import WrongUse
from lockstep.sql.circuit import Project

__all__ = ["KafkaConnection", "check_connections", "refuse_unused"]

_BOOTSTRAP = "bootstrap.servers"
_LOGIN = re.compile(r"(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class KafkaConnection:
    """Where the brokers are and how to log in; an empty text means: not said.

    Certificates are PEM files. `username` and `password` are taken from sasl.jaas.config.
    """

    bootstrap: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    username: str = ""
    password: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_password: str = ""
    check_hostname: bool = True

    OPTIONS: ClassVar[frozenset[str]] = frozenset(
        f"kafka.{key}"
        for key in (
            _BOOTSTRAP,
            "security.protocol",
            "sasl.mechanism",
            "sasl.jaas.config",
            "ssl.truststore.location",
            "ssl.truststore.type",
            "ssl.keystore.location",
            "ssl.keystore.type",
            "ssl.key.password",
            "ssl.endpoint.identification.algorithm",
        )
    )
    """All that is read of a sink's. Of a source's, others are Spark's, which reads such a topic."""

    @staticmethod
    def from_options(options: Mapping[str, str], owner: str) -> KafkaConnection:
        """Read the `kafka.*` options (lower-case keys) of `owner`. Raises WrongUse."""
        settings = {
            key.removeprefix("kafka."): value
            for key, value in options.items()
            if key.startswith("kafka.")
        }
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        if not settings.get(_BOOTSTRAP):
            raise _wrong(owner, _BOOTSTRAP, "host:port, several with commas between", "nothing")
        if protocol not in _PROTOCOLS:
            raise _wrong(owner, "security.protocol", f"one of {', '.join(_PROTOCOLS)}", protocol)
        for store in ("truststore", "keystore"):
            kind = settings.get(
                f"ssl.{store}.type", "JKS" if f"ssl.{store}.location" in settings else ""
            )
            if kind.upper() not in ("", "PEM"):
                raise _wrong(owner, f"ssl.{store}.type", "PEM, which every client can read", kind)
        login = {
            name: re.sub(r"\\(.)", r"\1", double or single)
            for name, double, single in _LOGIN.findall(settings.get("sasl.jaas.config", ""))
        }
        return KafkaConnection(
            bootstrap=settings[_BOOTSTRAP],
            security_protocol=protocol,
            sasl_mechanism=settings.get("sasl.mechanism", ""),
            username=login.get("username", ""),
            password=login.get("password", ""),
            ca_file=settings.get("ssl.truststore.location", ""),
            certificate_file=settings.get("ssl.keystore.location", ""),
            key_password=settings.get("ssl.key.password", ""),
            check_hostname=settings.get("ssl.endpoint.identification.algorithm", "https") != "",
        )

    def librdkafka(self) -> dict[str, str]:
        """The same for clients on librdkafka (confluent-kafka)."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.certificate_file,
            "ssl.key.password": self.key_password,
            "ssl.endpoint.identification.algorithm": "" if self.check_hostname else "none",
        }
        return {key: value for key, value in settings.items() if value}

    def kafka_python(self) -> dict[str, object]:
        """The same for kafka-python."""
        settings: dict[str, object] = {
            "bootstrap_servers": self.bootstrap.split(","),
            "security_protocol": self.security_protocol,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
            "ssl_cafile": self.ca_file,
            "ssl_certfile": self.certificate_file,
            "ssl_keyfile": self.certificate_file,
            "ssl_password": self.key_password,
        }
        given = {key: value for key, value in settings.items() if value}
        return {**given, "ssl_check_hostname": self.check_hostname}


def refuse_unused(options: Mapping[str, str], owner: str, place: str) -> None:
    """Raise WrongUse for `kafka.*` options of a sink that none of its clients would be given."""
    unused = sorted(
        key for key in options if key.startswith("kafka.") and key not in KafkaConnection.OPTIONS
    )
    if unused:
        raise WrongUse(
            f"{owner} has settings that its producers are not given: {', '.join(unused)}",
            expected=f"of kafka.*, {', '.join(sorted(KafkaConnection.OPTIONS))}",
            found=", ".join(unused),
            next_step=f"leave them out at {place} and deploy again",
        )


def check_connections(project: Project) -> None:
    """Raise WrongUse for `kafka.*` options of a source or sink by which no client could connect."""
    for source in project.sources:
        if not source.is_table:
            KafkaConnection.from_options(source.options, f"source {source.name}")
    for sink in project.sinks:
        KafkaConnection.from_options(sink.options, f"sink {sink.name}")


def _wrong(owner: str, key: str, expected: str, found: str) -> WrongUse:
    return WrongUse(
        f"{owner} has an option 'kafka.{key}' that cannot be used",
        expected=expected,
        found=found,
        next_step=f"correct 'kafka.{key}' of {owner} and deploy again",
    )
