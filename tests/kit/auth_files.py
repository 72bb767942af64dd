"""The files by which an operator lets callers in: tokens and rules."""

from __future__ import annotations

import json
from pathlib import Path

from coordinator.client import Credentials
from coordinator.security.tokens import line_for, new_token
from tests.kit.certificates import replace


def rule(principal: str, operations: str, groups: str, **more: object) -> str:
    """A rule as a file has it."""
    listed = json.dumps(operations.split())
    extra = "".join(f"{k} = {json.dumps(v)}\n" for k, v in more.items())
    text = f'principal = "{principal}"\noperations = {listed}\ngroups = "{groups}"\n'
    return f"[[rule]]\n{text}{extra}"


class AuthFiles:
    """Tokens and rules in a folder, and what a server is to be told of them."""

    def __init__(self, folder: Path, *rules: str) -> None:
        self.folder = folder
        self.tokens: dict[str, str] = {}
        self._known: set[str] = set()
        self.settings = {
            "auth_tokens_file": str(folder / "tokens"),
            "auth_rules_file": str(folder / "rules.toml"),
        }
        self.token("nobody")
        self.rules(*rules)

    @property
    def flags(self) -> list[str]:
        """The settings as options of `coordinator serve`."""
        settings = self.settings.items()
        return [part for k, v in settings for part in (f"--{k.replace('_', '-')}", v)]

    def rules(self, *rules: str) -> None:
        """Have these rules, and no others."""
        replace(self.settings["auth_rules_file"], "\n".join(rules))

    def token(self, name: str) -> Credentials:
        """Make a token, and the credentials of its holder."""
        self.tokens[name] = new_token()
        self._known.add(name)
        self._write()
        return Credentials(token=self.tokens[name])

    def revoke(self, name: str) -> None:
        """Take a token away."""
        self._known.discard(name)
        self._write()

    def _write(self) -> None:
        lines = [
            line_for(name, token) for name, token in self.tokens.items() if name in self._known
        ]
        replace(self.settings["auth_tokens_file"], "\n".join(lines))
