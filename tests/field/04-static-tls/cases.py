# SPDX-License-Identifier: MIT
"""A malloc that is loaded late: dlopen, ctypes, plug-ins. glibc keeps 1,664 bytes of static TLS for all of them."""
import pathlib

from field import Failure, Skip, case

CASES = []
NONE = {"LD_PRELOAD": ""}


def library(f):
    return f.library or f"{pathlib.Path('/usr/lib').glob('*/libm.so.6').__next__()}"


def plug(f):
    name = pathlib.Path(library(f))
    return f.compile("plug.so", "-shared", "-fPIC", f.source / "module_plugin.c", "-Wl,--no-as-needed", name, f"-Wl,-rpath,{name.parent}")


def opens(f, file, how, *more, environment=NONE):
    f.good([f.build / "host", "open", file, how, *more], environment)


@case(CASES)
def plugin(f):
    opens(f, plug(f), "local")


@case(CASES)
def plugin_for_all(f):
    opens(f, plug(f), "global")


@case(CASES)
def plugin_in_a_namespace(f):
    opens(f, plug(f), "namespace")


@case(CASES)
def plugin_in_a_thread(f):
    opens(f, plug(f), "thread")


@case(CASES)
def plugin_again_and_again(f):
    opens(f, plug(f), "again")


@case(CASES)
def the_malloc_itself(f):
    opens(f, library(f), "local")


@case(CASES)
def the_malloc_itself_in_a_namespace(f):
    opens(f, library(f), "namespace")


@case(CASES)
def after_others_with_static_tls(f):
    opens(f, plug(f), "local", "libgomp.so.1", "libstdc++.so.6")


@case(CASES)
def plugin_beside_the_preload(f):
    """In a second namespace, so a second copy of what is preloaded."""
    opens(f, plug(f), "namespace", environment={})


@case(CASES)
def ctypes(f):
    f.good(["/usr/bin/python3", "-c", f"import ctypes; ctypes.CDLL({library(f)!r})"], NONE)


@case(CASES)
def perl(f):
    f.good(["perl", "-e", "use DynaLoader; DynaLoader::dl_load_file($ARGV[0], 0) or die DynaLoader::dl_error()", library(f)], NONE)


@case(CASES)
def tls_is_small(f):
    """128 bytes or less, so that twelve such libraries find room."""
    done = f.tried(["readelf", "-lW", library(f)], NONE)
    sizes = [int(line.split()[5], 16) for line in done.out.splitlines() if line.split()[:1] == ["TLS"]]
    if not f.library:
        raise Skip("needs a library")
    if sizes and sizes[0] > 128:
        raise Failure(f"{sizes[0]} bytes of static TLS")


@case(CASES)
def libquarry_late(f):
    """The other library of this project, which no other malloc has."""
    late = pathlib.Path(f.library).parent / "libquarry.so"
    if f.malloc.name != "quarry":
        raise Skip("needs Quarry: libquarry.so is its library")
    opens(f, late, "local")
    f.good(["/usr/bin/python3", "-c", f"""
import ctypes
q = ctypes.CDLL({str(late)!r}); q.quarry_malloc.restype = ctypes.c_void_p
p = q.quarry_malloc(100); assert p; q.quarry_free(ctypes.c_void_p(p))"""], NONE)
