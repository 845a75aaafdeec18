"""How the client libraries are told to speak TLS, and as whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from pidkeeper.service.tls import client_context
from pidkeeper.service.tls_files import TlsFiles

MECHANISM: Final = "SCRAM-SHA-512"


class Login(msgspec.Struct, frozen=True):
    """A user of SASL."""

    user: str
    password: str


class Security(msgspec.Struct, frozen=True):
    """TLS with these files, and a login. Without one a client is whom its certificate names."""

    files: TlsFiles
    login: Login | None = None

    def python(self) -> dict[str, Any]:
        """Settings of aiokafka and kafka-python. Raises SettingsError for files of no use."""
        settings: dict[str, Any] = {"security_protocol": self._protocol, "ssl_context": client_context(self.files)}
        if self.login is not None:
            settings["sasl_mechanism"] = MECHANISM
            settings["sasl_plain_username"] = self.login.user
            settings["sasl_plain_password"] = self.login.password
        return settings

    def librdkafka(self) -> dict[str, str]:
        """Settings of confluent-kafka."""
        settings = {
            "security.protocol": self._protocol,
            "ssl.ca.location": self.files.ca_file,
            "ssl.certificate.location": self.files.certificate_file,
            "ssl.key.location": self.files.key_file,
        }
        if self.login is not None:
            settings["sasl.mechanism"] = MECHANISM
            settings["sasl.username"] = self.login.user
            settings["sasl.password"] = self.login.password
        return {key: value for key, value in settings.items() if value is not None}

    def java(self) -> dict[str, str]:
        """Settings of the Java client, each in one line. Raises OSError if a file cannot be read."""
        files = self.files
        settings = {
            "security.protocol": self._protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _in_one_line(files.ca_file),
        }
        if files.certificate_file is not None:
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.certificate.chain"] = _in_one_line(files.certificate_file)
            settings["ssl.keystore.key"] = _in_one_line(files.key_file)
        if self.login is not None:
            settings["sasl.mechanism"] = MECHANISM
            settings["sasl.jaas.config"] = (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{self.login.user}" password="{self.login.password}";'
            )
        return settings

    @property
    def _protocol(self) -> str:
        return "SSL" if self.login is None else "SASL_SSL"


def _in_one_line(pem: str | None) -> str:
    """As Kafka takes it, so that a certificate and its key need not be in one file."""
    assert pem is not None, "a cluster for trying out has a CA of its own, and a key for each certificate"
    return " ".join(Path(pem).read_text().split("\n"))
