"""Options of a socket are written once for it, however often and in whatever spelling it stands."""

from rows import each_row

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.naming import listen_options
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.documents.decisions import Decision, Decisions, Setting

BACKLOG = Setting(context="server", directive="listen", args=["backlog=4096"])
REUSEPORT = Setting(context="server", directive="listen", args=["reuseport"])
HTTP2 = Setting(context="server", directive="listen", args=["http2"])
QUIC = Setting(context="server", directive="listen", args=["quic", "reuseport"])


def conf(*listens: str, beside: str = "") -> ConfTree:
    """A server for each line."""
    lines = " ".join(f"server {{ listen {one}; return 204; }}" for one in listens)
    return parse_text(f"worker_processes 4; events {{}} http {{ {lines} }} {beside}")


def chosen(wanted: Setting, *listens: str) -> list[str]:
    """The lines that get an option, without their name."""
    return [" ".join(line.args) for line in listen_options(wanted, conf(*listens)).lines]


@each_row("wanted", [BACKLOG, REUSEPORT])
@each_row(
    ("listens", "lines"),
    [
        (["127.1:80", "127.0.0.1:80"], ["127.1:80"]),
        (["80", "*:0080", "0.0.0.0"], ["80"]),
        (["[::0]:80", "[::]:80"], ["[::0]:80"]),
        (["[::1]:80", "[0:0:0:0:0:0:0:1]:80"], ["[::1]:80"]),
        (["8001", "8000-8003"], ["8000-8003"]),
        (["8001", "8000-8003", "8003"], ["8000-8003"]),
        (["8000-8001", "8002-8003", "8000-8003"], ["8000-8003"]),
        (["80 rcvbuf=64k", "*:80"], ["80 rcvbuf=64k"]),
        (["80", "*:80 rcvbuf=64k"], ["*:80 rcvbuf=64k"]),
        (["8000-8003", "8001 deferred"], ["8001 deferred"]),
        (["8000-8003 deferred", "8001"], ["8000-8003 deferred"]),
        (["8000-8003", "8002-8005"], ["8000-8003"]),
        (["8000-8003 deferred", "8003-8009"], ["8000-8003 deferred"]),
        (["80", "8080"], ["80", "8080"]),
        (["127.0.0.1:8080-8090", "8085"], ["8085"]),
        (["localhost:80", "127.0.0.1:80"], []),
        (["localhost:80", "127.0.0.1:81"], ["localhost:80", "127.0.0.1:81"]),
        (["localhost:80", "LOCALHOST"], ["localhost:80"]),
        (["localhost:80", "b.example:80"], []),
        (["localhost:80", "80"], ["80"]),
        (["localhost:80 bind", "80"], []),
        (["localhost:8000-8003", "127.0.0.1:8002"], []),
        (["unix:/a", "unix:/a//b"], []),
    ],
)
def test_one_line_of_a_socket_gets_an_option(
    listens: list[str], lines: list[str], wanted: Setting
) -> None:
    assert chosen(wanted, *listens) == lines


@each_row(
    "listens",
    [
        ["80 backlog=4096", "*:80"],
        ["*:80", "0.0.0.0:080 backlog=5000"],
        ["8000-8003 backlog=4096", "8001", "8002"],
        ["[::1]:80", "[0::1]:80 backlog=4096"],
        ["localhost:80 backlog=4096", "127.0.0.1:81 backlog=4096"],
    ],
)
def test_an_option_of_one_spelling_is_seen_for_all(listens: list[str]) -> None:
    assert listen_options(BACKLOG, conf(*listens)) == ([], [])


def test_what_stays_as_it_is_is_said() -> None:
    found = listen_options(BACKLOG, conf("localhost:80", "127.0.0.1:80", "81"))
    assert [" ".join(line.args) for line in found.lines] == ["81"]
    assert len(found.left) == 2
    for address, other, text in zip(
        ["localhost:80", "127.0.0.1:80"], ["127.0.0.1:80", "localhost:80"], found.left, strict=True
    ):
        assert text.startswith(f"{address} stays unchanged: ")
        assert f"listen {other} may be the same socket" in text
        assert "host names are not resolved here" in text
    overlapping = listen_options(BACKLOG, conf("8000-8003", "8002-8005"))
    assert [one.partition(" stays")[0] for one in overlapping.left] == ["*:8004-8005"]


@each_row(
    ("beside", "is_left"),
    [
        ("stream { server { listen 0127.0.0.1:8000-8003; } }", True),
        ("mail { server { listen 127.1:8001; } }", True),
        ("stream { server { listen 127.0.0.1:8001 udp; } }", False),
        ("stream { server { listen 127.0.0.2:8001; } }", False),
        ("stream { server { listen 127.0.0.1:8002; } }", False),
    ],
)
def test_a_socket_of_stream_or_mail_too_is_left(beside: str, is_left: bool) -> None:
    found = listen_options(REUSEPORT, conf("127.0.0.1:8001", beside=beside))
    assert (not found.lines, bool(found.left)) == (is_left, is_left)
    assert all("of another module is the same socket" in one for one in found.left)


def test_http2_goes_nowhere_that_it_is_not_for() -> None:
    assert chosen(HTTP2, "443 ssl", "*:0443") == ["443 ssl"]
    assert chosen(HTTP2, "8000-8003", "8001 ssl") == ["8001 ssl"]
    assert chosen(HTTP2, "8000-8003 ssl", "8001 http2") == ["8000-8003 ssl"]
    assert chosen(HTTP2, "localhost:443 ssl", "127.0.0.1:443 ssl") == [
        "localhost:443 ssl", "127.0.0.1:443 ssl",
    ]  # fmt: skip


def test_quic_is_a_socket_of_its_own() -> None:
    assert chosen(QUIC, "443 quic", "*:443 quic", "443 ssl rcvbuf=8k") == ["443 quic"]
    assert chosen(QUIC, "[::0]:443 quic", "[::]:443 quic reuseport") == []


def held(*listens: str) -> Decision:
    made = Decision(id="backlog", verdict="raise", summary="4096.", settings=[BACKLOG])
    return as_changes(Decisions(kind="static", decisions=[made]), conf(*listens)).decisions[0]


def test_the_plan_says_what_stays_and_why() -> None:
    found = held("localhost:80", "127.0.0.1:80")
    assert found.settings == []
    assert "may be the same socket" in found.blocked_by
    assert found.summary.startswith("Not written: localhost:80 stays unchanged: ")
    found = held("localhost:80", "127.0.0.1:80", "81")
    assert [one.text for one in found.settings[0].places] == ["listen 81"]
    assert sum("may be the same socket" in one for one in found.risks) == 2
    found = held(*(f"{name}.example:80" for name in "abcdef"))
    assert found.risks[-1] == "3 more addresses stay unchanged"
