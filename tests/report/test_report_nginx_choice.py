"""Which nginx was meant, in as few lines as tell it."""

from __future__ import annotations

import msgspec
from rows import each_row

from nginx_tune.documents.facts import Nginx, NginxCandidate
from nginx_tune.report.facts_nginx import choice_lines, is_doubtful


def _other(pid: int, reason: str = "it runs in a container") -> NginxCandidate:
    return NginxCandidate(binary="/usr/sbin/nginx", source="running", pid=pid, reason=reason)


@each_row(
    ("pids", "said"),
    [
        ([7], "of process 7"),
        ([7, 8], "of processes 7, 8"),
        ([7, 8, 9, 10], "of processes 7, 8, 9, 10"),
        ([*range(1, 41)], "of processes 1, 2, 3, 4 and 36 more"),
    ],
)
def test_a_host_of_containers_is_one_line(pids: list[int], said: str) -> None:
    nginx = Nginx(choice="nginx is X: it runs", candidates=[_other(pid) for pid in pids])
    assert choice_lines(nginx) == [
        "nginx is X: it runs", f"not taken: /usr/sbin/nginx {said}: it runs in a container"
    ]  # fmt: skip


def test_each_reason_has_its_line_and_the_chosen_one_none() -> None:
    chosen = NginxCandidate(binary="/a", source="installed", chosen=True, reason="it is installed")
    mine, many = _other(7, "its owner is not root"), [_other(n, f"reason {n}") for n in range(9)]
    assert len(choice_lines(Nginx(candidates=[chosen, _other(8), mine]))) == 3
    assert choice_lines(Nginx(candidates=[chosen, *many]))[-1] == "and 1 more"
    unseen = NginxCandidate(source="running", reason="its program cannot be seen", binary="")
    assert "not taken: the program: its program" in choice_lines(Nginx(candidates=[unseen]))[1]


MINE = NginxCandidate(
    binary="/usr/sbin/nginx", source="running", pid=1, chosen=True, reason="it runs"
)
CONTAINER = _other(7, "it runs in a container or a chroot")


@each_row(
    ("candidates", "doubt"),
    [
        ([MINE], False),
        ([MINE, CONTAINER], False),
        ([MINE, CONTAINER, _other(8, "another one came first")], True),
        ([MINE, _other(8, "it runs as user 7, who is neither root nor the caller")], True),
        # Of two containers, and where there is none of the host.
        ([msgspec.structs.replace(CONTAINER, chosen=True), CONTAINER], True),
        ([CONTAINER], True),
        ([msgspec.structs.replace(MINE, source="named"), _other(8, "it came later")], False),
    ],
)
def test_another_is_told_of_where_it_could_be_meant(
    candidates: list[NginxCandidate], doubt: bool
) -> None:
    assert is_doubtful(Nginx(candidates=candidates)) is doubt
