"""Huge pages for the arrays of a program, which the C library only arranges when a program starts.

XLA asks for the memory of a step anew each time. In pages of 4 KiB a step of a model of 17 million parameters has
28,000 page faults, in huge pages a few hundred.
"""

import os
import pathlib
import platform
import sys

TUNABLES = "GLIBC_TUNABLES"
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # malloc advises the kernel to use huge pages; needs glibc 2.35
KERNEL = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")


def use_huge_pages() -> None:
    """Starts this program again with huge pages where that helps.

    Does nothing if the user has set the tunables of the C library or another allocator, or if the kernel uses huge
    pages always or never.
    """
    if TUNABLES in os.environ or "LD_PRELOAD" in os.environ or not is_useful():
        return
    os.environ[TUNABLES] = HUGE_PAGES
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def is_useful() -> bool:
    """Returns whether the C library can advise the kernel to use huge pages, and the kernel waits for advice."""
    try:
        asks = "[madvise]" in KERNEL.read_text(encoding="ascii")
    except OSError:
        return False
    name, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    return asks and name == "glibc" and numbers >= (2, 35)
