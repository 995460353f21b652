"""Edits change their span and not one byte beside it."""

from pathlib import Path

import pytest
from conf_readers import Disk, tree_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each_row
from tiers import draws

from nginx_tune.conf.directive import Directive, Source
from nginx_tune.conf.edits import (
    ConflictError,
    Edit,
    EditSet,
    add_after,
    add_argument,
    add_to,
    apply_edits,
    remove,
    replace_argument,
    set_arguments,
    word_spans,
)
from nginx_tune.conf.tree import ConfTree, parse_text, read_tree

HERE = Path(__file__).parent
FILES = sorted(
    path
    for folder in (HERE / "valid", HERE / "broken", HERE.parent / "sites")
    for path in folder.rglob("*")
    if path.is_file() and path.suffix not in (".py", ".pyc", ".toml") and not path.is_symlink()
)


def _only(tree: ConfTree, name: str) -> Directive:
    (found,) = [one for one in tree.main.walk() if one.name == name]
    return found


@each_row("path", FILES, ids=lambda path: path.name)
def test_a_file_comes_back_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    source = Source.decode(str(path), data)
    assert source.data == data
    assert apply_edits(source, []) == data


@given(st.binary(max_size=300))
def test_any_bytes_come_back(data: bytes) -> None:
    assert Source.decode("x", data).data == data


@given(st.sampled_from(FILES), st.data())
@settings(max_examples=draws(40, 800))
def test_an_edit_changes_its_span_alone(path: Path, data: st.DataObject) -> None:
    tree = read_tree(str(path), Disk())
    directives = [
        one for file in tree.parsed for one in _as_written(file.block.directives) if one.args
    ]
    if not directives:
        return
    directive = data.draw(st.sampled_from(directives))
    edit = data.draw(
        st.sampled_from(
            [remove(directive), add_argument(directive, "x"), set_arguments(directive, "a b")]
            + ([add_to(directive, "neu 1;")] if directive.block else [add_after(directive, "n;")])
        )
    )
    old = edit.source.data
    start, end = edit.source.byte_offset(edit.start), edit.source.byte_offset(edit.end)
    new = apply_edits(edit.source, [edit])
    assert new[:start] == old[:start]
    assert new[len(new) - (len(old) - end) :] == old[end:]
    assert new[start : len(new) - (len(old) - end)] == edit.text.encode()


def _as_written(directives: list[Directive]) -> list[Directive]:
    found = []
    for one in directives:
        found.append(one)
        if one.block is not None:
            found += _as_written(one.block.directives)
    return found


WHERE = (
    "# é\r\nhttp {\r\n\tserver {\r\n\t\tlisten 80 reuseport; # it's\r\n"
    "\t\troot '/a b' ;\r\n\t}\r\n}\r\n"
)


@each_row("mark", [b"", b"\xef\xbb\xbf"])
@each_row("junk", ["", "\xff"])
def test_line_ends_marks_and_foreign_bytes_stay(mark: bytes, junk: str) -> None:
    data = mark + junk.encode("latin-1").join([b"#", b"\r\n"]) + WHERE.encode()
    source = Source.decode("nginx.conf", data)
    tree = tree_of({"/c": data}, "/c")
    listen, root = _only(tree, "listen"), _only(tree, "root")
    edits = [
        set_arguments(listen, "80"),
        set_arguments(root, '"/c"'),
        add_to(_only(tree, "server"), "sendfile on;"),
        add_after(listen, "tcp_nopush on;"),
    ]
    wanted = data.replace(b" reuseport; # it's", b"; # it's\r\n\t\ttcp_nopush on;")
    wanted = wanted.replace(b"'/a b'", b'"/c"')
    wanted = wanted.replace(b"server {\r\n", b"server {\r\n\t\tsendfile on;\r\n")
    assert apply_edits(listen.source, edits) == wanted
    assert source.byte_offset(len(source.text)) == len(data)


def test_removing_takes_the_line_when_nothing_else_is_on_it() -> None:
    text = "a 1;\n  b 2;\nc 3; # why\nd 4; e 5; f {\n g 1;\n}\nh;"
    tree = parse_text(text)
    source = tree.parsed[0].source

    def without(name: str) -> str:
        return apply_edits(source, [remove(_only(tree, name))]).decode()

    assert without("b") == text.replace("  b 2;\n", "")
    assert without("c") == text.replace("c 3; # why", "# why")
    assert without("d") == text.replace("d 4; ", "")
    assert without("e") == text.replace(" e 5;", "")
    assert without("f") == text.replace(" f {\n g 1;\n}", "")
    assert without("h") == text.removesuffix("h;")


def test_words_keep_their_quotes_and_lua_is_no_word() -> None:
    tree = parse_text("log_format main 'a b' \"c\";\nset_by_lua_block $x { return '}' }")
    log, lua = tree.main.directives
    text = log.source.text
    assert [text[a:b] for a, b in word_spans(log)] == ["log_format", "main", "'a b'", '"c"']
    assert [text[a:b] for a, b in word_spans(lua)] == ["set_by_lua_block", "$x"]
    assert apply_edits(log.source, [replace_argument(log, 1, "x")]).startswith(
        b"log_format main x "
    )


def test_an_empty_block_gets_its_first_directive() -> None:
    for text, wanted in (
        ("events {}", "events { use epoll;}"),
        ("events {\n}\n", "events {\n    use epoll;\n}\n"),
        ("  events { # all\n  }", "  events { use epoll; # all\n  }"),
    ):
        tree = parse_text(text)
        edit = add_to(tree.main.directives[0], "use epoll;")
        assert apply_edits(edit.source, [edit]).decode() == wanted
    with pytest.raises(ValueError, match="no block"):
        add_to(parse_text("a;").main.directives[0], "b;")


def test_edits_that_touch_are_refused() -> None:
    tree = parse_text("http {\n a 1 2;\n b;\n}\n")
    http, a = _only(tree, "http"), _only(tree, "a")
    source = http.source
    for first, second in (
        (remove(a), set_arguments(a, "3")),
        (add_to(http, "c 1;"), add_to(http, "c 2;")),
        (replace_argument(a, 0, "x"), set_arguments(a, "y")),
        (remove(a), add_after(a, "z;")),
    ):
        with pytest.raises(ConflictError):
            apply_edits(source, [first, second])
    both = [add_to(http, "c 1;"), add_to(http, "d 1;"), add_to(http, "c 1;")]
    assert apply_edits(source, both).decode() == "http {\n c 1;\n d 1;\n a 1 2;\n b;\n}\n"


def test_a_set_takes_all_edits_of_a_finding_or_none() -> None:
    tree = parse_text("a 1; b 2; c 3;")
    a, b, c = tree.main.directives
    chosen = EditSet()
    assert chosen.add([set_arguments(a, "9")])
    assert not chosen.add([set_arguments(c, "9"), remove(a)])
    assert chosen.add([set_arguments(c, "8")])
    assert chosen.add([set_arguments(a, "9")]), "the same edit again"
    assert apply_edits(a.source, chosen.of("nginx.conf")) == b"a 9; b 2; c 8;"
    assert b.args == ("2",)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.sampled_from("xyz")), max_size=8)
)
def test_no_two_edits_of_a_set_overlap(spans: list[tuple[int, int, str]]) -> None:
    source = Source("f", "0123456789" * 4)
    chosen = EditSet()
    for start, length, text in spans:
        chosen.add([Edit(source, start, start + length, text)])
    ends = 0
    for edit in chosen.of("f"):
        assert edit.start >= ends
        ends = edit.end
    apply_edits(source, chosen.of("f"))
