"""SeaweedFS, a distributed object store that speaks S3: as one process on loopback, with its files in one directory."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from pidkeeper.cli.local_cluster import HOST, free_ports

ROOT: Final = Path(__file__).parents[2]
FETCHED: Final = ROOT / ".tools" / "seaweedfs" / "bin" / "weed"
BUCKET: Final = "records"
REGION: Final = "us-east-1"
START_SECONDS: Final = 90.0
"""Until a bucket can be made: 18 s were seen on two busy cores."""
STOP_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.2
VOLUMES: Final = 20
"""Files of up to VOLUME_MIB; each bucket takes seven of its own at first."""
VOLUME_MIB: Final = 64


def weed() -> str | None:
    """The program, if it can be had here."""
    return shutil.which("weed") or (str(FETCHED) if FETCHED.is_file() else None)


class SeaweedFS:
    """`options`: of a store in BUCKET. Every start is on the same ports, and finds the files of the one before."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._directory = directory
        self._data = directory / "data"
        self._data.mkdir(parents=True)
        ports = iter(free_ports(8))
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
        self._ports = {name: next(ports) for name in (*names, "s3.port", "s3.port.grpc")}
        key, secret = secrets.token_hex(8), secrets.token_hex(16)
        self.options = {
            "endpoint": f"http://{HOST}:{self._ports['s3.port']}",
            "allow_http": "true",
            "region": REGION,
            "access_key_id": key,
            "secret_access_key": secret,
        }
        identity = {"name": "agent", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": ["Admin"]}
        self._identities = directory / "s3.json"
        self._identities.write_text(json.dumps({"identities": [identity]}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once there is a bucket. Raises TimeoutError, with the end of its log."""
        command = [self._program, "server", f"-dir={self._data}", f"-ip={HOST}", f"-ip.bind={HOST}", "-s3", "-filer"]
        command += [f"-{name}={port}" for name, port in self._ports.items()]
        command += [f"-volume.max={VOLUMES}", f"-master.volumeSizeLimitMB={VOLUME_MIB}", "-master.telemetry=false"]
        with (self._directory / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, f"-s3.config={self._identities}"], stdout=log, stderr=log, cwd=self._directory
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._has_bucket():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"SeaweedFS does not serve: {(self._directory / 'weed.log').read_bytes()[-2000:]!r}")
            time.sleep(POLL_SECONDS)

    def pause(self) -> None:
        """It stands still, and its connections with it."""
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """After `pause`."""
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """It ends at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and then make it."""
        if self._process is None or self._process.poll() is not None:
            return
        self.go_on()
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)

    @property
    def _pid(self) -> int:
        assert self._process is not None, "started before"
        return self._process.pid

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "started before"
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS)

    def _has_bucket(self) -> bool:
        """Make the bucket, unless it is there."""
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client()
        try:
            if BUCKET not in {one["Name"] for one in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="served", Body=b"x")
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
