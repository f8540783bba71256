"""Where an endpoint is and who we are to it: its address, and the key or login that goes with it."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from intarsia.core.errors import ConfigError
from intarsia.core.secret import Secret

KEY_VARIABLES = ("INTARSIA_API_KEY", "OPENAI_API_KEY")


class Address(NamedTuple):
    """A server's address, with what must not be shown kept apart.

    Attributes:
        url: Without user, password and trailing slash; safe to show.
        login: `user:password`, where the address held them.
        loopback: Whether the server is on this machine.
    """

    url: str
    login: Secret | None
    loopback: bool

    @classmethod
    def read(cls, url: str) -> Address:
        """Take an address apart.

        Raises:
            ConfigError: It cannot be read. The error shows nothing of it, for it may hold a password.
        """
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _unreadable() from None
        if parts.scheme not in ("http", "https") or not host:
            raise _unreadable()
        if parts.query:
            raise ConfigError(
                f"The endpoint's address on {host} has a part after a question mark, which may hold a secret.",
                "Leave it out; a key comes from INTARSIA_API_KEY or key_file=.",
            )
        shown = f"[{host}]" if ":" in host else host
        base = f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
        login = None
        if parts.username is not None or parts.password is not None:
            login = Secret(f"{unquote(parts.username or '')}:{unquote(parts.password or '')}")
        return cls(base, login, _is_loopback(host))


def read_key(variable: str = "", path: str = "") -> Secret | None:
    """The API key from a file, from the named environment variable, or from the usual ones; None where there is none.

    Raises:
        ConfigError: The named variable is not set, or the file cannot be used.
    """
    if path:
        return Secret.from_file(path)
    if variable:
        key = Secret.from_environment([variable])
        if key is None:
            raise ConfigError(f"The environment variable {variable} is not set.", "Set it to the API key.")
        return key
    return Secret.from_environment(KEY_VARIABLES)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _unreadable() -> ConfigError:
    return ConfigError("The endpoint's address cannot be read.", "Write it as http://host:port/v1#model.")
