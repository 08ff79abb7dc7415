"""The configuration files of a node's programs, in the node's folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.kubernetes.cluster.enclosure import INSIDE

if TYPE_CHECKING:
    from pathlib import Path

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "localhost/pause:local"
NAMES_PORT = 8181
"""The port on which the name server reports whether it is ready."""
_CONTAINERD = f"""
version = 2
root = "{INSIDE}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{INSIDE}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true  # not every root may lower it
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "PLUGINS"
    conf_dir = "{INSIDE}/network"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""
_NAMES = f"""
.:53 {{
    bind ADDRESS
    errors
    ready ADDRESS:{NAMES_PORT}
    kubernetes cluster.local {{
        kubeconfig {INSIDE}/names.kubeconfig
    }}
}}
"""


def write_containerd(folder: Path, plugins: Path, pods: str) -> None:
    """Configure containerd: pods get addresses in the network `pods`."""
    (folder / "containerd.toml").write_text(_CONTAINERD.replace("PLUGINS", str(plugins)))
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/addresses",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    (folder / "network").mkdir()
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    (folder / "network" / "pods.conflist").write_text(json.dumps(network))


def write_kubelet(folder: Path, cgroup: str, names: str) -> None:
    """Configure the kubelet: its pods are in a cgroup, and their name server is `names`."""
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{INSIDE}/authority.pem"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [names],
        "clusterDomain": "cluster.local",
        "resolvConf": "",  # there is no other name server
        "podLogsDir": f"{INSIDE}/pods",
        "volumePluginDir": f"{INSIDE}/plugins",
        # Others may fill the disk, and an image that is removed cannot be pulled again.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "5s",
    }
    (folder / "kubelet.json").write_text(json.dumps(settings))


def write_names(folder: Path, address: str) -> None:
    """Configure CoreDNS to listen at an address."""
    (folder / "names.conf").write_text(_NAMES.replace("ADDRESS", address))
