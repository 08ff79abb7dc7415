"""What the allocators keep and return: pages of large buffers, once for all threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from mirrortest.host.allocator import keep_large_buffers

def use():
    kept.append(bytearray(100_000))
    barrier.wait()

kept, barrier = [], threading.Barrier(4)
print(keep_large_buffers() if sys.argv[1] == "asked" else None, flush=True)
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
stream = ctypes.c_void_p.in_dll(libc, "stdout")
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


def _run(asked: str, **environment: str) -> tuple[str, int]:
    """What the program printed, and how many heaps its threads used."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[0], done.stdout.count("<heap nr=")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_threads_share_what_is_kept() -> None:
    """A thread that writes a log now and then keeps no memory of its own."""
    answer, heaps = _run("asked")
    assert (answer, heaps) == ("True", 1)
    assert _run("not asked")[1] > 1


def test_what_the_user_has_set_stays() -> None:
    """By environment variables, as in glibc's manual."""
    assert _run("asked", MALLOC_ARENA_MAX="3")[0] == "False"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_was_kept_can_be_given_back() -> None:
    """Large buffers that are free stay resident until then."""
    program = """
import re
from mirrortest.host.allocator import keep_large_buffers, release_free_memory

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])

keep_large_buffers()
large = [bytearray(b"x" * (8 << 20)) for _ in range(8)]
del large
kept = resident()
release_free_memory()
print(kept - resident())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 50_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
@pytest.mark.parametrize(("asked", "backend"), [(None, "jemalloc"), ("system", "system")])
def test_the_program_chooses_the_allocator_of_arrow(asked: str | None, backend: str) -> None:
    """Arrow's default never returned 32 MB. No warning of a missing allocator is printed."""
    program = """
import atexit, sys
from mirrortest.cli.start import run

def tell():
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)

atexit.register(tell)
sys.argv = ["mirrortest", "--version"]
run()
"""
    environment = {
        name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"
    }
    if asked is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = asked
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout.splitlines()[-1], done.stderr) == (backend, "")
