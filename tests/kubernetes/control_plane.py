"""A control plane of Kubernetes, as processes: etcd, the API server, the controllers and the scheduler."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import requests
import yaml

from tests.kubernetes.api import Api, ApiError
from tests.pods.network import FIRST
from tests.support.certificates import CertificateAuthority

PROGRAMS: Final = Path(__file__).resolve().parents[2] / ".tools" / "kubernetes"
NAMES: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
URL: Final = "https://127.0.0.1:6443"
START_SECONDS: Final = 90.0
END_SECONDS: Final = 20.0
_ETCD: Final = "http://127.0.0.1:2379"


def why_no_programs() -> str | None:
    """Why there is no control plane to be started; None if there is."""
    missing = [name for name in NAMES if not (PROGRAMS / name).exists()]
    return f"{missing[0]} is not in .tools/kubernetes: tools/fetch-kubernetes builds it with Go" if missing else None


class ControlPlaneError(Exception):
    """A program of it ended, or did not come up: the message has the end of its log."""


class ControlPlane:
    """Use as a context manager, in a network of its own: the ports are fixed. `kubeconfig`: what helm takes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._files = CertificateAuthority(directory)
        token = secrets.token_hex(16)
        self.api = Api(URL, token, self._files.path)
        self.kubeconfig = directory / "kubeconfig"
        self._tokens = directory / "tokens"
        self._tokens.write_text(f'{token},admin,admin,"system:masters"\n')
        self._write_kubeconfig(token)

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End all of it, the store last."""
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start_all(self) -> None:
        keys = self._files.issue("apiserver", hosts=("127.0.0.1", "localhost"))
        self._start(
            "etcd",
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._start(
            "kube-apiserver",
            f"--etcd-servers={_ETCD}",
            "--bind-address=127.0.0.1",
            "--secure-port=6443",
            f"--advertise-address={FIRST}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={keys.certificate_file}",
            f"--tls-private-key-file={keys.key_file}",
            f"--service-account-key-file={keys.certificate_file}",
            f"--service-account-signing-key-file={keys.key_file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self._tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
        )
        self._await_api()
        given = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1")
        own = f"--cert-dir={self._directory / 'certificates'}"
        self._start("kube-controller-manager", *given, own, f"--service-account-private-key-file={keys.key_file}")
        self._start("kube-scheduler", *given, own)

    def _start(self, name: str, *arguments: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen((str(PROGRAMS / name), *arguments), stdout=log, stderr=log)

    def _await_api(self) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(requests.RequestException, ApiError, ValueError):
                if self.api.get("/api/v1/namespaces/kube-system"):
                    return
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ControlPlaneError(f"{name} ended with {process.returncode}\n{self._log(name)}")
            if time.monotonic() > end:
                raise ControlPlaneError(f"no API server within {START_SECONDS:g} s\n{self._log('kube-apiserver')}")
            time.sleep(0.1)

    def _log(self, name: str) -> str:
        return "\n".join((self._directory / f"{name}.log").read_text(errors="replace").splitlines()[-20:])

    def _write_kubeconfig(self, token: str) -> None:
        cluster = {"server": URL, "certificate-authority": str(self._files.path)}
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": "admin", "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                }
            )
        )
