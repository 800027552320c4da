# SPDX-License-Identifier: MIT
"""Runtimes with a memory of their own beside malloc, and places where there is nothing but the program."""
import pathlib
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
        raise Skip(f"javac: {done.ending()}")
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
        raise Skip(f"go build: {built.ending()}")
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


def root(f):
    """A folder with a static program, and all that a dynamic one needs."""
    there = f.dir / "root"
    (there / "lib").mkdir(parents=True)
    done = run(["ldd", "/usr/bin/perl"], {}, f.dir, 20)
    for word in done.out.split():
        if word.startswith("/"):
            target = there / word.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, target)
    shutil.copy("/usr/bin/perl", there / "perl")
    if f.library:
        shutil.copy(f.library, there / "lib" / pathlib.Path(f.library).name)
        done = run(["ldd", f.library], {}, f.dir, 20)
        for word in done.out.split():
            if word.startswith("/") and not (there / word.lstrip("/")).exists():
                (there / word.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, there / word.lstrip("/"))
    return there


@case(CASES)
def empty_root(f):
    """No /proc, no /sys, no /dev: a service in a root of its own."""
    there = root(f)
    preload = {"LD_PRELOAD": "/lib/" + pathlib.Path(f.library).name} if f.library else {}
    variables = [f"{k}={v}" for k, v in preload.items()]
    done = f.tried(["chroot", there, "/perl", "-e", "print 1"], {"LD_PRELOAD": ""})
    if done.status:
        raise Skip(f"no such root here: {done.ending()}")
    # env is outside; the preload is taken by the program inside only.
    script = 'use strict; my %h; $h{$_ % 5003} .= "x$_" for 1 .. 100000; my $b = "y" x 50000000; undef $b; my $p = fork // die; exit 0 if !$p; waitpid $p, 0; print scalar keys %h'
    done = f.tried(["perl", "-e", "chroot(shift) && chdir('/') or die; $ENV{LD_PRELOAD} = shift; exec '/perl', '-e', shift", there, variables[0].partition("=")[2] if variables else "", script],
                   {"LD_PRELOAD": ""})
    if done.status or done.out != "5003" or done.err:
        raise Failure(done.ending())
