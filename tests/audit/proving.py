"""What proofs of rules have in common."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from scratch_nginx import Server

from nginx_tune.audit.context import AuditProfile
from nginx_tune.audit.engine import audit
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.facts import Facts
from nginx_tune.host.live import LiveHost

Serve = Callable[[str], Server]


def fires(
    rule: str, conf: Path, facts: Facts | None = None, *, profile: AuditProfile = "default"
) -> bool:
    return severity(rule, conf, facts, profile=profile) is not None


def severity(
    rule: str, conf: Path, facts: Facts | None = None, *, profile: AuditProfile = "default"
) -> str | None:
    """How bad the first finding of a rule is, if there is any."""
    found = audit(read_tree(str(conf), LiveHost()), facts, profile=profile)
    return next((one.severity for one in found.findings if one.rule == rule), None)


def has_ended(pid: int) -> bool:
    """Whether a process is no more; lists of children may leave one out for a moment."""
    return not Path(f"/proc/{pid}").exists()


@contextlib.contextmanager
def system_calls(server: Server, *names: str) -> Iterator[list[str]]:
    """The system calls of these names that its workers make; filled when the block ends."""
    workers = [part for pid in server.workers() for part in ("-p", str(pid))]
    lines: list[str] = []
    with subprocess.Popen(
        ["strace", "-f", *workers, "-e", f"trace={','.join(names)}"],
        stderr=subprocess.PIPE,
        text=True,
    ) as tracer:
        assert tracer.stderr is not None
        for _ in workers[::2]:
            assert "attached" in tracer.stderr.readline()
        yield lines
        tracer.terminate()
        lines += [line for line in tracer.stderr if any(f"{name}(" in line for name in names)]
