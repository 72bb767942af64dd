"""Network file systems are told from the table of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.client.embedding.volume import network_file_system

MOUNTS = r"""
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /net rw - nfs4 server:/export rw,vers=4.2
31 30 0:31 / /net/local rw - xfs /dev/sdb1 rw
32 22 0:32 / /my\040share rw shared:7 master:2 - cifs //server/share rw
33 22 0:33 / /mnt/far rw - fuse.sshfs me@server: rw
34 22 0:34 / /over rw - nfs server:/a rw
35 34 0:35 / /over rw - tmpfs tmpfs rw
""".strip()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/jobs", ""),
        ("/net/jobs", "nfs4"),
        ("/net", "nfs4"),
        ("/network/jobs", ""),
        ("/net/local/jobs", ""),
        ("/my share/jobs", "cifs"),
        ("/mnt/far/away", "fuse.sshfs"),
        ("/over/jobs", ""),
    ],
)
def test_the_nearest_mount_says_what_a_folder_is_on(folder, kind):
    assert network_file_system(Path(folder), MOUNTS) == kind


def test_this_machine_has_a_table(tmp_path):
    assert network_file_system(tmp_path) == ""
