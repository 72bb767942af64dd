"""All settings of the service: one section per part that uses it, composed into `Settings`.

Users see flat names, which are unique over all sections. `sources.py` reads the values.
"""

from coordinator.core.setting import InvalidSetting
from coordinator.settings.composed import SETTINGS, Settings

__all__ = ["SETTINGS", "InvalidSetting", "Settings"]
