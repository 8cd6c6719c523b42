"""What every Python test shares."""

from __future__ import annotations

from hypothesis import settings

# The same examples on every run and machine; a slow machine is not a failure.
settings.register_profile("muser", derandomize=True, deadline=None)
settings.load_profile("muser")
