"""Every setting of the service, in sections by who uses them, composed into one `Settings`.

Users see flat names: a name is unique over all sections. `sources.py` says where values come from.
"""

from coordinator.core.setting import InvalidSetting
from coordinator.settings.composed import SETTINGS, Settings

__all__ = ["SETTINGS", "InvalidSetting", "Settings"]
