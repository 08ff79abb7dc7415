"""A Kubernetes of one node in an enclosure: its real servers, kubelet, containerd and CoreDNS.

It lacks virtual addresses of services (there is no kube-proxy: names resolve to pods), enforcement
of network policies (they are accepted), dynamic volumes, and access to other machines.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from typing import TYPE_CHECKING

from tests.kubernetes.cluster import configuration
from tests.kubernetes.cluster.cgroups import make_cgroup
from tests.kubernetes.cluster.enclosure import INSIDE, Enclosure
from tests.kubernetes.cluster.identities import ADMINISTRATORS, NODES, Identities
from tests.kubernetes.cluster.image import write_image

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.lab.part import Part
    from tests.kubernetes.cluster.programs import Programs

WITHIN = 180
"""Seconds that a part has to become ready: a busy machine must not fail a test."""
_READY = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'


class Node:
    """The cluster, from `up` to `down`.

    Attributes:
        administrator: a kubeconfig with all permissions.
    """

    def __init__(self, folder: Path, programs: Programs, kubectl: Path) -> None:
        """Does not start it; all its files are in the folder, whose name must be unique."""
        self.administrator = folder / "administrator.kubeconfig"
        self._folder = folder
        self._programs = programs
        self._kubectl_program = kubectl
        self._enclosure = Enclosure(folder, programs.servers / "pause")
        self._parts: list[Part] = []

    @property
    def host(self) -> str:
        """An address of this machine that pods reach."""
        return self._enclosure.host

    @property
    def loads(self) -> list[str]:
        """The command that imports the images of an archive, its last argument, into the node."""
        program = str(self._programs.containerd.with_name("ctr"))
        socket = self._enclosure.seen(configuration.CONTAINERD_SOCKET)
        return [program, "--address", socket, "--namespace", "k8s.io", "images", "import"]

    def up(self) -> None:
        """Start everything, and wait until pods can run.

        Raises:
            LabError: a part did not start; the text ends with the last lines of its log.
        """
        self._enclosure.start()
        make_cgroup(self._folder.name)
        configuration.write_containerd(
            self._folder, self._programs.cni, str(self._enclosure.within)
        )
        configuration.write_kubelet(self._folder, self._folder.name, self._enclosure.node)
        configuration.write_names(self._folder, self._enclosure.node)
        self._write_identities()

        containerd = self._start_containerd()
        self._start_servers()
        containerd.wait_until(self._took_pause, WITHIN, lambda: "took no image")
        kubelet = self._start_server(
            "kubelet",
            f"--config={INSIDE}/kubelet.json",
            f"--kubeconfig={INSIDE}/kubelet.kubeconfig",
            f"--root-dir={INSIDE}/kubelet",
            "--hostname-override=node",
            f"--node-ip={self._enclosure.node}",
        )
        names = self._start(
            "names", str(self._programs.servers / "dns"), "-conf", f"{INSIDE}/names.conf"
        )
        kubelet.wait_until(self._is_ready, WITHIN, lambda: "was not ready")
        names.wait_until(self._serves_names, WITHIN, lambda: "was not ready")

    def last_lines(self) -> str:
        """The last lines of every part's log, to explain a failure."""
        return "\n".join(f"{part.name} ({part.state}):\n{part.tail()}" for part in self._parts)

    def down(self) -> None:
        """Kill everything."""
        self._enclosure.end()
        for part in self._parts:
            part.kill()

    def _write_identities(self) -> None:
        known = Identities(self._folder)
        server = f"https://{self._enclosure.node}:6443"
        known.certified("apiserver", "kube-apiserver", self._enclosure.node)
        known.certified("apiserver-client", "kube-apiserver", group=ADMINISTRATORS)
        known.certified("accounts", "service-accounts")  # only its key is used
        known.client("controllers", server, "system:kube-controller-manager")
        known.client("scheduler", server, "system:kube-scheduler")
        known.client("kubelet", server, "system:node:node", group=NODES)
        known.client("names", server, "names", group=ADMINISTRATORS)
        known.client("administrator", server, "administrator", group=ADMINISTRATORS)

    def _start_containerd(self) -> Part:
        folders = [self._programs.containerd.parent, self._programs.runc.parent]
        return self._start(
            "containerd",
            str(self._programs.containerd),
            "--config",
            f"{INSIDE}/containerd.toml",
            path=os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
        )

    def _start_servers(self) -> None:
        """Start the control plane: etcd, the API server, the controllers and the scheduler."""
        local = "http://127.0.0.1"
        self._start_server(
            "etcd",
            f"--data-dir={INSIDE}/etcd",
            f"--listen-client-urls={local}:2379",
            f"--advertise-client-urls={local}:2379",
            f"--listen-peer-urls={local}:2380",
            "--unsafe-no-fsync",  # its data need not survive a crash
        )
        api = self._start_server(
            "apiserver",
            f"--etcd-servers={local}:2379",
            f"--advertise-address={self._enclosure.node}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--client-ca-file={INSIDE}/authority.pem",
            f"--tls-cert-file={INSIDE}/apiserver.crt",
            f"--tls-private-key-file={INSIDE}/apiserver.key",
            f"--kubelet-client-certificate={INSIDE}/apiserver-client.crt",
            f"--kubelet-client-key={INSIDE}/apiserver-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={INSIDE}/accounts.key",
            f"--service-account-signing-key-file={INSIDE}/accounts.key",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
        )
        api.wait_until(
            lambda: self._kubectl("get", "--raw", "/readyz") == "ok",
            WITHIN,
            lambda: "was not ready",
        )
        alone = ("--leader-elect=false", "--bind-address=127.0.0.1")
        self._start_server(
            "controllers",
            *alone,
            f"--kubeconfig={INSIDE}/controllers.kubeconfig",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={INSIDE}/accounts.key",
            f"--root-ca-file={INSIDE}/authority.pem",
            f"--flex-volume-plugin-dir={INSIDE}/plugins",
        )
        self._start_server("scheduler", *alone, f"--kubeconfig={INSIDE}/scheduler.kubeconfig")

    def _start_server(self, name: str, *arguments: str) -> Part:
        return self._start(name, str(self._programs.servers / "kube"), name, *arguments)

    def _start(self, name: str, *command: str, path: str | None = None) -> Part:
        environment = {} if path is None else {"PATH": path}
        part = self._enclosure.part(name, *command, environment=environment)
        self._parts.append(part)
        part.start()
        return part

    def _took_pause(self) -> bool:
        """Import the image that every pod starts with; whether that succeeded."""
        archive = self._folder / "pause.tar"
        if not archive.exists():
            write_image(archive, configuration.PAUSE_IMAGE, self._programs.servers / "pause")
        done = subprocess.run([*self.loads, str(archive)], capture_output=True, check=False)
        return done.returncode == 0

    def _is_ready(self) -> bool:
        """Whether pods can run: the node is ready, and the namespace has its service account."""
        for part in self._parts:
            part.check()
        account = self._kubectl("get", "serviceaccount", "default", "--output=name")
        return bool(account) and self._kubectl("get", "node", "node", "--output", _READY) == "True"

    def _serves_names(self) -> bool:
        url = f"http://{self._enclosure.node}:{configuration.NAMES_PORT}/ready"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _kubectl(self, *arguments: str) -> str:
        """The output of kubectl; empty if it fails."""
        command = [str(self._kubectl_program), "--kubeconfig", str(self.administrator), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""
