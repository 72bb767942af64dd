"""A real Prometheus for tests, Debian's, that scrapes every second."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kit.patience import HANG_S
from tests.kit.serving import free_port

MISSING = (
    ""
    if shutil.which("promtool") and shutil.which("prometheus")
    else "no Prometheus found (on Debian: apt-get install prometheus)"
)
"""Reason to skip a test; empty: there is one."""


class Prometheus:
    """Prometheus with a job `coordinator`, and `coordinator-https` for pages over TLS.

    Args:
        pages: addresses of the pages of metrics.
        rules: files of rules, of which the times for which they have to hold become a second.
    """

    def __init__(self, folder: Path, pages: Sequence[str], rules: Sequence[Path] = ()) -> None:
        for path in rules:
            impatient = re.sub(r"^(\s+for:) \d+\w$", r"\1 1s", path.read_text(), flags=re.MULTILINE)
            (folder / path.name).write_text(impatient)
        jobs: dict[str, list[str]] = {}
        for page in map(urllib.parse.urlsplit, pages):
            jobs.setdefault(page.scheme, []).append(page.netloc)
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": [path.name for path in rules],
            "scrape_configs": [
                {
                    "job_name": {"http": "coordinator"}.get(scheme, f"coordinator-{scheme}"),
                    "scheme": scheme,
                    "tls_config": {"insecure_skip_verify": True},
                    "static_configs": [{"targets": targets}],
                }
                for scheme, targets in jobs.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"

    def __enter__(self) -> Prometheus:
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, path: str, **parameters: str):
        """The answer of the API.

        Raises:
            OSError: it is starting, or refuses the query.
        """
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}?{query}") as page:
            return json.load(page)["data"]

    def wait_until(self, check: Callable[[], bool]) -> None:
        """Until it is true; an OSError counts as not yet."""
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                if check():
                    return
            except OSError:
                pass  # It is starting.
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-2_000:]
            time.sleep(0.2)

    def wait_for(self, expression: str) -> None:
        """Until it has a result."""
        self.wait_until(lambda: bool(self.ask("query", query=expression)["result"]))
