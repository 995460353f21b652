"""Which spellings of a ``listen`` are one socket."""

from rows import each_row

from nginx_tune.conf.listeners import PortCuts, Wildcards, listeners, socket_name
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.conf.workers import kept_open


def conf(*listens: str) -> ConfTree:
    return parse_text("http { " + " ".join(f"server {{ listen {one}; }}" for one in listens) + " }")


@each_row(
    ("spellings", "name"),
    [
        ("80 0080 *:80 *:0080 0.0.0.0 0.0.0.0:80 000.0.0.0:80 ...:80 0:80 0x0:80 80-80", "*:80"),
        ("127.0.0.1 127.0.0.1:80 127.0.0.001:80 127.0..1:80 127.1:80 0x7f.1:80", "127.0.0.1:80"),
        ("2130706433:80 127.0.1:80 0177.1:80 0X7F000001:80", "127.0.0.1:80"),
        ("0177.0.0.1:80 177.0.0.1:80", "177.0.0.1:80"),
        ("255.255.255.255:80 0xffffffff:80", "255.255.255.255:80"),
        ("[::]:80 [::] [::0]:80 [0:0:0:0:0:0:0:0]:080 [::0.0.0.0]:80", "[::]:80"),
        ("[::1]:80 [0:0:0:0:0:0:0:1]:80 [0::0001]:80 [::0.0.0.1]:80", "[::1]:80"),
        ("[FE80::A]:443 [fe80:0::000a]:443-443", "[fe80::a]:443"),
        ("[::ffff:127.0.0.1]:8 [::FFFF:7f00:1]:8 [::ffff:127.0.0.01]:8", "[::ffff:127.0.0.1]:8"),
        ("localhost LOCALHOST:80 LocalHost:0080", "localhost:80"),
        ("8000-8003 *:8000-08003 0.0.0.0:8000-8003", "*:8000-8003"),
        ("unix:/a/b UNIX:/a/b Unix:/a/b", "unix:/a/b"),
        ("unix:/a//b", "unix:/a//b"),
        ("80- 80-:80", "80-:80"),
        ("web-1 web-1:80", "web-1:80"),
        ("127..1:80", "127..1:80"),
        ("1.2.3.4.5:80", "1.2.3.4.5:80"),
        ("08.1:80", "08.1:80"),
    ],
)  # fmt: skip
def test_spellings_of_one_socket(spellings: str, name: str) -> None:
    found = {socket_name(one) for one in spellings.split()}
    assert {str(one) for one in found} == {name}
    assert {socket_name(name)} == found, "the form is a spelling too"


@each_row(
    "text",
    ["0", "65536", "8003-8000", ":80", "a:b:80", "[::1]80", "[::1:80", "[:::1]:80",
     "[fe80::1%lo]:80", "host:0", "host:99999999999999999999", "/run/a", "host/:80", "", "-",
     "[]:80", "[::1]:", "[::1.2.3]:80", "[::255.255.255.255]:80", "٨٠:٨٠"],
)  # fmt: skip
def test_what_nginx_refuses_is_no_socket_of_a_port(text: str) -> None:
    name = socket_name(text)
    assert name.family == ("name" if text == "-" else "unread")
    assert socket_name(str(name)) == name


def test_a_socket_of_one_family_is_none_of_another() -> None:
    alike = ["*:80", "[::]:80", "127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "*:81"]
    assert len(set(map(socket_name, alike))) == len(alike)


def test_ranges_of_ports_are_cut_where_they_differ() -> None:
    found = listeners(conf("8000-8003", "8001", "127.0.0.1:8003-8004", "*:8002-8002 quic"))
    assert [(one.address, len(one.lines)) for one in found] == [
        ("*:8000", 1), ("*:8001", 2), ("*:8002", 1), ("*:8003", 1),
        ("127.0.0.1:8003", 1), ("127.0.0.1:8004", 1), ("*:8002", 1),
    ]  # fmt: skip
    assert [one.has_socket for one in found] == [True, True, True, True, False, True, True]


def test_a_range_that_none_shares_stays_whole() -> None:
    assert [one.address for one in listeners(conf("8000-8003", "9000"))] == [
        "*:8000-8003", "*:9000",
    ]  # fmt: skip


def test_ranges_beyond_measure_are_left_whole_and_unclear() -> None:
    found = listeners(conf(*(f"{first}-{60000 - first}" for first in range(1, 900)), "1 quic"))
    assert len(found) == 900
    assert [one.maybe is not None for one in found] == [True] * 899 + [False]


def test_a_name_may_be_what_has_its_port() -> None:
    def unclear(*listens: str) -> list[str]:
        return [one.address for one in listeners(conf(*listens)) if one.maybe is not None]

    assert unclear("localhost:80", "127.1:80") == ["localhost:80", "127.0.0.1:80"]
    assert unclear("a.example:80", "b.example:80") == ["a.example:80", "b.example:80"]
    assert unclear("localhost:79-81", "[::1]:80") == ["localhost:80", "[::1]:80"]
    assert unclear("localhost:80", "80", "127.0.0.1:80") == ["localhost:80", "127.0.0.1:80"]
    assert unclear("localhost:80 rcvbuf=8k", "80") == ["localhost:80", "*:80"]
    assert unclear("localhost:80", "LOCALHOST", "127.0.0.1:81", "127.0.0.1:80 quic") == []


def test_the_line_that_a_name_may_be_is_another() -> None:
    for one in listeners(conf("localhost:80", "127.0.0.1:80")):
        assert one.maybe is not None
        assert one.maybe not in one.lines


def test_a_wildcard_covers_its_family() -> None:
    wildcards = Wildcards([socket_name("80"), socket_name("[::0]:90-95")])
    covered = ["127.1:80", "a.example:80", "[::1]:93", "a.example:95", "[::1]:80-90"]
    assert [wildcards.cover(socket_name(one)) for one in covered] == [True] * 5
    apart = ["[::1]:80", "127.0.0.1:90", "80", "a.example:96", "unix:/a", "oops:"]
    assert not any(wildcards.cover(socket_name(one)) for one in apart)


def test_pieces_are_the_range_again() -> None:
    names = [socket_name(one) for one in ("10-20", "15", "[::1]:18-30", "1-65535", "20-20")]
    cuts = PortCuts(names)
    for name in names:
        pieces = list(cuts.pieces(name))
        assert [port for one in pieces for port in one.ports] == list(name.ports)


def test_sockets_are_counted_once_for_all_spellings() -> None:
    tree = parse_text(
        "http { server { listen 80; listen 8000-8003; } server { listen *:080; listen 8001; } } "
        "stream { server { listen 127.1:53 udp; } server { listen 127.0.0.1:53; } } "
        "mail { server { listen 0127.0.0.1:25; listen [::0]:25; listen [::]:25; } }"
    )
    assert kept_open(tree).sockets == 1 + 4 + 2 + 2
