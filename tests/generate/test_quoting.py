"""Values from outside: quoted so that nginx reads the same word back, or refused."""

import http.client
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row
from started import serving

from nginx_tune.change.generate.writing import comment, quote
from nginx_tune.errors import UsageError

HARMLESS = ["/srv/www", "example.com", "512k", "127.0.0.1:80", "[::]:80", "unix:/run/a.sock"]
QUOTED = [
    "", "a b", "a;b", "a{b", "a}b", "#a", 'a"b', "a'b", "a\\b", "\\", "ä/ö", "'", '"', "a\\",
    "日本",
]  # fmt: skip
REFUSED = ["$a", "a${b}", "a\nb", "a\rb", "a\0b", "\x1b[31m", "a\udc80", "x" * 1025, "\u2028"]


@each_row("value", REFUSED)
def test_what_cannot_be_written_is_refused_in_one_line(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        quote(value)
    assert caught.value.message.isprintable()


@each_row("value", ["$request_uri", "threads=pool_$disk", "cache_$disk"])
def test_own_variables_pass_where_they_are_expected_only(value: str) -> None:
    assert quote(value, own_words=True) == value
    with pytest.raises(UsageError):
        quote(value)


@each_row("value", ["/data/$disk", "$request_uri;", "x$uri", "$http_host"])
def test_a_path_with_a_variable_is_never_an_own_word(value: str) -> None:
    with pytest.raises(UsageError):
        quote(value, own_words=True)


@given(st.text())
def test_a_comment_is_one_printable_line(text: str) -> None:
    line = comment(text)
    assert "\n" not in line
    assert not line or line.isprintable()


def random_words(count: int) -> list[str]:
    rng = random.Random(1)
    alphabet = 'ab \\\\""\';{}#()|*~ä日%&<>=@'
    return ["".join(rng.choices(alphabet, k=rng.randint(0, 12))) for _ in range(count)]


@pytest.mark.needs("nginx", "root")
def test_the_real_nginx_reads_every_word_back(tmp_path: Path, free_port: int) -> None:
    words = [*HARMLESS, *QUOTED, *random_words(200)]
    locations = "".join(
        f"    location = /{number} {{ return 200 {quote(word)}; }}\n"
        for number, word in enumerate(words)
    )
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr;\n"
        "events {}\nhttp { access_log off; server {\n"
        f"    listen 127.0.0.1:{free_port};\n{locations}}} }}\n",
        encoding="utf-8",
    )
    with serving(["nginx", "-c", str(conf)], free_port):
        for number, word in enumerate(words):
            connection = http.client.HTTPConnection("127.0.0.1", free_port, timeout=10)
            connection.request("GET", f"/{number}")
            assert connection.getresponse().read().decode() == word
            connection.close()
