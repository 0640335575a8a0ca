"""Memory that a program keeps, in huge pages, which the C library only arranges when a program starts.

XLA asks for the memory of a step anew each time. By default glibc fetches large arrays from the kernel, which clears
them, and gives them back: in pages of 4 KiB a step of a model of 17 million parameters has 28,000 page faults, in huge
pages 500, which take 17 of the 270 ms of its processor time. With one heap that gives nothing back there are none.
"""

import os
import pathlib
import platform
import sys

TUNABLES = "GLIBC_TUNABLES"
# No array comes from the kernel directly; the heap keeps what is free; all threads share it, and each keeps a hundred
# small blocks of its own of each size, or compilers would wait for each other. Needs glibc 2.26.
KEPT = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.arena_max=1:"
    "glibc.malloc.tcache_count=100"
)
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # malloc advises the kernel to use huge pages; needs glibc 2.35
KERNEL = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")


def keep_memory() -> None:
    """Starts this program again with a C library that keeps its memory, in huge pages if the kernel waits for advice.

    Does nothing if the user has set the tunables of the C library or another allocator, or if it is not glibc.
    """
    if TUNABLES in os.environ or "LD_PRELOAD" in os.environ or not (found := tunables()):
        return
    os.environ[TUNABLES] = found
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def tunables() -> str:
    """Returns the settings that this C library knows; empty if it has none."""
    name, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if name != "glibc" or numbers < (2, 26):
        return ""
    return f"{HUGE_PAGES}:{KEPT}" if numbers >= (2, 35) and advises() else KEPT


def advises() -> bool:
    """Returns whether the kernel uses huge pages where it is advised to, neither always nor never."""
    try:
        return "[madvise]" in KERNEL.read_text(encoding="ascii")
    except OSError:
        return False
