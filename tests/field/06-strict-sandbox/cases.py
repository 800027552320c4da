# SPDX-License-Identifier: MIT
"""What docs/design.md asks of programs under a filter that kills."""

ENVIRONMENT = {"QUARRY_CONF": "purge_thread:off"}
SAMPLED = {"QUARRY_CONF": "purge_thread:off,sample:4096"}


def sampled(test):
    """The same while the profile's sampler is on: call stacks are walked behind the filter."""
    def case(f):
        f.test(f.build / "promised_calls", test, SAMPLED)
    case.__name__ = f"sampled_{test}"
    return case


CASES = [sampled(test) for test in ("small", "large", "warm_growth", "from_the_start", "one_thread", "first_of_a_thread", "forked_child")]
