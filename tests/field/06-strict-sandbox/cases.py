# SPDX-License-Identifier: MIT
"""What docs/design.md asks of programs under a filter that kills."""
CASES = []
ENVIRONMENT = {"QUARRY_CONF": "purge_thread:off"}
