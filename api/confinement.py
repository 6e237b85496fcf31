"""What a process gives up before it touches a stranger's bytes; each step where the system has it.

Linux: `man 2 prctl`, `man 2 seccomp`, `man 2 setrlimit`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from contextlib import suppress

_PDEATHSIG, _SECCOMP, _NO_NEW_PRIVILEGES, _FILTER = 1, 22, 38, 2
#: Of a filter's program: load a word, jump if equal, return.
_LOAD, _JUMP, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
_NUMBER, _ARCHITECTURE = 0, 4  # where a filter finds them
#: The calls that remain: what is open may be read and written, memory be had, and the process end.
_CALLS = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "close": (3, 57),
    "fstat": (5, 80), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "getpid": (39, 172), "gettid": (186, 178), "exit": (60, 93), "exit_group": (231, 94),
    "gettimeofday": (96, 169), "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153),
    "futex": (202, 98), "sched_getaffinity": (204, 123), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "getrandom": (318, 278),
}  # fmt: skip
#: The audit number of a machine, and its column in `_CALLS`.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def end_with(parent: int) -> None:
    """Have the kernel end this process when `parent`, which started it, ends.

    The thread that started it must live as long as `parent`: see `api.processes.start`.
    """
    if sys.platform != "linux":
        return
    _control(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        sys.exit(0)


def confine() -> bool:
    """Open no file, connection or process any more, and gain no privilege; for good.

    Returns:
        Whether the kernel refuses all calls but `_CALLS`, too. It does not on other machines than
        x86-64 and ARM64, and where seccomp is not built in.
    """
    if sys.platform == "win32":
        return False
    import resource

    # zero bounds the numbers of new descriptors, those that are open stay so
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    if sys.platform != "linux":
        return False
    with suppress(OSError):
        _control(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return _filter_calls()
    return False


def _filter_calls() -> bool:
    if platform.machine() not in _MACHINES:
        return False
    architecture, column = _MACHINES[platform.machine()]
    allowed = sorted(numbers[column] for numbers in _CALLS.values())
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP, 0, len(allowed) + 1, architecture),
        (_LOAD, 0, 0, _NUMBER),
        *((_JUMP, len(allowed) - i, 0, number) for i, number in enumerate(allowed)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    whole = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(code)))
    _control(_SECCOMP, _FILTER, ctypes.addressof(whole))
    return True


def _control(option: int, *arguments: int) -> None:
    """`prctl`.

    Raises:
        OSError: the kernel does not have it, or refuses it.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, *(ctypes.c_ulong(each) for each in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
