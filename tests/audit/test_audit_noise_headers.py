"""Where a lost header matters, and where not: each case was found in real configurations."""

from __future__ import annotations

import pytest
from cases import outcome

HEADER = "events {} http { server { add_header %s; location %s } }"

CASES: dict[str, tuple[str, int]] = {
    "headers of an answer without a page": (
        ("events {} http { server { add_header X-Frame-Options DENY; "
        "add_header Strict-Transport-Security a; location @e { "
        "add_header Content-Type application/json; return 503 '{}'; } } }"),
        0,
    ),
    "headers of a page that nginx writes": (
        ("events {} http { server { add_header X-Frame-Options DENY; location @e { "
        "add_header Content-Type text/html; return 503 '<p>later</p>'; } } }"),
        1,
    ),
    "the header for other origins, of an answer to OPTIONS": (
        ("events {} http { server { add_header Access-Control-Allow-Origin *; location /e { "
        "add_header Access-Control-Max-Age 9; return 204; } } }"),
        1,
    ),
    "Referrer-Policy of a redirect": (
        ("events {} http { server { add_header Referrer-Policy origin; location /e { "
        "add_header X-A 9; return 308 /f; } } }"),
        0,
    ),
    "Strict-Transport-Security of a redirect": (
        ("events {} http { server { add_header Strict-Transport-Security a; location /e { "
        "add_header X-A 9; return 308 /f; } } }"),
        1,
    ),
    "headers about pages, of images and styles": (
        ("events {} http { server { add_header X-Frame-Options DENY; "
        r"location ~* \.(?:js|css|jpe?g|png|woff2?)$ { add_header Cache-Control public; } } }"),
        0,
    ),
    "the type of scripts": (
        ("events {} http { server { add_header X-Content-Type-Options nosniff; "
        r"location ~* \.(js|css)$ { add_header Cache-Control public; } } }"),
        1,
    ),
    "headers about pages, of drawings that can hold scripts": (
        ("events {} http { server { add_header Content-Security-Policy a; "
        r"location ~* \.(png|svg)$ { add_header Cache-Control public; } } }"),
        1,
    ),
    "Strict-Transport-Security of pictures, which the host's pages have told": (
        HEADER % ("Strict-Transport-Security a", r"~ \.png$ { add_header X-A 1; }"), 0,
    ),
    "Strict-Transport-Security of what may be pages": (
        HEADER % ("Strict-Transport-Security a", "/e { add_header X-A 1; }"), 1,
    ),
    "headers about pages, of JSON with a variable": (
        HEADER % ("X-Frame-Options DENY",
                  "/e { default_type application/json; add_header X-A 1; return 200 [$uri]; }"),
        0,
    ),
    "headers about pages, of a text with a variable and no such type": (
        HEADER % ("X-Frame-Options DENY",
                  "/e { default_type text/html; add_header X-A 1; return 200 [$uri]; }"),
        1,
    ),
    "headers about pages, of one picture": (
        HEADER % ("X-Content-Type-Options nosniff", "= /favicon.ico { add_header X-A 1; }"),
        0,
    ),
    "the type of one script": (
        HEADER % ("X-Content-Type-Options nosniff", "= /a.js { add_header X-A 1; }"), 1,
    ),
    "headers about pages, of a path that is no file's": (
        HEADER % ("X-Frame-Options DENY", "= /png { add_header X-A 1; }"),
        1,
    ),
    "the type of a text word for word that says it": (
        HEADER % ("X-Content-Type-Options nosniff",
                  "/up { add_header Content-Type text/plain; return 200 ok; }"),
        0,
    ),
    "the type of a text of no type": (
        HEADER % ("X-Content-Type-Options nosniff", "/up { add_header X-A 1; return 200 ok; }"),
        1,
    ),
    "fonts that other origins may not read": (
        HEADER % ("Access-Control-Allow-Origin *", r"~ \.(woff2?|ttf)$ { add_header X-A 1; }"),
        1,
    ),
    "headers about pages, of a directory": (
        ("events {} http { server { add_header X-Frame-Options DENY; "
        "location ~ /static { add_header Cache-Control public; } } }"),
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    conf, wanted = CASES[name]
    assert outcome("cn-add-header-lost", conf, None) == wanted
