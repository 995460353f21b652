"""Compression is exercised where a variant compresses, by requests that are alike for both."""

import json
from pathlib import Path

import pytest
from command_line import RunCli

from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.loadplan import Arrivals, LoadClass, LoadPlan, Paths, Target
from nginx_tune.experiment.validate.workbench_notes import (
    accepted_codings,
    compression_notes,
    with_codings,
)


class OneFile:
    def __init__(self, text: str) -> None:
        self._data = text.encode()

    def read_bytes(self, path: str) -> bytes:
        return self._data

    def list_dir(self, path: str) -> list[str]:
        raise FileNotFoundError(path)


def tree(lines: str) -> ConfTree:
    text = f"events {{}} http {{ server {{ location / {{ {lines} }} }} }}"
    return read_tree("/nginx.conf", OneFile(text))


PLAIN = tree("")


def test_what_either_variant_compresses_with_is_accepted() -> None:
    for lines, accepted in (
        ("", []),
        ("gzip off; gzip_static off;", []),
        ("gzip on;", ["gzip"]),
        ("gzip_static always;", ["gzip"]),
        ("brotli on; gzip on;", ["gzip", "br"]),
        ("zstd_static on;", ["zstd"]),
    ):
        for trees in ((tree(lines), PLAIN), (PLAIN, tree(lines))):
            assert accepted_codings(trees) == accepted, lines
            notes = compression_notes(trees)
            assert len(notes) == bool(accepted), lines
            assert all("with differences between the configurations" in note for note in notes), (
                lines
            )
        same = compression_notes((tree(lines), tree(lines)))
        assert not any("differ" in note for note in same), lines


def test_a_class_that_says_what_it_accepts_keeps_it() -> None:
    def load(**headers: str) -> LoadClass:
        return LoadClass(
            name="a", arrivals=Arrivals(kind="closed", users=1), paths=Paths(kind="fixed"),
            connections=1, headers=headers,
        )  # fmt: skip

    own, other = load(**{"accept-encoding": "br"}), load(Cookie="x")
    target = Target(address="127.0.0.1", port=80)
    plan = LoadPlan(target=target, classes=[own, other], duration_seconds=1.0)
    first, second = with_codings(plan, ["gzip", "br"]).classes
    assert first == own
    assert second.headers == {"Cookie": "x", "Accept-Encoding": "gzip, br"}
    assert with_codings(plan, []) == plan


CONF = """
events {{}}
http {{
    access_log off;
    types {{ text/css css; }}
    {}
    server {{ listen 127.0.0.1:18933; root {}; }}
}}
"""


@pytest.mark.thorough
@pytest.mark.needs("root", "nginx", "probe")
def test_what_compression_costs_and_saves_is_measured(run_cli: RunCli, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    root = tmp_path / "www"
    root.mkdir()
    (root / "one.css").write_bytes(b"a { color: red }\n" * 20_000)
    for name, lines in (("old", ""), ("new", "gzip on; gzip_types text/css;")):
        (tmp_path / f"{name}.conf").write_text(CONF.format(lines, root))
    run = run_cli(
        *("validate", "new.conf", "--against", "old.conf", "--no-store", "-f", "json"),
        *("--pairs", "3", "--duration", "700ms", "--warmup", "100ms"),
        *("--require", "ratio(hot.bytes_per_second) <= 0.1", "--require", "hot.errors == 0"),
        cwd=tmp_path,
    )
    verdict = json.loads(run.stdout)
    # On a busy machine a pair may be discarded, and is said to be; more than one is no accident.
    if "3 of 3 pairs discarded" not in verdict["reason"]:
        assert [gate["passed"] for gate in verdict["gates"]] == [True, True], verdict["gates"]
    [note] = [one for one in verdict["environment"]["differences"] if "compression" in one]
    assert note.startswith(
        "requests accept gzip: compression is on, with differences between the configurations:"
    )
