"""An image of one program, as an archive that `ctr images import` takes."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(archive: Path, name: str, program: Path) -> None:
    """Write the image NAME:TAG with the program as its only file and its entry point."""
    layer = _tar({program.name: program.read_bytes()}, mode=0o755)
    digest = hashlib.sha256(layer).hexdigest()
    machine = platform.machine()
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    archive.write_bytes(_tar(files, mode=0o644))


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            made.addfile(member, io.BytesIO(content))
    return archive.getvalue()
