"""Reading trees: includes, faults, places."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conf_readers import Disk, Files, tree_of
from rows import each_row

from nginx_tune.conf import tree as tree_module
from nginx_tune.conf.include_patterns import expand
from nginx_tune.conf.tree import ConfTree, read_tree

HERE = Path(__file__).parent
VALID = sorted((HERE / "valid").glob("*.conf"))
BROKEN = sorted((HERE / "broken").glob("*.conf"))


def _shape(tree: ConfTree) -> list[str]:
    return [str(directive) for directive in tree.main.walk()]


@each_row("path", VALID, ids=lambda path: path.stem)
def test_a_valid_configuration_is_read_whole(path: Path) -> None:
    tree = read_tree(str(path), Disk())
    assert tree.complete, tree.unparsed
    assert [d.name for d in tree.main.directives][-2:] == ["events", "http"]


@each_row("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_file_is_listed_with_a_line(path: Path) -> None:
    tree = read_tree(str(path), Disk())
    (fault,) = tree.unparsed
    assert fault.file == str(path)
    assert fault.line in {1, 2, 4, 5}
    assert fault.reason


def test_a_directive_knows_its_place_and_quotes() -> None:
    tree = tree_of("events {}\n\n  log_format main 'a b'\n \"c\" d;\n")
    line = tree.main.all("log_format")[0]
    assert (line.file, line.line, line.column) == ("/etc/nginx/nginx.conf", 3, 3)
    assert line.args == ("main", "a b", "c", "d")
    assert line.quotes == ("", "'", '"', "")
    assert line.source.text[line.start : line.end] == "log_format main 'a b'\n \"c\" d;"


def test_a_relative_include_stands_on_the_main_files_directory() -> None:
    tree = tree_of(
        {
            "/etc/nginx/nginx.conf": "include sub/a.conf;",
            "/etc/nginx/sub/a.conf": "include b.conf;",
            "/etc/nginx/b.conf": "user www;",
            "/etc/nginx/sub/b.conf": "user wrong;",
        }
    )
    assert _shape(tree) == ["user www"]
    assert tree.files == ("/etc/nginx/nginx.conf", "/etc/nginx/sub/a.conf", "/etc/nginx/b.conf")


def test_included_directives_stand_in_the_includes_place() -> None:
    tree = tree_of(
        {
            "/etc/nginx/nginx.conf": "a 1; include x/*; d 4; http { include x/*; }",
            "/etc/nginx/x/2": "c 3;",
            "/etc/nginx/x/1": "b 2;",
        }
    )
    assert _shape(tree) == ["a 1", "b 2", "c 3", "d 4", "http", "b 2", "c 3"]
    assert [d.file for d in tree.main.all("b")] == ["/etc/nginx/x/1"]
    assert tree.main.first("include") is None


def test_a_pattern_without_match_is_fine_and_a_missing_file_is_not() -> None:
    tree = tree_of("include none/*.conf;\ninclude none.conf;\nuser www;")
    (fault,) = tree.unparsed
    assert (fault.file, fault.line) == ("/etc/nginx/nginx.conf", 2)
    assert "none.conf" in fault.reason
    assert _shape(tree) == ["user www"]


def test_the_rest_of_a_tree_survives_a_broken_file() -> None:
    tree = tree_of(
        {
            "/etc/nginx/nginx.conf": "include a.conf; include b.conf;",
            "/etc/nginx/a.conf": "events {\n",
            "/etc/nginx/b.conf": "user www;",
        }
    )
    assert [(fault.file, fault.line) for fault in tree.unparsed] == [("/etc/nginx/a.conf", 2)]
    assert _shape(tree) == ["user www"]
    assert not tree.complete


def test_a_chain_of_files_that_ends_where_it_began_is_cut() -> None:
    tree = tree_of(
        {
            "/etc/nginx/nginx.conf": "include a;",
            "/etc/nginx/a": "user www; include b;",
            "/etc/nginx/b": "include a;",
        }
    )
    assert [fault.file for fault in tree.unparsed] == ["/etc/nginx/b"]
    assert _shape(tree) == ["user www"]


def test_files_that_double_each_other_do_not_grow_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_module, "MOST_DIRECTIVES", 10_000)
    files = {f"/etc/nginx/{n}": f"include {n + 1}; include {n + 1};" for n in range(1, 40)}
    tree = tree_of({"/etc/nginx/nginx.conf": "include 1;", "/etc/nginx/40": "user x;", **files})
    assert any("too many directives" in fault.reason for fault in tree.unparsed)
    assert len(_shape(tree)) < 20_000


def test_deep_nesting_and_long_chains_are_faults_not_crashes() -> None:
    assert tree_of("a {" * 5000 + "}" * 5000).unparsed[0].reason.startswith("blocks nested")
    files = {f"/etc/nginx/{n}": f"include {n + 1};" for n in range(3000)}
    tree = tree_of({"/etc/nginx/nginx.conf": "include 0;", **files})
    assert "includes are nested too deeply" in tree.unparsed[0].reason


def test_a_byte_order_mark_and_foreign_bytes_are_kept_out_of_the_way() -> None:
    tree = tree_of({"/etc/nginx/nginx.conf": b"\xef\xbb\xbfuser caf\xe9;"})
    (user,) = tree.main.directives
    assert user.name == "user"
    assert user.value.encode(errors="surrogateescape") == b"caf\xe9"


def test_lua_blocks_are_skipped_whole() -> None:
    lua = """
        local s = "}" .. '{' -- } a comment
        --[[ } ]] --[==[ ]] } ]==]
        local t = { a = [[ } ]], b = [=[ ]] } ]=] }
        if ngx.var.uri then return ngx.exit(403) end
    """
    tree = tree_of(
        f"http {{ init_by_lua_block {{{lua}}} server {{ set_by_lua_block $x {{ return 1 }} "
        "location / { content_by_lua_block { ngx.say('hi') } } listen 80; } }"
    )
    assert tree.complete, tree.unparsed
    (http,) = tree.main.directives
    assert http.block is not None
    assert [d.name for d in http.block] == ["init_by_lua_block", "server"]
    names = [d.name for d in http.block.walk()]
    assert names[-1] == "listen"
    assert "local" not in names


def test_a_lua_block_without_end_is_a_fault() -> None:
    tree = tree_of('http { init_by_lua_block { local s = "}" ')
    assert "Lua" in tree.unparsed[0].reason


@each_row(
    ("pattern", "names"),
    [
        ("/d/*", ["a.conf", "b.conf", "ä.conf"]),
        ("/d/*.c*f", ["a.conf", "b.conf", "ä.conf"]),
        ("/d/.*", [".h.conf"]),
        ("/d/[ab].conf", ["a.conf", "b.conf"]),
        ("/d/[!a].conf", ["b.conf", "ä.conf"]),
        ("/d/[^a].conf", ["b.conf", "ä.conf"]),
        ("/d/?.conf", ["a.conf", "b.conf", "ä.conf"]),
        ("/d/\\*.conf", []),
        ("/d/[", []),
        ("/?/a.conf", ["a.conf"]),
        ("/none/*", []),
        ("/d/[[:alpha:]].conf", ["a.conf", "b.conf"]),
        ("/d/[![:lower:]_].conf", ["ä.conf"]),
        ("/d/[[:punct:][:digit:]]*", []),
    ],
)
def test_patterns_match_as_glob_does(pattern: str, names: list[str]) -> None:
    files = Files(dict.fromkeys(("/d/b.conf", "/d/a.conf", "/d/.h.conf", "/d/ä.conf"), ""))

    def list_dir(path: str) -> list[str]:
        return files.list_dir(path) if path in {"/", "/d"} else []

    assert expand(pattern, list_dir) == [f"/d/{name}" for name in names]


def test_a_hostile_pattern_does_not_hang() -> None:
    assert expand("/d/" + "*a" * 60 + "b", lambda _path: ["a" * 250]) == []


def test_relative_paths_need_a_prefix() -> None:
    assert ConfTree("x", tree_of("").main).full_path("html") is None
    assert ConfTree("x", tree_of("").main, "/usr/share/nginx").full_path("html") == (
        "/usr/share/nginx/html"
    )
    assert ConfTree("x", tree_of("").main).full_path("/srv/../srv/www/") == "/srv/www"
    assert ConfTree("x", tree_of("").main).full_path("//srv/") == "/srv", "as Linux takes it"


def test_a_lua_block_whose_name_is_quoted_is_one_word() -> None:
    text = 'events {} http { server { location / { "content_by_lua_block" { x = { ";" } } } } }'
    tree = tree_of(text)
    assert tree.complete, tree.unparsed
    assert any(one.name == "content_by_lua_block" for one in tree.main.walk())


@pytest.mark.needs("root")
def test_a_directory_that_may_not_be_listed_is_a_fault_of_its_line(tmp_path: Path) -> None:
    """As an ordinary user: what stands there is read by nginx and not by us."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "a.conf").write_text("nonsense here;")
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {}\nhttp { include closed/*.conf; }\n")
    tmp_path.chmod(0o755)
    os.chown(closed, 65534, 65534)
    without = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    audit = [sys.executable, "-m", "nginx_tune", "-q", "audit", str(conf), "--facts", "none"]
    run = subprocess.run([*without, *audit], capture_output=True, text=True, check=False)
    assert run.returncode == 3, run.stdout
    assert f"cannot list {closed}: Permission denied" in run.stdout
    assert "not here" not in run.stdout
