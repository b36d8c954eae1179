"""Records of a broker that lets in whom it knows, over connections that nobody else can read."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiokafka.errors import AuthenticationFailedError, AuthenticationMethodNotSupported, KafkaError
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kafka_builders import new_topic, send

from lockstep.adapters.embedded import broker as embedded
from lockstep.adapters.embedded import process
from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.adapters.jars import jar_paths
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep_engine.sources.fetching import fetched

pytestmark = pytest.mark.kafka

USER, PASSWORD, KEY_PASSWORD = "reader", "what, nobody=knows", "of the key"

LISTENERS = """\
listeners=PLAINTEXT://{{host}}:{{port}},CONTROLLER://{{host}}:{{controller_port}},\
SASL_SSL://{{host}}:{sasl_ssl},SASL_PLAINTEXT://{{host}}:{sasl},SSL://{{host}}:{ssl}
advertised.listeners=PLAINTEXT://{{host}}:{{port}},\
SASL_SSL://{{host}}:{sasl_ssl},SASL_PLAINTEXT://{{host}}:{sasl},SSL://{{host}}:{ssl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={plain}
listener.name.sasl_plaintext.plain.sasl.jaas.config={plain}
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram}
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={scram}
ssl.keystore.type=PEM
ssl.keystore.location={keys}
ssl.truststore.type=PEM
ssl.truststore.location={trusted}
listener.name.ssl.ssl.client.auth=required
"""
PLAIN_LOGIN = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
)
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def make_keys(folder: Path, name: str, password: str = "") -> Path:
    """A file with a key and a certificate for this machine, which vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode())
        if password
        else serialization.NoEncryption(),
    )
    shown = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / f"{name}.pem").write_bytes(shown)
    file = folder / f"{name}-keys.pem"
    file.write_bytes(text + shown)
    return file


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, KafkaConnection]]:
    """Connections to a broker of its own, by protocol: the shared one knows nobody."""
    folder = tmp_path_factory.mktemp("secured")
    keys, own_keys = make_keys(folder, "broker"), make_keys(folder, "client", KEY_PASSWORD)
    port, controller_port, sasl_ssl, sasl, ssl_port = free_ports(5)
    listeners = LISTENERS.format(
        sasl_ssl=sasl_ssl,
        sasl=sasl,
        ssl=ssl_port,
        plain=PLAIN_LOGIN,
        scram=SCRAM_LOGIN,
        keys=keys,
        trusted=folder / "client.pem",
    )
    log = folder / "broker.log"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embedded, "PROPERTIES", embedded.PROPERTIES + listeners)
        running = embedded.start(folder / "data", jar_paths("broker"), port, controller_port, log)
    try:
        embedded.wait_ready(running, port, log)
        plain = KafkaConnection(f"{HOST}:{port}")
        add_user(plain.bootstrap)
        trusting = replace(plain, ca_file=str(folder / "broker.pem"))
        known = {"username": USER, "password": PASSWORD, "sasl_mechanism": "PLAIN"}
        yield {
            "PLAINTEXT": plain,
            "SSL": replace(
                trusting,
                bootstrap=f"{HOST}:{ssl_port}",
                security_protocol="SSL",
                certificate_file=str(own_keys),
                key_password=KEY_PASSWORD,
            ),
            "SASL_SSL": replace(
                trusting, bootstrap=f"{HOST}:{sasl_ssl}", security_protocol="SASL_SSL", **known
            ),
            "SASL_PLAINTEXT": replace(
                plain, bootstrap=f"{HOST}:{sasl}", security_protocol="SASL_PLAINTEXT", **known
            ),
        }
    finally:
        process.stop(running, embedded.STOP_SECONDS)


def add_user(bootstrap: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(30)


@pytest.fixture(scope="module")
def topic(secured: dict[str, KafkaConnection]) -> str:
    plain = secured["PLAINTEXT"].bootstrap
    found = new_topic(plain)
    send(plain, found, [b"%d" % number for number in range(5_000)])
    return found


def read(connection: KafkaConnection, topic: str) -> list[bytes | None]:
    parts = list(fetched(connection, topic, OffsetRange(0, 0, 5_000), 2.0))
    return [value for part in parts for value in part.values]


ALL = [b"%d" % number for number in range(5_000)]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_each_protocol(secured: dict[str, KafkaConnection], topic: str, protocol: str) -> None:
    assert read(secured[protocol], topic) == ALL


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_password_that_is_not_said(
    secured: dict[str, KafkaConnection], topic: str, protocol: str
) -> None:
    scram = replace(secured[protocol], sasl_mechanism="SCRAM-SHA-512")
    assert read(scram, topic) == ALL
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        wrong = replace(secured[protocol], sasl_mechanism=mechanism, password="a guess")
        with pytest.raises(AuthenticationFailedError, match="does not let the client in"):
            read(wrong, topic)
    with pytest.raises(AuthenticationMethodNotSupported, match="has no SCRAM-SHA-256, but"):
        read(replace(secured[protocol], sasl_mechanism="SCRAM-SHA-256"), topic)


def test_a_broker_that_nobody_vouches_for(secured: dict[str, KafkaConnection], topic: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        read(replace(secured["SASL_SSL"], ca_file=""), topic)


def test_a_broker_of_another_name(secured: dict[str, KafkaConnection], topic: str) -> None:
    known = secured["SASL_SSL"]
    other = replace(known, bootstrap=known.bootstrap.replace(HOST, "localhost"))
    with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
        read(other, topic)
    assert read(replace(other, check_hostname=False), topic) == ALL


def test_a_client_that_does_not_show_who_it_is(
    secured: dict[str, KafkaConnection], topic: str
) -> None:
    with pytest.raises((OSError, KafkaError)):
        read(replace(secured["SSL"], certificate_file=""), topic)
