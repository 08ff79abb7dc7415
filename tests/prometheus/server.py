"""Runs a real Prometheus in its own process, and queries it."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import yaml

from mirrortest.lab.free_ports import ADDRESS, free_ports
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Firing(NamedTuple):
    """A firing alert; `run` is its label, empty if it has none."""

    name: str
    run: str


class Prometheus:
    """Scrapes every second, and evaluates a rules file every second.

    `targets` are addresses by job; `discovered` are files for file_sd_configs by job.
    """

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        rules: Mapping[str, Any],
        targets: Mapping[str, list[str]],
        discovered: Mapping[str, list[Path]],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath("rules.yaml").write_text(yaml.safe_dump(rules, width=4096))
        jobs: list[dict[str, Any]] = [
            {"job_name": job, "static_configs": [{"targets": found}]}
            for job, found in targets.items()
        ]
        jobs += [
            {
                "job_name": job,
                "file_sd_configs": [
                    {"files": [str(path) for path in found], "refresh_interval": "1s"}
                ],
            }
            for job, found in discovered.items()
        ]
        config = folder / "prometheus.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(folder / "rules.yaml")],
                    "scrape_configs": jobs,
                }
            )
        )
        (port,) = free_ports(1)
        self.url = f"http://{ADDRESS}:{port}"
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                str(binary),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={ADDRESS}:{port}",
                "--query.lookback-delta=5s",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> Self:
        until(self._ready, seconds=60, what=f"Prometheus at {self.url}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _ready(self) -> bool:
        assert self._process.poll() is None, "Prometheus ended: see prometheus.log"
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _ask(self, path: str, **parameters: Any) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            body = json.load(error)
            raise AssertionError(f"{body.get('error')}: {parameters.get('query')}") from None

    def now(self, query: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        found: list[dict[str, Any]] = self._ask("query", query=query)["result"]
        return found

    def over(self, query: str, begin: float, end: float, step: float = 2) -> list[dict[str, Any]]:
        """The result of a range query; times are seconds since the epoch."""
        found: list[dict[str, Any]] = self._ask(
            "query_range", query=query, start=begin, end=end, step=step
        )["result"]
        return found

    def firing(self) -> set[Firing]:
        """The alerts that fire now."""
        return {
            Firing(alert["labels"]["alertname"], alert["labels"].get("run", ""))
            for alert in self._ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def fires(self, name: str) -> Callable[[], bool]:
        """A condition: this alert fires."""
        return lambda: any(alert.name == name for alert in self.firing())

    def is_quiet_about(self, *names: str) -> Callable[[], bool]:
        """A condition: none of these alerts fires."""
        return lambda: not any(alert.name in names for alert in self.firing())

    def fired(self, begin: float, end: float) -> set[Firing]:
        """All alerts that fired between these times."""
        found = self.over('ALERTS{alertstate="firing"}', begin, end, 1)
        return {
            Firing(each["metric"]["alertname"], each["metric"].get("run", "")) for each in found
        }
