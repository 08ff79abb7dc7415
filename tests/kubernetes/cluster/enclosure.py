"""Namespaces for processes, mounts and the network, which end with their first process.

That process is killed when the one that created it ends, however it ends. So no process, mount or
network link of them can be left over.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import psutil

from mirrortest.errors import LabError
from mirrortest.lab.part import Part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirrortest.lab.runtime import PartState

INSIDE = "/run/node"
"""The path of the enclosure's folder inside; all else under /run is private to it."""
SETTINGS = {
    "kernel/keys/root_maxbytes": 25_000_000,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
"""The kernel settings that a kubelet wants. Inside, it reads these values and changes nothing: the
kernel is the machine's, and keeps its settings."""
# What programs write to /var and /run is private to them, and removed with them.
_MOUNTS = """
mount --no-mtab -t tmpfs tmpfs /run
mkdir -p {inside} /run/var/upper /run/var/work /run/settings
mount --bind {folder} {inside}
mount -t overlay -o lowerdir=/var,upperdir=/run/var/upper,workdir=/run/var/work overlay /var
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link set lo up
"""
_SETTING = """
echo {value} >/run/settings/{number}
mount --bind /run/settings/{number} /proc/sys/{name}
"""


class Enclosure:
    """The namespaces, connected to this machine by a network of their own.

    Attributes:
        host: this machine's address on that network.
        node: the enclosure's address on it.
        within: the network of addresses for use inside; this machine has a route to it.
    """

    def __init__(self, folder: Path, first: Path) -> None:
        """Does not start it: `folder` is for its programs' files, `first` is its process 1."""
        self._folder = folder
        words = "--mount --net --pid --fork --kill-child --mount-proc"
        self._first = Part("unshare", ["unshare", *words.split(), str(first)], folder / "first.log")
        self._program = first
        self._pid = 0

    def start(self) -> None:
        """Create the namespaces.

        Raises:
            LabError: this machine does not allow it.
        """
        self._first.start()
        self._first.wait_until(self._is_there, 30, lambda: "made no namespaces")
        self._link()
        settings = [
            _SETTING.format(name=name, value=value, number=number)
            for number, (name, value) in enumerate(SETTINGS.items())
        ]
        mounts = _MOUNTS.format(folder=shlex.quote(str(self._folder)), inside=INSIDE)
        self.run("sh", "-ec", "".join([mounts, *settings]))

    def part(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> Part:
        """A program to run inside; its log is in the folder."""
        log = self._folder / f"{name}.log"
        return Part(name, [*self._entered(), *command], log, environment=environment)

    def run(self, *command: str) -> str:
        """Run a program inside; what it printed.

        Raises:
            LabError: it failed.
        """
        return _run(*self._entered(), *command)

    def seen(self, path: str) -> str:
        """The path, on this machine, of a file inside."""
        return f"/proc/{self._pid}/root{path}"

    def end(self) -> None:
        """Kill everything in it."""
        if self._first.alive and self._pid:
            os.kill(self._pid, signal.SIGKILL)  # unshare waits until all have ended
        self._first.terminate()

    @property
    def state(self) -> PartState:
        """The state of its first process."""
        return self._first.state

    def _entered(self) -> list[str]:
        return ["nsenter", "--target", str(self._pid), "--mount", "--net", "--pid"]

    def _is_there(self) -> bool:
        """Whether the first process runs: its namespaces are complete then."""
        if self._first.pid is None:
            return False
        for child in psutil.Process(self._first.pid).children():
            try:
                if child.exe() == str(self._program.resolve()):
                    self._pid = child.pid
            except psutil.Error:
                continue  # not started yet, or ended
        return bool(self._pid)

    def _link(self) -> None:
        """Reserve the first free network, by creating the link of its name."""
        taken = [
            ipaddress.IPv4Network(route["dst"])
            for route in json.loads(_run("ip", "-json", "-4", "route"))
            if route["dst"] != "default"
        ]
        for number in range(256):
            network = ipaddress.IPv4Network(f"10.213.{number}.0/24")
            if any(network.overlaps(other) for other in taken):
                continue
            link = f"mirrortest{number}"
            try:
                _run("ip", "link", "add", link, "type", "veth", "peer", "eth0",
                     "netns", str(self._pid))  # fmt: skip
            except LabError:
                if link in {name for _, name in socket.if_nameindex()}:
                    continue  # another process was quicker
                raise
            self._address(link, network)
            return
        raise LabError("no network of 10.213.0.0/16 is free")

    def _address(self, link: str, network: ipaddress.IPv4Network) -> None:
        near, self.within = network.subnets()
        self.host, self.node = str(near[1]), str(near[2])
        _run("ip", "address", "add", f"{self.host}/{near.prefixlen}", "dev", link)
        _run("ip", "link", "set", link, "up")
        self.run("ip", "address", "add", f"{self.node}/{near.prefixlen}", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", self.host)
        _run("ip", "route", "add", str(self.within), "via", self.node)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{shlex.join(command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout
