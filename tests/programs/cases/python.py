# SPDX-License-Identifier: MIT
"""CPython's own tests. Its pool allocator would keep small blocks from us: PYTHONMALLOC=malloc turns it
off, and malloc_debug adds pads of its own around each block, which find what we overwrite."""
import re

from harness import program

NEEDS = {"/usr/bin/python3": "python3", "/usr/lib/python3.11/test/test_json": "libpython3.11-testsuite"}


def verdicts(text):
    """Which tests failed; times and the order of lines differ from run to run."""
    lines = re.findall(r"^(test_\w+ (?:failed|crashed|timed out)| +test_\w+(?: test_\w+)*$|Tests result: .*|Result: .*)", text, re.M)
    return "\n".join(sorted(set(lines)))


def regrtest(box, malloc, tests, timeout, **more):
    box.run("/usr/bin/python3", "-m", "test", "-q", *tests.split(), env={"PYTHONMALLOC": malloc}, timeout=timeout,
            stdout=verdicts, **more)


@program(NEEDS)
def python(box):
    regrtest(box, "malloc", "test_json test_dict test_list test_gc test_deque test_set test_bytes test_array test_mmap"
             " test_zlib", 240)


@program(NEEDS)
def python_debug(box):
    regrtest(box, "malloc_debug", "test_dict test_list test_bytes test_array test_mmap test_zlib test_struct", 240)


@program(NEEDS, torture=True)
def python_more(box):
    regrtest(box, "malloc", "test_io test_weakref test_bz2 test_lzma test_re test_unicode test_pickle"
             " test_hashlib test_ctypes test_xml_etree test_decimal test_itertools test_functools", 900)


@program(NEEDS, torture=True)
def python_threads(box):
    """Threads, forks and signals. Some of these fail in a container whatever the malloc. The tests of futures.wait compare
    sleeps of seconds with the start of a process, and fail on a busy machine whatever the malloc: they are left out."""
    regrtest(box, "malloc", "-i *WaitTest* test_threading test_thread test_threadedtempfile test_fork1 test_subprocess"
             " test_multiprocessing_fork test_concurrent_futures test_queue test_signal", 1200, may_fail=True)


OUT_OF_MEMORY = """
caught = 0
for size in [1 << 62, (1 << 63) - 1, 1 << 40, 1 << 30]:
    try: bytearray(size)
    except (MemoryError, OverflowError): caught += 1
for _ in range(3):
    kept = []
    try:
        while True: kept.append(bytearray(1000)); kept.append(bytearray(100000))
    except MemoryError:
        n = len(kept)
        del kept
        caught += n > 4000
print(caught, len(bytes(10000)))
"""


@program(NEEDS)
def python_out_of_memory(box):
    """Objects larger than there can be, and memory that runs out: MemoryError, not a crash, and most of
    the memory was of use before and is again afterwards."""
    (box.dir / "oom.py").write_text(OUT_OF_MEMORY)
    box.run("bash", "-c", "ulimit -v 524288; exec /usr/bin/python3 oom.py", env={"PYTHONMALLOC": "malloc"})
