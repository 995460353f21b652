"""Runs inside a sandbox and tries to get out; says what worked, one JSON object."""

import ctypes
import json
import os
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)


def worked(call):
    try:
        result = call()
    except OSError:
        return False
    return not (isinstance(result, int) and result < 0)


def write(path):
    with open(path, "w") as file:
        file.write("x")


victim = sys.argv[1]
print(
    json.dumps(
        {
            "root": sorted(os.listdir("/")),
            "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
            "proc": sorted(name for name in os.listdir("/proc") if name in {"sys", "kcore"}),
            "devices": sorted(os.listdir("/dev")),
            "capabilities": next(
                line.split()[1] for line in open("/proc/self/status") if "CapEff" in line
            ),
            "uid": os.geteuid(),
            "got out by": [
                name
                for name, call in {
                    "write a file that is shown": lambda: write(victim + "/file"),
                    "write beside it": lambda: write(victim + "/new"),
                    "change its mode": lambda: os.chmod(victim + "/file", 0o777),
                    "write to a pipe": lambda: os.open(
                        victim + "/pipe", os.O_WRONLY | os.O_NONBLOCK
                    ),
                    "connect to a socket": lambda: socket.socket(socket.AF_UNIX).connect(
                        victim + "/socket"
                    ),
                    "send to a socket from a pair": lambda: socket.socketpair(
                        socket.AF_UNIX, socket.SOCK_DGRAM
                    )[0].sendto(b"x", victim + "/datagrams"),
                    "write the root": lambda: write("/x"),
                    "change a device's mode": lambda: os.chmod("/dev/null", 0o600),
                    "mount": lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, None),
                    "remount": lambda: libc.mount(None, b"/", None, 32, None),
                    "unmount": lambda: libc.umount2(victim.encode(), 2),
                    "chroot": lambda: libc.chroot(b"/tmp"),
                    "make a device": lambda: os.mknod("/tmp/d", 0o020666, os.makedev(1, 3)),
                    "have namespaces": lambda: libc.unshare(0x00020000),
                    "have users": lambda: libc.unshare(0x10000000),
                    "trace": lambda: libc.ptrace(16, 1, 0, 0),
                    "speak netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
                    "see packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0),
                    "send raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
                    "use bpf": lambda: libc.syscall(321, 0, 0, 0),
                    "use the keyring": lambda: libc.syscall(250, 0, -3, 0, 0, 0),
                    "read the first process": lambda: os.open("/proc/1/mem", os.O_RDONLY),
                    "see the first process's root": lambda: os.listdir("/proc/1/root"),
                    "kill the first process": lambda: os.kill(1, 0) if os.geteuid() else -1,
                }.items()
                if worked(call)
            ],
        }
    )
)
