"""The configuration: a TOML file, the environment, flags. The first byte chooses."""

import tempfile
from pathlib import Path

from coordinator.settings import SETTINGS, InvalidSetting, Settings
from coordinator.settings.sources import Sources, load

FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-settings-")


def target(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    flags: dict[str, str] = {}
    environment: dict[str, str] = {}
    file = None
    if kind == b"f":
        file = Path(FOLDER.name) / "settings.toml"
        file.write_bytes(rest)
    else:
        # As the system hands them over: bytes that are no UTF-8 come as lone surrogates.
        for line in rest.decode(errors="surrogateescape").splitlines():
            name, _, value = line.partition("=")
            if kind == b"e":
                environment[f"COORDINATOR_{name}"] = value
            else:
                flags[name] = value
    try:
        found, origins = load(Sources(flags=flags, environment=environment, file=file))
    except InvalidSetting:
        return
    assert set(origins) == set(SETTINGS)
    for derived in ("shared_store", "fixed_share"):
        getattr(found.storage, derived)
    for derived in ("listen_address", "metrics_address", "console_address"):
        getattr(found.serving, derived)
    assert Settings.of(**found.values()) == found


def seeds():
    yield b'flisten = "127.0.0.1:7400"\nshards = 4\ngroup_max_size = 10\n'
    yield b'fstore = "etcd://one:2379,two:2379/groups"\nacks = "all"\n'
    yield b"eLISTEN=10.0.0.1:7400\nSHARE=1/4\nMETRICS_LISTEN=\nSHARDS=1_000"
    yield b"sstore=zookeeper://one:2181/name\nnode_id=7\nlog_level=debug"
    yield b"sgroup_min_session_timeout_ms=5\ngroup_max_session_timeout_ms=4"
    for name in ("listen", "share", "store", "nodes", "log_format"):
        yield f"s{name}=".encode()
