"""The stub_status page of a running nginx, asked over a connection of its own."""

from __future__ import annotations

import http.client
import ssl
from typing import NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.observe.parse_counters import StatusCounters, parse_stub_status

_SECONDS = 2.0
_MOST_BYTES = 4096


class StatusPage(NamedTuple):
    """Where the page is."""

    address: str
    port: int
    path: str
    host: str
    """Value of the Host header: the server is found by it."""
    tls: bool = False


def read_status(page: StatusPage) -> StatusCounters | Missing:
    """The counters now. A worker that is blocked answers late or not at all."""
    connection: http.client.HTTPConnection
    if page.tls:
        # This host's own address: who answers there is not in doubt, its certificate may be.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            page.address, page.port, timeout=_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(page.address, page.port, timeout=_SECONDS)
    where = f"{page.path} at {page.address}:{page.port}"
    try:
        connection.request("GET", page.path, headers={"Host": page.host, "Connection": "close"})
        response = connection.getresponse()
        text = response.read(_MOST_BYTES).decode("ascii", "replace")
    except TimeoutError:
        return Missing(f"stub_status {where}: no answer within {_SECONDS:g} s")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Missing(f"stub_status {where}: {getattr(error, 'strerror', None) or error}")
    finally:
        connection.close()
    if response.status != http.client.OK:
        return Missing(f"stub_status {where}: answers {response.status}")
    counters = parse_stub_status(text)
    return Missing(f"stub_status {where}: another page") if counters is None else counters
