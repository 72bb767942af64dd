"""Whether a folder is on a disk of this machine: SQLite's write-ahead log needs shared memory.

Source: https://www.sqlite.org/wal.html, and proc_pid_mountinfo(5).
"""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = ("nfs", "cifs", "smb", "afs", "ceph", "lustre", "gpfs", "beegfs", "fuse.ceph")
NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone")


def network_file_system(folder: Path, mounts: str | None = None) -> str:
    """Type of the network file system that a folder is on; empty: it is on none, or unknown.

    Args:
        folder: its full path. mounts: the text of mountinfo; None: this machine's, if it has any.
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_text()
        except OSError:
            return ""
    nearest, best = -1, ""
    for line in mounts.splitlines():
        mount_point, _, rest = line.partition(" - ")
        point = Path(mount_point.split()[4].encode().decode("unicode_escape"))
        if len(point.parts) >= nearest and folder.is_relative_to(point):
            nearest, best = len(point.parts), rest.split()[0]  # A later line is mounted over it.
    return best if best.startswith(NETWORK) or best in NETWORK_FUSE else ""
