"""What those who ask a secure cluster show it: what is in its directory, which nothing is added to."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from aiokafka.errors import KafkaError

from pidkeeper.cli.controllers import CERTIFICATES, dev_files
from pidkeeper.cli.dev_certificates import DevAuthority
from pidkeeper.cli.dev_user import CLIENT
from pidkeeper.cli.failures import CommandError
from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.service.certified import CertifiedName
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.tls import Tls
from pidkeeper.service.tls_files import TlsFiles
from tests.clients.security import Login, Security
from tests.clients.transactional_witnesses import AiokafkaWitness

OPERATOR: Final = "operator"
PRODUCER: Final = "producer"

CERTIFICATE_DAYS: Final = 8.0
"""Of one that is made for a run: longer than a run may take."""

_LOGIN: Final = re.compile(r'^sasl\.jaas\.config=.* username="([^"]+)" password="([^"]+)";$', re.MULTILINE)


def files_of(cluster: LocalCluster, name: str) -> TlsFiles | None:
    """Those of an operator or a producer; None where nobody has to show anything. Raises CommandError."""
    if not cluster.layout.secure:
        return None
    if (files := dev_files(cluster.directory, name)) is None:
        raise CommandError(
            f"{cluster.directory / CERTIFICATES} lacks one of ca.pem, {name}.pem and {name}.key, with which a run asks "
            "a secure cluster: bring it back, or start a new cluster with `pidkeeper dev --secure`"
        )
    return files


def tls_of(cluster: LocalCluster, name: str) -> Tls | None:
    """The same, read. Raises CommandError for files of no use."""
    if (files := files_of(cluster, name)) is None:
        return None
    try:
        return Tls(files)
    except SettingsError as error:
        raise CommandError(f"the certificate of the {name} in {cluster.directory} is of no use: {error}") from error


def broker_tls(cluster: LocalCluster, broker_id: int, directory: Path) -> Tls | None:
    """What a broker shows that is no member: a certificate which the cluster's CA issues into `directory`.

    Raises CommandError if the CA's key cannot be had, or is another one's.
    """
    if (files := files_of(cluster, OPERATOR)) is None:
        return None
    key = cluster.directory / CERTIFICATES / "ca.key"
    if not os.access(key, os.R_OK):
        raise CommandError(f"{key} cannot be read, so no certificate can be issued for it")
    name = f"broker-{broker_id}"
    names = [CertifiedName(cluster.layout.cluster_id, "broker", str(broker_id))]
    DevAuthority(key.parent).issue(name, names, (), CERTIFICATE_DAYS, into=directory)
    return Tls(
        TlsFiles(
            certificate_file=str(directory / f"{name}.pem"),
            key_file=str(directory / f"{name}.key"),
            ca_file=files.ca_file,
        )
    )


def client_security(cluster: LocalCluster) -> Security | None:
    """How Kafka clients speak to agents that want TLS; None if plaintext will do. Raises CommandError."""
    if not takes_tls_alone(cluster):
        return None
    files = files_of(cluster, PRODUCER)
    assert files is not None, "only a secure cluster takes TLS alone"
    if (login := _login(cluster.directory / CLIENT)) is None:
        return Security(files)
    return Security(TlsFiles(ca_file=files.ca_file), login)


async def check_clients(cluster: LocalCluster) -> None:
    """Raises CommandError if an agent that wants TLS does not let Kafka clients in, such as with an old password."""
    if (security := client_security(cluster)) is None:
        return
    for agent in cluster.layout.agents:
        witness = AiokafkaWitness(agent.kafka, None, security)
        try:
            await witness.init()
        except (KafkaError, TimeoutError) as error:
            shown = CLIENT if security.login else f"{CERTIFICATES}/{PRODUCER}.pem"
            raise CommandError(
                f"the agent at {agent.kafka} lets no Kafka client in with {cluster.directory / shown}: {error}; "
                "its log says why"
            ) from error
        finally:
            await witness.close()


def takes_tls_alone(cluster: LocalCluster) -> bool:
    """Whether its agents refuse plaintext."""
    return cluster.layout.secure and cluster.agent_options.get("security") != "optional"


def why_no_login(cluster: LocalCluster) -> str | None:
    """Why Kafka clients of a cluster that takes TLS alone log in as nobody; None if they need not, or do."""
    security = client_security(cluster)
    if security is None or security.login is not None:
        return None
    return f"{cluster.directory / CLIENT} has no user as `pidkeeper dev --secure` writes it: they show a certificate"


def _login(client: Path) -> Login | None:
    try:
        found = _LOGIN.search(client.read_text(errors="replace"))
    except OSError:
        return None
    return None if found is None else Login(*found.groups())
