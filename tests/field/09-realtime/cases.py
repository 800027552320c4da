# SPDX-License-Identifier: MIT
"""Two programs with a thread that never waits would be one too many for two processors."""
CASES = []
AT_ONCE = 1
