# SPDX-License-Identifier: MIT
"""Most of these wait."""
CASES = []
AT_ONCE = 4
