# SPDX-License-Identifier: MIT
"""Runtimes with a memory of their own beside malloc, and places where there is nothing but the program."""
import shutil

from field import Failure, Skip, case, run

CASES = []
JAVA = """
import java.nio.ByteBuffer; import java.util.*; import java.util.zip.*;
public class X {
    public static void main(String[] a) throws Exception {
        long sum = 0; List<Thread> ts = new ArrayList<>();
        for (int t = 0; t < 3; t++) { Thread x = new Thread(() -> { for (int i = 0; i < 200; i++) { ByteBuffer b = ByteBuffer.allocateDirect(100000); b.put(5, (byte) 1); } }); x.start(); ts.add(x); }
        for (Thread x : ts) x.join();
        for (int i = 0; i < 50; i++) { Deflater d = new Deflater(); byte[] in = new byte[50000]; Arrays.fill(in, (byte) i); d.setInput(in); d.finish(); byte[] out = new byte[60000]; sum += d.deflate(out); d.end(); }
        System.out.println(sum);
    }
}
"""


@case(CASES)
def java_with_direct_buffers(f):
    f.command("java", "openjdk-17-jre-headless")
    f.command("javac", "openjdk-17-jdk-headless")
    (f.dir / "X.java").write_text(JAVA)
    done = run(["javac", "X.java"], {}, f.dir, 60)
    if done.status:
        raise Skip(f"needs a javac that works: {done.ending()}")
    f.same(["java", "-Xmx128m", "-XX:-UsePerfData", "-cp", f.dir, "X"], timeout=60)


@case(CASES)
def go_with_c(f):
    """cgo: C memory in threads that Go makes."""
    f.command("go", "golang-go")
    (f.dir / "x.go").write_text("""package main
// #include <stdlib.h>
// #include <string.h>
import "C"
import ("fmt"; "sync"; "unsafe")
func main() {
    var w sync.WaitGroup
    for k := 0; k < 8; k++ { w.Add(1); go func() { defer w.Done(); for i := 0; i < 3000; i++ { p := C.malloc(C.size_t(i%5000 + 1)); s := C.CString("text"); C.free(p); C.free(unsafe.Pointer(s)) } }() }
    w.Wait(); fmt.Println("ok")
}
""")
    built = run(["go", "build", "-o", f.dir / "x", "x.go"], {"GOCACHE": str(f.dir / "cache"), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}, f.dir, 120)
    if built.status:
        raise Skip(f"needs a go that builds: {built.ending()}")
    f.same([f.dir / "x"], timeout=60)


@case(CASES)
def node_with_workers(f):
    f.same([f.command("node", "nodejs"), "-e", """
const { Worker, isMainThread } = require('worker_threads'); const zlib = require('zlib');
let n = 0; for (let i = 0; i < 40; i++) n += zlib.deflateSync(Buffer.alloc(100000, i)).length;
let left = 3; for (let i = 0; i < 3; i++) new Worker("let a = []; for (let i = 0; i < 20000; i++) a.push(Buffer.from('x' + i)); require('worker_threads').parentPort.postMessage(a.length)", { eval: true })
  .on('message', m => { n += m; if (!--left) console.log(n); });
"""], timeout=60)


@case(CASES)
def ruby_with_threads(f):
    f.same([f.command("ruby"), "-e", """
a = (1..50_000).map { |i| "s#{i}" * (i % 9 + 1) }; GC.start; GC.compact if GC.respond_to?(:compact)
puts a.size, 4.times.map { |n| Thread.new { (1..20_000).map { |i| (i * n).to_s(7) }.join.sum } }.map(&:value).inspect"""], timeout=60)


ALONE = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *a) { for (int i = 0; i < 50000; i++) { char *p = malloc(i % 9000 + 1); p[0] = 1; free(realloc(p, i % 20000 + 1)); } return a; }
int main(void) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) if (pthread_create(&t[i], 0, work, 0)) return 2;
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    free(memset(malloc(50 << 20), 1, 50 << 20));
    pid_t pid = fork(); int status;
    if (!pid) { work(0); _exit(0); }
    waitpid(pid, &status, 0);
    return status ? 3 : write(1, "ok", 2) != 2;
}
"""


@case(CASES)
def empty_root(f):
    """No /proc, no /sys, no /dev, no files but the program's: a service in a root of its own."""
    there = f.dir / "root"
    (f.dir / "x.c").write_text(ALONE)
    program = f.compile("x", "-w", f.dir / "x.c", "-lpthread")
    files = {str(program), *([f.library] if f.library else [])}
    for file in list(files):
        files.update(word for word in run(["ldd", file], {}, f.dir, 20).out.split() if word.startswith("/"))
    for file in files:
        target = there / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    # The preload is for the program inside alone.
    done = f.tried(["perl", "-e", "chroot(shift) && chdir('/') or exit 77; $ENV{LD_PRELOAD} = shift; exec @ARGV", there, f.library, program], {"LD_PRELOAD": ""})
    if done.status == 77:
        raise Skip("needs root, to change the root")
    if done.status or done.out != "ok" or done.err:
        raise Failure(done.ending())
