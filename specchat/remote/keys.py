"""The key of a server: from the environment, or from the system's keyring by the package keyring."""

import os

from specchat.clean import one_line
from specchat.engine.protocol.pair import Server
from specchat.installing import install_command
from specchat.remote.errors import ServerError

SERVICE = "specchat"
"""The service in the keyring that has the keys of servers."""


def find_key(server: Server) -> str:
    """The key; empty where the server needs none. The environment counts before the keyring.

    Raises:
        ServerError: it is not where the pair says, or cannot be sent.
    """
    key = os.environ.get(server.key_env, "").strip() if server.key_env else ""
    if key or not server.keyring:
        if server.key_env and not key:
            raise ServerError(f"The environment variable {server.key_env}, named by key_env, is not set.", "config")
        place = f"The environment variable {server.key_env}, named by key_env,"
    else:
        key, place = _in_keyring(server.keyring), f"The entry {server.keyring} of the keyring"
    if not (key.isascii() and key.isprintable()):
        raise ServerError(f"{place} holds no key.", "config")
    return key


def key_in_words(server: Server) -> str:
    """The key's place, for messages; empty where the server needs none."""
    places = [f"the keyring under {server.keyring}"] if server.keyring else []
    return " or ".join([*([server.key_env] if server.key_env else []), *places])


def _in_keyring(name: str) -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        command = install_command("keyring")
        words = f'keyring = "{name}" needs the package keyring: {command}, or name a variable as key_env.'
        raise ServerError(words, "config") from None
    try:
        found = keyring.get_password(SERVICE, name)
    except KeyringError as error:
        why = one_line(str(error)).rstrip(".") or type(error).__name__
        raise ServerError(
            f"The keyring cannot be read ({why}). Name a variable as key_env instead.", "config"
        ) from None
    if not (found or "").strip():
        raise ServerError(f"The keyring has no key called {name}: keyring set {SERVICE} {name} stores it.", "config")
    return str(found).strip()
