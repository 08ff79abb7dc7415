"""Identities in the cluster: the certificates of one CA, and the clients' kubeconfigs."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path

ADMINISTRATORS = "system:masters"
NODES = "system:nodes"


class Identities:
    """Certificates and client configurations, written into a folder.

    Attributes:
        authority: the CA's certificate, which all programs trust.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.authority = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.authority))

    def certified(self, file: str, user: str, *addresses: str, group: str = "") -> tuple[str, str]:
        """A certificate and its key, as PEM, for a user of a group of the API or for a server.

        They are also written to `file`.crt and `file`.key.
        """
        # Go rejects a certificate without a name.
        leaf = self._authority.issue_cert(
            f"{file}.cluster.local", *addresses, common_name=user, organization_name=group or None
        )
        (chain,) = leaf.cert_chain_pems
        chain.write_to_path(str(self._folder / f"{file}.crt"))
        leaf.private_key_pem.write_to_path(str(self._folder / f"{file}.key"))
        return chain.bytes().decode(), leaf.private_key_pem.bytes().decode()

    def client(self, file: str, server: str, user: str, group: str = "") -> Path:
        """A kubeconfig that needs no other file."""
        certificate, key = self.certified(file, user, group=group)
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "cluster",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": _base64(self.authority.read_text()),
                    },
                }
            ],
            "users": [
                {
                    "name": "user",
                    "user": {
                        "client-certificate-data": _base64(certificate),
                        "client-key-data": _base64(key),
                    },
                }
            ],
            "contexts": [{"name": "it", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "it",
        }
        path = self._folder / f"{file}.kubeconfig"
        path.write_text(json.dumps(kubeconfig))
        path.chmod(0o600)
        return path


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
