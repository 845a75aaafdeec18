"""SeaweedFS, a distributed object store that speaks S3: as one process on loopback, with its files in one directory."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import HOST, free_ports
from tests.stores.server import CONTAINER, ROOT, StoreServer

FETCHED: Final = ROOT / ".tools" / "seaweedfs" / "bin" / "weed"
REGION: Final = "us-east-1"
VOLUMES: Final = 20
"""Files of up to VOLUME_MIB; each bucket takes seven of its own at first."""
VOLUME_MIB: Final = 64


def weed() -> list[str] | None:
    """The program, if it can be had here."""
    found = shutil.which("weed") or (str(FETCHED) if FETCHED.is_file() else None)
    return None if found is None else [found]


class SeaweedFS(StoreServer):
    """See `StoreServer`. It lists folder by folder, so that `a/b` comes before `a-b`: refused, and not believed."""

    name = "SeaweedFS"
    survives = True
    misses = ("test_listing_is_in_the_order_of_bytes_whatever_is_a_folder",)
    url = f"s3://{CONTAINER}"

    def __init__(self, program: list[str], directory: Path) -> None:
        data = directory / "data"
        data.mkdir(parents=True)
        ports = iter(free_ports(8))
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
        numbers = {name: next(ports) for name in (*names, "s3.port", "s3.port.grpc")}
        key, secret = secrets.token_hex(8), secrets.token_hex(16)
        self.options = {
            "endpoint": f"http://{HOST}:{numbers['s3.port']}",
            "allow_http": "true",
            "region": REGION,
            "access_key_id": key,
            "secret_access_key": secret,
        }
        identity = {"name": "agent", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": ["Admin"]}
        identities = directory / "s3.json"
        identities.write_text(json.dumps({"identities": [identity]}))
        command = [*program, "server", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}", "-s3", "-filer"]
        command += [f"-{name}={port}" for name, port in numbers.items()]
        command += [f"-volume.max={VOLUMES}", f"-master.volumeSizeLimitMB={VOLUME_MIB}", "-master.telemetry=false"]
        super().__init__([*command, f"-s3.config={identities}"], directory)

    def has_container(self) -> bool:
        """Make it, unless it is there; whether it is, and can be written to."""
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client()
        try:
            if CONTAINER not in {one["Name"] for one in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=CONTAINER)
            client.put_object(Bucket=CONTAINER, Key="served", Body=b"x")
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True

    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.options["endpoint"],
            region_name=REGION,
            aws_access_key_id=self.options["access_key_id"],
            aws_secret_access_key=self.options["secret_access_key"],
            config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}),
        )
