"""What hatchling does beside its own for a wheel: it has the modules compiled that are Cython's.

Also for an editable wheel, which `pip install -e .` makes. Compiled modules then lie beside their
sources, where Python imports them from; what is made on the way lies in a folder that is gone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

SOURCES = "mirrortest/wire/*.pyx"
# For any processor of the kind: a wheel is used on others than it is built on. Without debugging
# symbols, which are most of a module.
OPTIONS = ["-O3", "-g0"]
NEEDED = "a C compiler and Python's headers are needed: apt-get install gcc python3-dev"


class CompiledModules(BuildHookInterface[BuilderConfig]):
    """The hook, as `tool.hatch.build.targets.wheel.hooks.custom` names it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile, and say that the wheel holds it and is of this Python and machine alone."""
        root = Path(self.root)
        with tempfile.TemporaryDirectory() as folder:
            sources = sorted(root.glob(SOURCES))
            # All of them first: where one fails, nothing is changed.
            for source, compiled in [
                (each, _compiled(root, each, Path(folder))) for each in sources
            ]:
                place = source.with_name(compiled.name)
                beside = Path(f"{place}.{os.getpid()}.new")  # builds may run at once
                shutil.copy(compiled, beside)
                beside.replace(place)  # at once: somebody may be importing the one before
                build_data["artifacts"].append(f"/{place.relative_to(root).as_posix()}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _compiled(root: Path, source: Path, folder: Path) -> Path:
    """The module, compiled into a folder; what fails ends the program with a line that says why."""
    named = source.relative_to(root)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    modules = cythonize(
        [
            Extension(
                ".".join(named.with_suffix("").parts),
                [str(source)],
                define_macros=[("SOURCE_DIGEST", f'"{digest}"')],
                extra_compile_args=OPTIONS,
            )
        ],
        build_dir=str(folder / "c"),
        force=True,
        quiet=True,
    )
    command = build_ext(Distribution({"name": "mirrortest", "ext_modules": modules}))
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "temp")
    command.ensure_finalized()
    try:
        command.run()
    except (BaseError, CCompilerError) as error:
        sys.exit(f"{named} was not compiled: {NEEDED} ({error})")
    (output,) = command.get_outputs()
    return Path(output)
