"""Ways to hold a secret, made into whole configurations with a secret that is drawn."""

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

_PLACES = {
    "main": "@\nevents {}\nhttp {}\n",
    "http": "events {}\nhttp {\n@\n}\n",
    "server": "events {}\nhttp {\nserver {\n@\n}\n}\n",
    "location": "events {}\nhttp {\nserver {\nlocation / {\n@\n}\n}\n}\n",
    "stream": "events {}\nstream {\n@\n}\n",
    "rtmp": "events {}\nrtmp {\n@\n}\n",
    "mail": "events {}\nmail {\n@\n}\n",
    "whole": "@\n",
}


class Way(NamedTuple):
    """One way: what it is called, the block it stands in, its line."""

    name: str
    place: str
    text: str

    def configuration(self, secret: str) -> str:
        """A whole file that holds the secret in this way."""
        encoded = base64.b64encode(f"user:{secret}".encode()).decode()
        escaped = "".join(f"%{ord(one):02X}" for one in secret)
        line = self.text.replace("@S@", secret).replace("@B@", encoded).replace("@U@", escaped)
        return _PLACES[self.place].replace("@", line, 1)


def ways() -> Iterator[Way]:
    """Every row of ``ways.toml``."""
    rows = msgspec.toml.decode(Path(__file__).with_name("ways.toml").read_text(encoding="utf-8"))
    for place, lines in rows.items():
        for name, text in lines.items():
            yield Way(f"{place}-{name}", place, text)


def draw_secrets(rng: random.Random) -> list[str]:
    """Secrets as people have them: a word with digits, words, a random one, one in hex, digits."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [
        "".join(rng.choices(letters, k=6)) + str(rng.randrange(10)),
        "".join(rng.choices(letters, k=14)),
        "".join(rng.choices(letters + letters.upper() + "0123456789", k=24)) + "A7z",
        f"{rng.getrandbits(160):040x}",
        str(rng.randrange(10**11, 10**12)),
        "Tr0ub4dor-" + "".join(rng.choices(letters, k=4)),
    ]


def forms_of(secret: str) -> list[str]:
    """The texts in which a secret would be seen: plain, escaped, and in base64 at each offset."""
    forms = [secret, quote(secret, safe=""), "".join(f"%{ord(one):02X}" for one in secret)]
    leads = ("", "user:")
    encoded = (base64.b64encode((lead + secret).encode()).decode() for lead in leads)
    return [*forms, *(text.rstrip("=")[:-1] for text in encoded)]
