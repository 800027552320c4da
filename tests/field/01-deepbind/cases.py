# SPDX-License-Identifier: MIT
"""Interpreters that open their extensions with RTLD_DEEPBIND."""
from field import case

CASES = []


@case(CASES)
def php_with_its_extensions(f):
    """Debian's PHP opens each of conf.d with the flag."""
    php = f.command("php", "php-cli")
    f.same([php, "-m"])
    f.same([php, "-r", """$a = []; for ($i = 0; $i < 200000; $i++) $a["k" . $i % 5003] = str_repeat("x", $i % 300);
        echo md5(serialize($a)), preg_match_all("/x+/", implode(",", $a)), " ", strlen(json_encode($a)), "\n";"""])


@case(CASES)
def python_ctypes(f):
    """ctypes passes the flag on: a module's strdup is freed by libc's free, found through the program."""
    f.good(["python3", "-c", f"""
import ctypes, os
m = ctypes.CDLL({str(f.build / 'plugin.so')!r}, mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
m.plugin_strdup.restype = ctypes.c_void_p
free = ctypes.CDLL(None).free
for i in range(1000): free(ctypes.c_void_p(m.plugin_strdup(b'x' * i)))
m.plugin_free.argtypes = [ctypes.c_void_p]
main = ctypes.CDLL(None); main.malloc.restype = ctypes.c_void_p
for i in range(1000): m.plugin_free(main.malloc(ctypes.c_size_t(i * 100)))
"""])


@case(CASES)
def java_native_library(f):
    """java.lang.System.load opens native libraries; the launcher itself opens libjvm."""
    f.same([f.command("java", "openjdk-17-jre-headless"), "-Xshare:auto", "-XX:-UsePerfData", "-version"], timeout=60)
