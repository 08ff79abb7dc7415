"""promtool on the committed rules, and Grafana's linter on the committed dashboards."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from grafana.alert_cases import cases, rules_tests
from grafana.alerts import Limits, alerts
from grafana.catalogue import panel_of
from tests.prometheus import tools
from tests.tools import ToolMissingError
from tests.unit.dashboard_queries import DASHBOARDS, ROOT, filled_in, queries_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.prometheus
PLACE = ROOT / "deploy/alerts"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a tool; `stdout` has both of its output streams, in order."""
    return subprocess.run(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def shown(
    promtool: Path,
    folder: Path,
    dashboard: str,
    panel: str,
    series: dict[str, str],
    expected: dict[str, float],
    number: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Promtool's test of a panel's query: `expected` values by labels, after a minute."""
    query = [text for title, text in queries_of(DASHBOARDS[dashboard]) if title == panel][number]
    asked = {
        "expr": filled_in(query, window="1m", over="1h", step="10s"),
        "eval_time": "1m",
        "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()],
    }
    tested = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [asked],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [tested]}, width=4096))
    return run(promtool, "test", "rules", file)


def test_the_rules_are_rules(promtool: Path) -> None:
    """Promtool accepts the committed rules, with lint errors as fatal, and finds each alert."""
    done = run(promtool, "check", "rules", "--lint-fatal", PLACE / "rules.yaml")
    assert done.returncode == 0, done.stdout
    assert f"{len(alerts())} rules found" in done.stdout


def test_the_rules_pass_their_tests(promtool: Path) -> None:
    """Promtool runs the committed tests of the rules, and all pass."""
    done = run(promtool, "test", "rules", PLACE / "rules.test.yaml")
    assert done.returncode == 0, done.stdout


def test_every_query_of_the_dashboards_is_promql(promtool: Path, tmp_path: Path) -> None:
    """Promtool parses each query, with its variables filled in as Grafana does."""
    queries = {
        filled_in(query, window="1m", over="1h", step="10s")
        for dashboard in DASHBOARDS.values()
        for _, query in queries_of(dashboard)
    }
    rules = [{"record": f"query{n}", "expr": query} for n, query in enumerate(sorted(queries))]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}, width=4096))
    done = run(promtool, "check", "rules", file)
    assert done.returncode == 0, done.stdout
    assert f"{len(queries)} rules found" in done.stdout


@pytest.mark.parametrize(
    ("acked", "findings", "state"),
    [
        ("5", {"lost": "0", "misrouted": "0", "inconclusive": "0", "duplicated": "3"}, 0),
        ("5", {"lost": "0", "misrouted": "0", "inconclusive": "1"}, 1),
        ("0", {"misrouted": "0"}, 1),
        ("5", {"lost": "2", "misrouted": "0", "inconclusive": "1"}, 2),
        ("0", {"misrouted": "1"}, 2),
    ],
    ids=["nothing wrong so far", "inconclusive", "without a ledger", "lost", "misrouted"],
)
def test_the_verdict_so_far_has_three_states(
    promtool: Path, tmp_path: Path, acked: str, findings: dict[str, str], state: int
) -> None:
    """The overview's first panel reads 0 only with acked and without inconclusive messages."""
    process, of_topic = 'job="m", instance="c"', 'topic="t", role="consumer"'
    series = {
        f'mirrortest_run_info{{{process}, run="r", role="consumer", name="n"}}': "1x9",
        f'mirrortest_consumer_vouched_messages{{{process}, {of_topic}, outcome="acked"}}': (
            f"{acked}x9"
        ),
    } | {
        f'mirrortest_consumer_findings{{{process}, {of_topic}, finding="{finding}"}}': f"{count}x9"
        for finding, count in findings.items()
    }
    done = shown(promtool, tmp_path, "overview", "Verdict now", series, {'{run="r"}': state})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("of_carl", "of_dora", "state"),
    [
        ("0 1x9", "0 1x9", 1),
        ("0 1x9", "0x9", 0),
        ("0 1x9", "0x2 stale", 0),
        ("0 1x9", "0 1 stale", 1),
    ],
    ids=["both complete", "one goes on", "one is down before it was", "one has ended"],
)
def test_a_run_is_complete_once_all_its_consumers_are(
    promtool: Path, tmp_path: Path, of_carl: str, of_dora: str, state: int
) -> None:
    """A consumer that is down counts as it last was: it may have had topics of its own."""
    ends = " stale" if "stale" in of_dora else ""
    series = {
        'mirrortest_run_info{job="m", instance="c", run="r", role="consumer", name="carl"}': "1x9",
        'mirrortest_run_info{job="m", instance="d", run="r", role="consumer", name="dora"}': (
            f"1x2{ends}" if ends else "1x9"
        ),
        'mirrortest_consumer_ledger_complete{job="m", instance="c", role="consumer"}': of_carl,
        'mirrortest_consumer_ledger_complete{job="m", instance="d", role="consumer"}': of_dora,
    }
    done = shown(promtool, tmp_path, "overview", "Run", series, {'{run="r"}': state})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("panel", "metric", "labels", "values", "name", "value"),
    [
        (
            "Time in pauses",
            "mirrortest_observer_gc_pause_seconds_total",
            'log="gc.log", collector="G1", kind="young pause"',
            "0+6x9",
            'log="gc.log"',
            0.4,
        ),
        (
            "Threads idle",
            "mirrortest_observer_broker_handler_idle_ratio",
            'endpoint="broker1"',
            "0.8x9",
            'endpoint="broker1"',
            0.8,
        ),
        (
            "CPU of processes",
            "mirrortest_observer_process_cpus",
            'process="kafka.Kafka", pid="1"',
            "1.5x9",
            'process="kafka.Kafka"',
            1.5,
        ),
    ],
)
def test_what_has_one_name_on_several_machines_stays_apart(
    promtool: Path,
    tmp_path: Path,
    panel: str,
    metric: str,
    labels: str,
    values: str,
    name: str,
    value: float,
) -> None:
    """Brokers often have the same log path, and observers the same endpoints and matches.

    Two sites may have the same addresses: `job` tells them apart.
    """
    machines = [
        f'job="{job}", instance="{instance}"'
        for job, instance in (("dc1", "b1:9464"), ("dc1", "b2:9464"), ("dc2", "b1:9464"))
    ]
    series = {f"{metric}{{{each}, {labels}}}": values for each in machines}
    expected = {f"{{{each}, {name}}}": value for each in machines}
    done = shown(promtool, tmp_path, "brokers", panel, series, expected)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("panel", "number", "metric", "labels"),
    [
        (
            "Claimed lost, and arrived later",
            1,
            'mirrortest_consumer_lost_repaid_total{topic="t", ',
            'run="r", topic="t"',
        ),
        (
            "Damaged records of the ledger",
            0,
            "mirrortest_consumer_ledger_malformed_total{",
            'run="r", name="n"',
        ),
    ],
)
def test_what_each_consumer_counts_entirely_is_not_added_up(
    promtool: Path, tmp_path: Path, panel: str, number: int, metric: str, labels: str
) -> None:
    """Late messages are the entire run's, and each worker reads the entire ledger."""
    workers = [f'job="m", instance="c", worker="{each}", role="consumer"' for each in range(2)]
    series = {
        text: values
        for each in workers
        for text, values in (
            (f'mirrortest_run_info{{{each}, run="r", name="n"}}', "1x9"),
            (f"{metric}{each}}}", "0 100x9"),
        )
    }
    expected = {f"{{{labels}}}": 100.0}
    done = shown(promtool, tmp_path, "consumer", panel, series, expected, number)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("dashboard", "panel", "series", "labels"),
    [
        ("mirror", "Tasks running", 'kafka_connect_task_status{status="failed", ', "{}"),
        ("mirror", "Tasks not running", 'kafka_connect_task_status{status="running", ', "{}"),
        ("overview", "Producers", 'mirrortest_run_info{run="r", role="consumer", ', '{run="r"}'),
        ("overview", "Consumers", 'mirrortest_run_info{run="r", role="producer", ', '{run="r"}'),
    ],
)
def test_none_is_0_and_not_the_number_of_before(
    promtool: Path, tmp_path: Path, dashboard: str, panel: str, series: str, labels: str
) -> None:
    """Without a series, a panel shows the newest value in its time: tasks that ran an hour ago."""
    found = {f'{series}job="m", instance="i"}}': "1x9"}
    done = shown(promtool, tmp_path, dashboard, panel, found, {labels: 0})
    assert done.returncode == 0, done.stdout


def test_the_first_exceptions_of_a_type_are_shown(promtool: Path, tmp_path: Path) -> None:
    """Their counter begins with them: a rate would be 0."""
    labels = 'kind="exception", type="KafkaStorageException"'
    metric = "mirrortest_observer_log_entries_total"
    series = {f'{metric}{{job="m", instance="o", log="l", {labels}}}': "_x2 500x9"}
    title = "Exceptions, errors and warnings"
    done = shown(promtool, tmp_path, "brokers", title, series, {f"{{{labels}}}": 500})
    assert done.returncode == 0, done.stdout


def test_links_are_filled_in(promtool: Path, tmp_path: Path) -> None:
    """Prometheus fills run, topic and a start one hour earlier into every alert's links."""
    rules = yaml.safe_load((PLACE / "rules.yaml").read_text())
    links = ("dashboard_url", "panel_url")
    for rule in rules["groups"][0]["rules"]:
        rule["annotations"] = {name: rule["annotations"][name] for name in links}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules, width=4096))
    tests = rules_tests()
    by_name = {alert.name: alert for alert in alerts()}
    linked = {}
    for test, case in zip(tests["tests"], cases(), strict=True):
        del test["promql_expr_test"]
        alert = by_name[case.alert]
        for time, firing in case.firing.items():
            if not firing or not time.endswith("m"):
                continue
            start = (int(time[:-1]) - 60) * 60_000
            expected = []
            for text in firing:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
                topic = f"&var-topic={labels['topic']}" if "topic" in labels else ""
                query = f"var-run={labels['run']}{topic}&from={start}&to=now"
                board = f"http://localhost:3000/d/mirrortest-{alert.dashboard}?"
                view = f"viewPanel={panel_of(alert.dashboard, alert.panel)}&"
                urls = {"dashboard_url": board + query, "panel_url": board + view + query}
                expected.append(
                    {"exp_labels": {"severity": alert.severity, **labels}, "exp_annotations": urls}
                )
            test.setdefault("alert_rule_test", []).append(
                {"alertname": alert.name, "eval_time": time, "exp_alerts": expected}
            )
            linked[alert.name] = urls
    assert linked.keys() == by_name.keys()
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests, width=4096))
    done = run(promtool, "test", "rules", tmp_path / "test.yaml")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("limit", "shown"), [(0.001, "0.1%"), (0.00002, "0.002%"), (0, "0%"), (1, "100%")]
)
def test_the_text_about_duplicates_has_the_limit(
    promtool: Path, tmp_path: Path, limit: float, shown: str
) -> None:
    """A limit below 0.01 % is not rounded to nothing."""
    (alert,) = (
        each for each in alerts(Limits(duplicates=limit)) if each.name == "MirrortestDuplicates"
    )
    text = {"description": alert.description[alert.description.index("The limit") :]}
    rule = {"alert": alert.name, "expr": "vector(1)", "annotations": text}
    group = {"name": "duplicates", "rules": [rule]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    firing = {"exp_annotations": {"description": f"The limit is {shown}."}}
    asked = {"alertname": alert.name, "eval_time": "1m", "exp_alerts": [firing]}
    tested = {"rule_files": ["rules.yaml"], "tests": [{"alert_rule_test": [asked]}]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tested))
    done = run(promtool, "test", "rules", tmp_path / "test.yaml")
    assert done.returncode == 0, done.stdout


def test_texts_have_numbers_of_messages_in_full(promtool: Path, tmp_path: Path) -> None:
    """Of millions, too, of which Prometheus makes 1.2e+06."""
    texts = {
        alert.name: alert.description
        for alert in alerts()
        if alert.name in {"MirrortestLoss", "MirrortestWrongMessages", "MirrortestInconclusive"}
    }
    rules = [
        {"alert": name, "expr": "vector(1234567)", "annotations": {"number": text.split(" m")[0]}}
        for name, text in texts.items()
    ]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "numbers", "rules": rules}]})
    )
    asked = [
        {
            "alertname": name,
            "eval_time": "1m",
            "exp_alerts": [{"exp_annotations": {"number": number}}],
        }
        for name, number in {
            "MirrortestLoss": "1234567",
            "MirrortestWrongMessages": "1234567",
            "MirrortestInconclusive": "1234567 acknowledged",
        }.items()
    ]
    tested = {"rule_files": ["rules.yaml"], "tests": [{"alert_rule_test": asked}]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tested))
    done = run(promtool, "test", "rules", tmp_path / "test.yaml")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module", params=["vector(1) == 0", "vector(1)"], ids=["never", "always"])
def wrong_rule_output(
    promtool: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, str]:
    """Promtool's output by alert, with this expression as the alert's rule, others unchanged.

    One process runs them all, because its start takes longer than the tests.
    """
    folder = tmp_path_factory.mktemp("wrong")
    tests = yaml.safe_load((PLACE / "rules.test.yaml").read_text())
    rules = (PLACE / "rules.yaml").read_text()
    files: dict[str, Path] = {}
    for alert in alerts():
        changed = yaml.safe_load(rules)
        for rule in changed["groups"][0]["rules"]:
            if rule["alert"] == alert.name:
                rule["expr"] = request.param
        (folder / f"{alert.name}.rules.yaml").write_text(yaml.safe_dump(changed))
        cases = [case for case in tests["tests"] if case["name"].startswith(f"{alert.name}:")]
        names = [f"{alert.name}.rules.yaml"]
        files[alert.name] = folder / f"{alert.name}.test.yaml"
        files[alert.name].write_text(yaml.safe_dump({**tests, "rule_files": names, "tests": cases}))
    done = run(promtool, "test", "rules", *files.values())
    assert done.returncode != 0
    sections = done.stdout.split("Unit Testing:")[1:]
    by_file = {section.split(maxsplit=1)[0]: section for section in sections}
    return {name: by_file[str(file)] for name, file in files.items()}


@pytest.mark.parametrize("name", [alert.name for alert in alerts()])
def test_a_wrong_rule_fails_its_tests(wrong_rule_output: dict[str, str], name: str) -> None:
    """The committed tests of an alert fail if it never fires, and if it always fires."""
    assert "FAILED" in wrong_rule_output[name]
    assert f'alertname="{name}"' in wrong_rule_output[name]


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_grafanas_linter_has_nothing_to_say(name: str) -> None:
    """The linter finds nothing; grafana/dashboards/.lint has the exclusions, with reasons."""
    try:
        linter = tools.dashboard_linter()
    except ToolMissingError as error:
        pytest.skip(str(error))
    done = run(linter, "lint", "--strict", ROOT / f"grafana/dashboards/{name}.json")
    assert done.returncode == 0, done.stdout
