"""Where a lost header matters, and where not: each case was found in real configurations."""

from cases import outcome
from rows import each_row

HEADER = "events {} http { server { add_header %s; location %s } }"

CASES: dict[str, tuple[str, int]] = {
    "headers of an answer without a page": (
        ("events {} http { server { add_header X-Frame-Options DENY; "
        "add_header Strict-Transport-Security a; location @e { "
        "add_header Content-Type application/json; return 503 '{}'; } } }"),
        0,
    ),
    "headers of a page that nginx writes": (
        ("events {} http { server { add_header X-Frame-Options DENY always; location @e { "
        "add_header Content-Type text/html; return 503 '<p>later</p>'; } } }"),
        1,
    ),
    "headers of an error that is never sent with them": (
        ("events {} http { server { add_header X-Frame-Options DENY; location @e { "
        "add_header Content-Type text/html; return 503 '<p>later</p>'; } } }"),
        0,
    ),
    "the header for other origins, of the text of a health check": (
        HEADER % ("Access-Control-Allow-Origin *",
                  "/health { add_header Content-Type text/plain; return 200 ok; }"),
        0,
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
        ("events {} http { server { add_header Strict-Transport-Security a; location / { "
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
        0,
    ),
    "headers about pages, of drawings beside fonts": (
        HEADER % ("Content-Security-Policy a",
                  r"~* \.(?:svgz?|ttf|woff2?)$ { add_header Access-Control-Allow-Origin *; }"),
        0,
    ),
    "headers about pages, of pictures in an if": (
        HEADER % ("X-Frame-Options DENY",
                  r"~* \.(png|gif)$ { if ($arg_a) { add_header X-A 1; } }"),
        0,
    ),
    "headers about pages, of an interface for programs": (
        HEADER % ("X-Frame-Options DENY",
                  "/api/auth/ { add_header X-A 1; proxy_pass http://10.0.0.1; }"),
        0,
    ),
    "headers about pages, of files by a path like that of an interface": (
        HEADER % ("X-Frame-Options DENY", "/api/ { root /srv; add_header X-A 1; }"), 1,
    ),
    "headers about pages, of metrics": (
        HEADER % ("X-Content-Type-Options nosniff",
                  "/metrics { add_header Cache-Control no-cache; proxy_pass http://10.0.0.1; }"),
        0,
    ),
    "headers about pages, of drawings that can hold scripts": (
        ("events {} http { server { add_header Content-Security-Policy a; "
        r"location ~* \.(png|svg)$ { add_header Cache-Control public; } } }"),
        1,
    ),
    "Strict-Transport-Security of one part of a host": (
        HEADER % ("Strict-Transport-Security a", "/e { add_header X-A 1; }"), 0,
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
    "the type of JSON with a time": (
        HEADER % ("X-Content-Type-Options nosniff",
                  "/e { add_header Content-Type application/json; return 200 [$time_iso8601]; }"),
        0,
    ),
    "the type of JSON with a client's text": (
        HEADER % ("X-Content-Type-Options nosniff",
                  "/e { add_header Content-Type application/json; return 200 [$arg_time]; }"),
        1,
    ),
    "the type of one script": (
        HEADER % ("X-Content-Type-Options nosniff", "= /a.js { add_header X-A 1; }"), 0,
    ),
    "the type of a text of no type": (
        HEADER % ("X-Content-Type-Options nosniff", "/up { add_header X-A 1; return 200 ok; }"),
        1,
    ),
}  # fmt: skip


@each_row("name", CASES)
def test_case(name: str) -> None:
    conf, wanted = CASES[name]
    assert outcome("cn-add-header-lost", conf, None) == wanted
