"""Shared test settings."""

from hypothesis import settings

# The first example of a compiled function pays for compiling it; and a failure must be the same
# for everybody, so examples are drawn without randomness.
settings.register_profile("ppas", deadline=None, derandomize=True)
settings.load_profile("ppas")
