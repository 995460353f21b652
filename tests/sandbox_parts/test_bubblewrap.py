"""bubblewrap beside the package's sandbox: the same attacks, the same view.

``benchmarks/README.md`` rests on this: what of the attacks bubblewrap lets, with and without the
package's filter of system calls.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

import pytest
from sandbox_attack import SYSTEM_NGINX, USERS, attack
from sandbox_bubblewrap import groups

pytestmark = pytest.mark.needs("root", "nginx", "loop", "nobody", "gcc", "bwrap")
WITH_FILTER = {"write_pipe", "write_memory", "push_terminal", "rights", "raise_limits",
               "write_devices", "write_settings", "write_net_settings", "dump_core"}  # fmt: skip
"""What may be let in spite of it; of these a pipe alone is the host's."""
WITHOUT_FILTER = WITH_FILTER | {
    "unshare_user", "clone_user", "clone3_user", "take_descriptor", "trace_victim", "trace_me",
    "handle_faults", "use_keys", "use_ring", "quota", "personality_of_old", "unfiltered",
    "hold_files", "watch_files", "old_calls", "netlink_socket", "odd_sockets", "path_sockets",
    "path_sockets_elsewhere",
}  # fmt: skip
DOC = Path(__file__).parents[2] / "benchmarks" / "README.md"


BOTH = "bubblewrap and filter"
EACH = [*itertools.product(USERS, ("bubblewrap", BOTH), ("test", "request"))]


@pytest.mark.thorough
@pytest.mark.parametrize(("user", "sandbox", "how"), EACH)
def test_what_bubblewrap_lets(package: Path, user: str, sandbox: str, how: str) -> None:
    answer = attack(package, kind="module", user=user, nginx=SYSTEM_NGINX, how=how, sandbox=sandbox)
    results = answer["results"]
    assert results.keys() == groups().keys(), answer["said"]
    let = {name for name, error in results.items() if error == 0}
    of = groups()
    sys.stdout.write(f"{len(let)} of {len(results)} let: {sorted(let)}\n")
    for group, tried in Counter(of[name] for name in results).items():
        sys.stdout.write(f"{group}: {sum(of[name] == group for name in let)} of {tried}\n")
    is_filtered = sandbox == BOTH
    assert let <= (WITH_FILTER if is_filtered else WITHOUT_FILTER)
    # What stands in its directories is reached: pipes always, sockets unless a filter forbids.
    assert "write_pipe" in let
    assert ("path_sockets" in let) is not is_filtered
    assert answer["changes"]
    heard = ("pipe ",) if is_filtered else ("pipe ", "socket ")
    told = [change.partition(" times: ")[2] for change in answer["changes"]]
    assert all(one.startswith(heard) for one in told), answer["changes"]
    assert {one.split()[0] for one in told} == {name.strip() for name in heard}
    assert not answer["left"]


def test_the_page_counts_the_attacks_as_they_are() -> None:
    counts = Counter(groups().values())
    page = DOC.read_text()
    for group, number in counts.items():
        assert f"| {group} | {number} | 0 |" in page, (group, number)
