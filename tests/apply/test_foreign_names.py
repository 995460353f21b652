"""Names that are no UTF-8, and reasons that quote secrets: one line, and the way back stays."""

from collections.abc import Callable

import pytest
from apply_site import Site
from change_files import snapshot
from command_line import RunCli

from nginx_tune.change.apply.model_journal import RefusedError, Tested, Undone, encode_record
from nginx_tune.change.apply.watch import check_url
from nginx_tune.documents.base import encode
from nginx_tune.documents.plan import Plan
from nginx_tune.errors import UsageError

Make = Callable[..., Site]


def test_a_reason_is_escaped_and_a_path_is_refused() -> None:
    assert b"a\\\\xffb" in encode_record(Undone(reason="a\udcffb", server=""))
    assert "ä".encode() in encode_record(Undone(reason="ä", server=""))
    with pytest.raises(RefusedError, match=r"/z\\xff: not UTF-8"):
        encode_record(Tested(error_logs=["/z\udcff"]))
    assert b"/zz" in encode_record(Tested(error_logs=["/zz"]))


def test_a_document_names_what_no_json_can_hold() -> None:
    with pytest.raises(UsageError, match=r"/z\\xff: not UTF-8, so JSON cannot contain it"):
        encode(Plan(conf_path="/z\udcff"))
    assert b"/z" in encode(Plan(conf_path="/z"))


def test_a_canary_is_of_ascii() -> None:
    check_url("http://127.0.0.1/%C3%A4")
    with pytest.raises(UsageError, match="ASCII"):
        check_url("http://127.0.0.1/ä")


@pytest.mark.needs("root", "nginx")
def test_a_file_that_is_no_utf8_is_refused_before(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    new = site.root / "new.conf"
    new.write_text("# new\n")
    other = site.root / "other.conf"
    other.write_text(site.text() + "# other\n")
    before = snapshot(site.tree)
    run = run_cli(
        "apply", "--overlay", f"{site.tree}/conf.d/z\udcff.conf={new}",
        "--overlay", f"{site.conf}={other}", "-c", site.conf,
        "--state-dir", site.state.path, "--watch", "200ms",
    )  # fmt: skip
    assert (run.returncode, len(run.stderr.splitlines())) == (2, 1), run.stderr
    assert "z\\xff.conf: not UTF-8" in run.stderr
    assert not [one for one in site.state.journals.rglob("*") if one.is_file()]  # nothing is kept
    assert (snapshot(site.tree), site.ask()) == (before, "old\n")


@pytest.mark.needs("root", "nginx")
def test_history_leaves_out_what_standard_error_does(make_site: Make, run_cli: RunCli) -> None:
    site = make_site()
    new = site.root / "new.conf"
    new.write_text(site.server("location / { proxy_pass http://user:SECRET9@nosuch.invalid:x/; }"))
    state = ["--state-dir", site.state.path]
    run = run_cli(
        "apply", "--overlay", f"{site.tree}/conf.d/site.conf={new}", "-c", site.conf, *state
    )
    assert run.returncode == 3, run.stderr
    for form in ("console", "json"):
        told = run_cli("history", *state, "-f", form)
        assert told.returncode == 0
        assert "invalid port in upstream" in told.stdout  # the rest of the reason stays
        assert "SECRET9" not in told.stdout + told.stderr + run.stdout + run.stderr
