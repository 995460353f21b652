"""``http3``: only where it is wanted, and only with what is known."""

from typing import Any

import msgspec
from rows import each_row
from situations import FLAGS, MEBIBYTE, host, lines, load, nginx, site
from situations import decide_without_break_evens as decide

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.decisions import Decision, Decisions
from nginx_tune.documents.facts import Facts, Kernel
from nginx_tune.documents.site import Site, SiteTls
from nginx_tune.documents.workload import Concurrency, HttpVersion, RoundTrip, Workload

BUILT = [*FLAGS, "--with-http_v2_module", "--with-http_v3_module"]
TLS = SiteTls(certificate="/c.pem", certificate_key="/k.pem")
replace = msgspec.structs.replace


def secure(**parts: Any) -> Site:
    return site(**{"tls": TLS, "http3": True, **parts})


def machine(version: str = "1.26.3", flags: list[str] | None = None, **more: Any) -> Facts:
    return host(nginx=nginx(version, BUILT if flags is None else flags), **more)


def decided(facts: Facts, given: Site, workload: Workload | None = None) -> Decisions:
    return decide(facts, workload or load(), site=given)


def of(decisions: Decisions, name: str = "http3") -> Decision:
    return next(d for d in decisions.decisions if d.id == name)


def test_nobody_asks_and_nothing_is_said() -> None:
    d = of(decided(machine(), secure(http3=False)))
    assert (d.verdict, d.settings, d.proposed) == ("not_applicable", [], [])
    assert any("[site] http3" in flip for flip in d.flips_when)


def test_who_asks_for_it_gets_it_with_a_socket_for_each_worker() -> None:
    d = of(decided(machine(), secure(), load(file_bytes=4096)))
    assert d.verdict == "enable"
    assert lines(d) == ["listen quic reuseport", 'add_header Alt-Svc h3=":443"; ma=86400 always']
    assert any("reload" in risk for risk in d.risks)
    assert lines(of(decided(machine(cpus=1), secure())))[0] == "listen quic"


@each_row(
    ("facts", "given", "verdict", "said"),
    [
        (machine("1.22.1"), secure(), "not_applicable", "no HTTP/3"),
        (machine("1.26.3", FLAGS), secure(), "not_applicable", "no HTTP/3"),
        (machine("1.26.3", []), secure(), "not_enough_evidence", "not known"),
        (machine(), secure(tls=None), "not_applicable", "no certificate"),
        (
            machine(),
            secure(tls=replace(TLS, protocols=["TLSv1.2"])),
            "not_applicable",
            "needs TLS 1.3",
        ),
        (machine(), secure(listen=["unix:/run/x"]), "not_applicable", "unix sockets"),
        (machine(), secure(listen=["80", "unix:/x ssl"]), "not_applicable", "unix sockets"),
    ],
)
def test_what_it_cannot_be_had_without(facts: Facts, given: Site, verdict: str, said: str) -> None:
    d = of(decided(facts, given))
    assert (d.verdict, d.settings) == (verdict, [])
    assert said in d.summary


def test_clients_whose_port_changes_are_a_risk_where_workers_have_sockets_of_their_own() -> None:
    for facts, has_sockets in ((machine(), True), (machine(cpus=1), False)):
        d = of(decided(facts, secure()))
        assert any("without quic_bpf" in risk for risk in d.risks) == has_sockets
        assert any("quic_active_connection_id_limit" in risk for risk in d.risks)


@each_row("provenance", ["learnt", "declared", "assumed"])
def test_clients_who_speak_it_are_a_wish_unless_they_are_assumed(provenance: Any) -> None:
    version = HttpVersion(value="2", shares={"2": 0.8, "3": 0.2}, provenance=provenance)
    workload = replace(load(), http_version=version)
    d = of(decided(machine(), secure(http3=False), workload))
    if provenance == "assumed":
        assert (d.verdict, d.settings) == ("not_enough_evidence", [])
        assert d.proposed
        assert d.next_command.startswith("nginx-tune learn")
    else:
        assert d.verdict == "enable"


def far(workload: Workload, seconds: float, rate: float, provenance: Any = "declared") -> Workload:
    return replace(
        workload,
        round_trip=RoundTrip(p90_seconds=seconds, provenance=provenance),
        concurrency=Concurrency(peak=50, client_bytes_per_second=rate, provenance="declared"),
    )


@each_row(
    ("workload", "size"),
    [
        (load(), None),
        (far(load(), 0.05, 12.5e6), "1m"),
        (far(load(), 0.02, 5e6), "128k"),
        (far(load(), 0.001, 5e6), None),  # nothing is lost on the way
        (far(load(), 2.0, 1e9), "1m"),  # bounded: it is taken for each stream
        (far(load(), 0.05, 12.5e6, "assumed"), None),
        (far(load(file_bytes=4096), 0.05, 12.5e6), None),
        (far(load(), float("nan"), 12.5e6), None),
    ],
)
def test_a_stream_may_have_as_much_under_way_as_a_client_takes_in_a_round_trip(
    workload: Workload, size: str | None
) -> None:
    found = lines(of(decided(machine(), secure(), workload)))
    assert [x for x in found if "stream_buffer" in x] == (
        [f"http3_stream_buffer_size {size}"] if size else []
    )


@each_row(
    ("kernel", "file_bytes", "is_on"),
    [
        (Kernel(system="Linux", release="6.1.0"), MEBIBYTE, True),
        (Kernel(system="Linux", release="4.17.9"), MEBIBYTE, False),
        (Kernel(system="Linux"), MEBIBYTE, False),
        (Kernel(system="FreeBSD", release="14.1"), MEBIBYTE, False),
        (Kernel(system="Linux", release="6.1.0"), 4096, False),
    ],
)
def test_packets_go_together_where_the_kernel_can_and_bodies_are_long(
    kernel: Kernel, file_bytes: int, *, is_on: bool
) -> None:
    d = of(decided(machine(kernel=kernel), secure(), load(file_bytes=file_bytes)))
    assert ("quic_gso on" in lines(d)) is is_on


def test_sizes_that_are_only_assumed_turn_nothing_on() -> None:
    workload = load(file_bytes=MEBIBYTE)
    guessed = replace(workload, sizes=replace(workload.sizes, provenance="assumed"))
    assert "quic_gso on" not in lines(of(decided(machine(), secure(), guessed)))


def test_each_client_takes_several_slots() -> None:
    with_it = of(decided(machine(), secure()), "connections")
    without = of(decided(machine(), secure(http3=False)), "connections")
    assert int(with_it.settings[0].args[0]) >= 4 * int(without.settings[0].args[0])
    assert "HTTP/3 client takes 6 slots" in with_it.summary
    assert "HTTP/3" not in without.summary


def test_it_is_written_beside_the_listeners_of_tcp() -> None:
    given = complete_site(secure(listen=["8443 default_server"]), machine(), "static")
    text = emit_decided(decided(machine(), given), given)
    assert "listen 8443 default_server ssl" in text
    assert "listen 8443 default_server quic reuseport;" in text
    assert 'add_header Alt-Svc "h3=\\":8443\\"; ma=86400" always;' in text


def test_it_is_written_and_told_of_on_the_port_of_tls() -> None:
    given = complete_site(secure(listen=["80", "8443 ssl"]), machine(), "static")
    text = emit_decided(decided(machine(), given), given)
    assert "listen 8443 quic reuseport;" in text
    assert "listen 80 quic" not in text
    assert 'add_header Alt-Svc "h3=\\":8443\\"; ma=86400" always;' in text


def test_what_is_assumed_is_a_comment_with_the_command_that_settles_it() -> None:
    version = HttpVersion(value="3", provenance="assumed")
    given = complete_site(secure(http3=False), machine(), "static")
    text = emit_decided(decided(machine(), given, replace(load(), http_version=version)), given)
    assert "#   http3: Left off: it is only assumed that clients speak HTTP/3." in text
    assert "proposed: listen quic reuseport; (server)" in text
    assert "\n        listen 443 quic" not in text


def test_a_cache_says_it_where_its_own_header_is() -> None:
    """``add_header`` of a location undoes those of http."""
    facts = machine()
    given = complete_site(secure(cache_dirs=["/c"]), facts, "cache")
    text = emit_decided(decided(facts, given, load("cache")), given)
    location = text[text.index("location / {") :]
    assert "add_header X-Cache-Status" in location
    assert "add_header Alt-Svc" in location


CONF = """\
worker_processes 4;
events { }
http {
    server {
        listen 443 ssl;
        %s
        ssl_certificate /c.pem;
        ssl_certificate_key /k.pem;
        location / { root /srv/1; }
    }
}
"""


def held(line: str) -> Decision:
    tree = parse_text(CONF % line, file="/n.conf")
    given = site_in(tree, site())
    return of(as_changes(decided(machine(), given, load(file_bytes=MEBIBYTE)), tree))


def test_in_a_configuration_a_listener_of_its_own_gets_what_it_lacks() -> None:
    d = held("listen 443 quic;")
    assert d.verdict == "enable"
    assert {one.directive: [p.line for p in one.places] for one in d.settings} == {
        "listen": [6],
        "quic_gso": [3],
    }
    assert any("Alt-Svc" in risk for risk in d.risks)
    whole = held("listen 443 quic reuseport; quic_gso on; add_header Alt-Svc 'h3=\":443\"';")
    assert (whole.verdict, whole.settings) == ("keep", [])
    assert not any("Alt-Svc" in risk for risk in whole.risks)


def test_in_a_configuration_without_one_none_is_asked_for_and_none_made_up() -> None:
    assert held("").verdict == "not_applicable"
    tree = parse_text(CONF % "", file="/n.conf")
    given = replace(site_in(tree, site()), http3=True)
    d = of(as_changes(decided(machine(), given), tree))
    assert (d.verdict, d.settings) == ("not_enough_evidence", [])
    assert [one.directive for one in d.proposed] == ["listen", "quic_gso", "add_header"]
    assert d.next_command


@each_row("name", ["Connection", "Date"])
def test_none_is_proposed_where_answers_would_be_ended(name: str) -> None:
    tree = parse_text(CONF % f"add_header {name} close;", file="/n.conf")
    given = replace(site_in(tree, site()), http3=True)
    d = of(as_changes(decided(machine(), given), tree))
    assert d.settings == []
    assert bool(d.proposed) == (name == "Date")
    if name == "Connection":
        assert d.verdict == "keep"
        assert d.summary.startswith("Not written: /n.conf:6 add_header Connection close sends ")


def test_udp_gets_room_in_its_sockets() -> None:
    """A burst that is longer than a worker's turn is else lost."""
    kernel = Kernel(system="Linux", sysctls={"net.core.wmem_max": "16777216"})
    d = of(decided(machine(kernel=kernel), secure()))
    assert {one.name: one.value for one in d.host_settings} == {
        "net.core.rmem_max": "7500000",
        "net.core.rmem_default": "7500000",
    }
