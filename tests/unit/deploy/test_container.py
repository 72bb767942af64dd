"""The image and the compose file: pinned, without root, and of one piece with the code."""

from __future__ import annotations

import json
import re
import tomllib
from urllib.parse import urlsplit

import pytest
import yaml

from coordinator import __version__
from coordinator.cli.connection import DEFAULT_BOOTSTRAP
from coordinator.settings import Settings
from coordinator.settings.sources import Sources, load
from tests.unit.deploy.image import CONTAINER, ROOT, is_let_through, mounts, services, stages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXACT_TAG = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-[\w.-]+)?(@sha256:[0-9a-f]{64})?")


def settings_of(command: list[str], environment: dict[str, str]) -> Settings:
    """Effective settings of `serve` with flags; refused if there is no such setting."""
    serve, *flags = command
    assert serve == "serve"
    given = {
        flag.removeprefix("--").replace("-", "_"): value
        for flag, value in zip(flags[::2], flags[1::2], strict=True)
    }
    return load(Sources(flags=given, environment=environment, file=None))[0]


def in_seconds(duration: str) -> int:
    assert re.fullmatch(r"\d+s", duration)
    return int(duration[:-1])


def test_every_stage_is_made_from_an_exact_python_that_the_project_supports():
    for stage in stages():
        assert EXACT_TAG.fullmatch(stage.base), stage.base
        minor = re.match(r"python:(\d+\.\d+)\.", stage.base)[1]
        assert f"Programming Language :: Python :: {minor}" in PROJECT["classifiers"]


def test_all_that_is_copied_is_there_and_nothing_else_is_sent():
    sources = [source for stage in stages() for names, _ in stage.copied for source in names]
    assert {"coordinator", "timer", "deploy/*.lock"} <= set(sources)
    for source in sources:
        found = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(source)]
        assert found, source
        assert all(map(is_let_through, found)), source
    for left_out in ("tests/run", ".git/config", "coordinator/__pycache__/x.pyc", "deploy/demo"):
        assert not is_let_through(left_out), left_out


def test_nothing_is_installed_without_its_hash():
    installs = [
        part
        for stage in stages()
        for (run,) in stage.values("RUN")
        for part in run.split("&&")
        if re.search(r"pip\b.*\binstall\b", part)
    ]
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-index" in install, install


def test_what_is_shipped_runs_without_root_and_writes_to_one_folder():
    image = stages()[-1]
    ((user,),) = image.values("USER")
    assert re.fullmatch(r"[1-9]\d{4,}:[1-9]\d{4,}", user)
    after = [command.cmd for command in image.commands]
    assert not {"RUN", "COPY", "ADD"} & set(after[after.index("USER") :])
    owner, group = user.split(":")
    ((folder,),) = image.values("VOLUME")
    ((made,),) = image.values("RUN")
    assert f"--owner={owner} --group={group}" in made
    assert made.endswith(f" {folder}")
    assert image.environment["COORDINATOR_DATA_DIR"] == folder


def test_the_image_starts_the_command_of_the_wheel_with_settings_it_has():
    image = stages()[-1]
    ((entry,), command) = (*image.values("ENTRYPOINT"), image.values("CMD")[-1])
    assert entry in PROJECT["scripts"]
    settings = settings_of(list(command), image.environment)
    serving = settings.serving
    addresses = (serving.listen_address, serving.metrics_address, serving.console_address)
    assert {str(port) for _, port in addresses} == set(image.values("EXPOSE")[0])


def test_the_composed_console_is_on_and_open_to_this_machine_only():
    node = services()["coordinator"]
    settings = settings_of(node["command"], {**stages()[-1].environment, **node["environment"]})
    _, port = settings.serving.console_address
    assert f"127.0.0.1:{port}:{port}" in node["ports"]
    assert all(each.startswith("127.0.0.1:") for each in node["ports"])


def test_the_health_check_asks_the_port_it_serves_on():
    image = stages()[-1]
    assert image.values("HEALTHCHECK") == [("CMD", "coordinator", "health")]
    port = image.environment["COORDINATOR_LISTEN"].rpartition(":")[2]
    assert f"127.0.0.1:{port}" == DEFAULT_BOOTSTRAP


def test_the_compose_file_pins_its_images_and_gives_ours_its_version():
    images = {name: service["image"] for name, service in services("postgres.yaml").items()}
    for image in images.values():
        assert EXACT_TAG.fullmatch(image), image
    assert images["coordinator"] == f"consumer-group-coordinator:{__version__}"


def test_everything_that_is_mounted_is_there():
    for service in services().values():
        for source in mounts(service):
            assert source.exists(), source


def test_the_composed_node_drains_before_it_is_killed():
    node = services()["coordinator"]
    environment = {**stages()[-1].environment, **node["environment"]}
    settings = settings_of(node["command"], environment)
    assert settings.security.insecure  # Its ports are open to this machine only.
    assert in_seconds(node["stop_grace_period"]) * 1000 > settings.serving.drain_timeout_ms


def test_the_composed_node_has_no_right_it_does_not_need():
    node = services()["coordinator"]
    assert node["read_only"] is True
    assert node["cap_drop"] == ["ALL"]
    assert node["user"] == stages()[-1].values("USER")[0][0]
    assert "no-new-privileges:true" in node["security_opt"]


@pytest.mark.parametrize("name", services())
def test_ports_are_open_to_this_machine_only(name):
    for port in services()[name]["ports"]:
        assert port.startswith("127.0.0.1:")


def test_a_composed_database_is_reached_by_its_node_and_by_nobody_else():
    both = services("postgres.yaml")
    node, database = both["coordinator"], both["postgres"]
    assert (ROOT / f"deploy/{node['build']['args']['STORE']}.lock").exists()
    assert node["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    store = settings_of(node["command"], node["environment"]).storage.store
    url = urlsplit(store)
    user = database["environment"]["POSTGRES_USER"]
    assert (url.hostname, url.username, url.path) == ("postgres", user, f"/{user}")
    assert node["environment"]["PGPASSWORD"] == database["environment"]["POSTGRES_PASSWORD"]
    assert "ports" not in database
    assert node["read_only"], "what compose.yaml says of the node is still there"


def test_prometheus_scrapes_the_node_under_the_name_the_alerts_expect():
    config = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    metrics_port = stages()[-1].environment["COORDINATOR_METRICS_LISTEN"].rpartition(":")[2]
    assert target == f"coordinator:{metrics_port}"
    assert "coordinator" in services()
    rules = (ROOT / "deploy/alerts/coordinator.rules.yml").read_text()
    (names,) = re.findall(r'job=~"(.+?)"', rules)
    assert re.fullmatch(names, job["job_name"])


def test_grafana_is_given_prometheus_and_every_dashboard():
    seen = mounts(services()["grafana"])
    (provider,) = yaml.safe_load((CONTAINER / "grafana/dashboards.yaml").read_text())["providers"]
    (folder,) = [item for item, target in seen.items() if target == provider["options"]["path"]]
    titles = [json.loads(path.read_text())["title"] for path in folder.glob("*.json")]
    assert len(titles) == 3
    (source,) = yaml.safe_load((CONTAINER / "grafana/datasource.yaml").read_text())["datasources"]
    assert source["url"].removeprefix("http://") == "prometheus:9090"
    assert "127.0.0.1:9090:9090" in services()["prometheus"]["ports"]
