"""Which nginx was meant, in as few lines as tell it."""

from rows import each_row

from nginx_tune.documents.facts import Nginx, NginxCandidate
from nginx_tune.report.facts_nginx import choice_lines


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
        "nginx is X: it runs", f"not used: /usr/sbin/nginx {said}: it runs in a container"
    ]  # fmt: skip


def test_each_reason_has_its_line_and_the_chosen_one_none() -> None:
    chosen = NginxCandidate(binary="/a", source="installed", chosen=True, reason="it is installed")
    mine, many = _other(7, "its owner is not root"), [_other(n, f"reason {n}") for n in range(9)]
    assert len(choice_lines(Nginx(candidates=[chosen, _other(8), mine]))) == 3
    assert (
        choice_lines(Nginx(candidates=[chosen, *many]))[-1]
        == "and 1 more: nginx-tune inspect -f json"
    )
    unseen = NginxCandidate(source="running", reason="its program cannot be seen", binary="")
    assert "not used: the program: its program" in choice_lines(Nginx(candidates=[unseen]))[1]
