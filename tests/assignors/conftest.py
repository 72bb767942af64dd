"""No test here depends on how fast the machine is."""

from hypothesis import settings

settings.register_profile("assignors", settings.default, deadline=None)
settings.load_profile("assignors")
