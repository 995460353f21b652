"""The calls that are killed behind and replayed are all there are: strace sees no other."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot

TRACED = (
    "open,openat,creat,write,pwrite64,writev,rename,renameat,renameat2,unlink,unlinkat,mkdir,"
    "mkdirat,rmdir,link,linkat,symlink,symlinkat,mknod,mknodat,chmod,fchmod,fchmodat,chown,lchown,"
    "fchown,fchownat,truncate,ftruncate,fallocate,fsync,fdatasync,sync_file_range,utimensat,"
    "setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,ioctl,kill,tgkill,"
    "pidfd_send_signal,sendfile,copy_file_range"
)
NAMES = {"openat": "open", "renameat": "renameat2", "unlinkat": "unlink", "fsetxattr": "setxattr",
         "fremovexattr": "removexattr", "mkdirat": "mkdir"}  # fmt: skip
SCRIPT = """
import json, sys
from pathlib import Path
from nginx_tune.change.apply import calls
told = []
calls.after_call = told.append
from nginx_tune.change.apply.examine import Proposed
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.run import ApplyOptions, apply_change
from nginx_tune.change.apply.undo import roll_back
from nginx_tune.host.live import LiveHost
conf, state, edits = json.load(sys.stdin)
proposed = [Proposed(path, text.encode(), *sums) for path, text, sums in edits]
wish = ApplyOptions(conf_path=conf, watch_seconds=0.1)
state = State(Path(state))
assert apply_change(LiveHost(), state, proposed, {}, wish).outcome == "kept"
assert roll_back(LiveHost(), state, None)[1] == "reloaded"
print(json.dumps(told))
"""


def _changing(line: str, root: str) -> str:
    """The call of a line of strace when it changes something of ours; else empty."""
    name = line.partition("(")[0]
    if " = -1 " in line or (name.startswith("open") and "O_CREAT" not in line):
        return ""
    if name == "ioctl" and "SETFLAGS" not in line:
        return ""
    if name in ("kill", "tgkill", "pidfd_send_signal"):
        return name if "SIGHUP" in line else ""
    return NAMES.get(name, name) if root in line else ""


@pytest.mark.needs("root", "nginx", "strace")
def test_every_call_that_changes_something_is_told(
    make_site: Callable[..., Site], root: Path
) -> None:
    site = make_site()
    before = snapshot(site.tree)
    edits = site.propose(
        {"conf.d/site.conf": site.server('return 200 "new";'), "conf.d/new.conf": "# nothing\n"}
    )
    given = [(one.path, one.content.decode(), (one.sha256_before, one.sha256_after))
             for one in edits]  # fmt: skip
    log = root / "strace"
    run = subprocess.run(
        ["strace", "-y", "-qq", "-s", "0", "-o", log, "-e", f"trace={TRACED}", sys.executable,
         "-c", SCRIPT],
        input=json.dumps([str(site.conf), str(site.state.path), given]),
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert snapshot(site.tree) == before
    told = Counter(json.loads(run.stdout))
    lines = [
        line for line in log.read_text().splitlines() if "/lock" not in line or "open" not in line
    ]
    seen = Counter(filter(None, (_changing(line, str(root)) for line in lines)))
    assert seen == told
    assert told["pidfd_send_signal"] == 2
    assert told["renameat2"] == 10, (
        "the journal, two new files, two places, the stored old one, two places, what nginx has "
        "read twice"
    )
