# SPDX-License-Identifier: MIT
"""Tools that build, pack, compare and look: what they write must be the same, byte for byte."""
import re
import shutil

from harness import SOURCE, program, text_file


def sources(box):
    for folder in ("src", "include"):
        shutil.copytree(SOURCE / folder, box.dir / folder)


@program({"meson": "meson", "ninja": "ninja-build", "gcc": "gcc"}, torture=True, modes=True)
def meson(box):
    (box.dir / "meson.build").write_text("project('x', 'c')\nexecutable('x', 'a.c', 'b.c')\ntest('t', executable('y', 'a.c', 'b.c'))\n")
    (box.dir / "a.c").write_text("int b(void);\nint main(void) { return b(); }\n")
    (box.dir / "b.c").write_text("int b(void) { return 0; }\n")
    box.run("meson", "setup", "build", stdout=False, timeout=120)
    box.run("ninja", "-C", "build", stdout=False, timeout=120)
    box.run(box.dir / "build/x")


@program({"autoconf": "autoconf", "automake": "automake", "m4": "m4"}, torture=True, modes=True)
def autotools(box):
    (box.dir / "configure.ac").write_text("AC_INIT([x], [1])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\nAC_CHECK_HEADERS([stdlib.h unistd.h])\nAC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n")
    (box.dir / "Makefile.am").write_text("bin_PROGRAMS = x\nx_SOURCES = x.c\n")
    (box.dir / "x.c").write_text("int main(void) { return 0; }\n")
    box.run("autoreconf", "-i", stdout=False, timeout=240)
    box.result("configure", "Makefile.in")
    box.run("bash", "./configure", timeout=240, stdout=lambda text: re.sub(r"conf\w+", "conf", text))


@program({"m4": "m4"}, torture=True, modes=True)
def m4(box):
    (box.dir / "x").write_text("define(`loop', `ifelse($1, 0, `', `$1`'x loop(decr($1))')')loop(2000)\ndefine(`big', `0123456789')define(`twice', `$1$1')len(twice(twice(twice(twice(twice(twice(twice(twice(twice(big))))))))))\npatsubst(loop(500), `1', `one')\n")
    box.run("m4", "-L0", "x")


@program({"bison": "bison", "flex": "flex", "gcc": "gcc"}, torture=True, modes=True)
def bison_flex(box):
    rules = "".join(f"r{i}: 'a' r{i + 1} | 'b' r{(i * 7) % 200} 'c' | ;\n" for i in range(200)) + "r200: 'd' | 'e' r200;\n"
    (box.dir / "g.y").write_text("%{\nint yylex(void); void yyerror(const char *);\n%}\n%glr-parser\n%%\n" + rules + "%%\n")
    (box.dir / "l.l").write_text("%%\n" + "".join(f"word{i}[a-z]{{1,{i % 9 + 1}}}|x{i}+ return {i};\n" for i in range(1, 120)) + "%%\n")
    box.run("bison", "-o", "g.c", "g.y", may_fail=True)
    box.result("g.c")
    box.run("flex", "-o", "l.c", "l.l")
    box.result("l.c")


@program({"doxygen": "doxygen"}, torture=True, modes=True)
def doxygen(box):
    shutil.copytree(SOURCE / "src/base", box.dir / "in")
    shutil.copytree(SOURCE / "src/rt", box.dir / "in/rt")
    (box.dir / "Doxyfile").write_text("INPUT = in\nRECURSIVE = YES\nQUIET = YES\nEXTRACT_ALL = YES\nHAVE_DOT = NO\nGENERATE_LATEX = NO\nHTML_TIMESTAMP = NO\nWARNINGS = NO\nGENERATE_XML = YES\nNUM_PROC_THREADS = 2\n")
    box.run("doxygen", "Doxyfile", timeout=120)
    box.run("bash", "-c", "cat $(ls xml/*.xml | sort) | sha256sum; ls html | wc -l", timeout=60)


@program({"swig": "swig"}, torture=True, modes=True)
def swig(box):
    (box.dir / "x.i").write_text("%module x\n%include <std_string.i>\n%include <std_vector.i>\n%inline %{\n" + "".join(f"struct S{i} {{ int a, b[{i + 1}]; double f(const char *x, int y = {i}); }};\n" for i in range(200)) + "%}\n")
    box.run("swig", "-python", "-c++", "-o", "x.cxx", "x.i", timeout=120)
    box.result("x.cxx", "x.py")


@program({"cppcheck": "cppcheck"}, torture=True, modes=True)
def cppcheck(box):
    sources(box)
    box.run("cppcheck", "-q", "--enable=style", "--inline-suppr", "--template={file}:{line} {id}", "-Isrc", "src/base", "src/rt", timeout=240)


@program({"ctags": "universal-ctags"}, torture=True, modes=True)
def ctags(box):
    sources(box)
    box.run("ctags", "-R", "--sort=yes", "--fields=+nKS", "--pseudo-tags=", "-f", "tags", "src", "include")
    box.result("tags")


@program({"gfortran": "gfortran"}, torture=True, modes=True)
def fortran(box):
    (box.dir / "x.f90").write_text("""program x
  implicit none
  integer :: i, j
  real(8), allocatable :: a(:, :), b(:)
  character(len=:), allocatable :: s
  s = ''
  do i = 1, 3000
    allocate (a(i / 10 + 1, 20), b(i)); a = i; b = [(j * 0.5d0, j = 1, i)]
    s = s // achar(97 + mod(i, 26))
    if (mod(i, 1000) == 0) print '(f20.4, f20.4, i8)', sum(a), sum(b), len(s)
    deallocate (a, b)
  end do
end program
""")
    box.run("gfortran", "-O1", "x.f90", "-o", "x", timeout=120)
    box.run(box.dir / "x")


@program({"ragel": "ragel"}, torture=True, modes=True)
def ragel(box):
    words = " | ".join(f"'word{i * 7919 % 10007}' @{{ n += {i}; }}" for i in range(300))
    (box.dir / "x.rl").write_text(f"%%{{ machine x; main := ( {words} )* ; }}%%\n%% write data;\nint n;\nvoid f(const char *p, const char *pe) {{ int cs;\n%% write init;\n%% write exec;\n}}\n")
    box.run("ragel", "-G2", "-o", "x.c", "x.rl", timeout=120)
    box.result("x.c")


@program({"gperf": "gperf"}, torture=True, modes=True)
def gperf(box):
    (box.dir / "words").write_text("\n".join(f"word{i * 7919 % 10007}" for i in range(700)) + "\n")
    box.run("gperf", "-m", "3", "words", timeout=120)


@program({"nasm": "nasm"}, torture=True, modes=True)
def nasm(box):
    (box.dir / "x.asm").write_text("bits 64\n%macro f 1\nl%1: mov rax, %1\n add rax, [rel d%1]\n jnz l%1\nd%1: dq %1 * 7\n%endmacro\n" + "".join(f"f {i}\n" for i in range(6000)))
    box.run("nasm", "-O2", "-f", "elf64", "-g", "x.asm", "-o", "x.o", timeout=120)
    box.result("x.o")


@program({"rustc": "rustc"}, torture=True, modes=True)
def rustc(box):
    """Debian's compiler takes its malloc from libc; threads of LLVM."""
    (box.dir / "x.rs").write_text("use std::collections::HashMap;\nfn main() { let mut m: HashMap<u64, String> = HashMap::new(); for i in 0..200000u64 { m.entry(i * 7919 % 5003).or_default().push_str(&i.to_string()); }\n let mut n = 0; for v in m.values() { n += v.len(); } println!(\"{} {}\", m.len(), n);\n let t: Vec<_> = (0..4).map(|k| std::thread::spawn(move || (0..10000).map(|i| format!(\"{}\", i * k).len()).sum::<usize>())).collect();\n for x in t { println!(\"{}\", x.join().unwrap()); } }\n")
    box.run("rustc", "-O", "-C", "codegen-units=4", "x.rs", timeout=240)
    box.run(box.dir / "x")


@program({"hg": "mercurial"}, torture=True, modes=True)
def mercurial(box):
    hg = ["hg", "--config", "ui.username=a", "--cwd", "r"]
    box.run("hg", "init", "r")
    for n in range(3):
        text_file(box.dir / "r" / f"f{n}", 500 + 100 * n, seed=n)
        box.run(*hg, "commit", "-Am", f"change {n}", "-d", f"{n} 0")
    box.run(*hg, "log", "-p")
    box.run(*hg, "verify")
    box.run(*hg, "annotate", "f1")


@program({"svn": "subversion"}, torture=True, modes=True)
def subversion(box):
    box.run("svnadmin", "create", "r")
    url = f"file://{box.dir}/r"
    box.run("svn", "checkout", "-q", url, "w")
    for n in range(3):
        text_file(box.dir / "w" / f"f{n}", 500, seed=n)
        box.run("svn", "add", "-q", f"w/f{n}")
        box.run("svn", "commit", "-q", "-m", f"change {n}", "w")
    box.run("svn", "cat", f"{url}/f1")
    box.run("svnadmin", "verify", "-q", "r")
    box.run("svnadmin", "dump", "-q", "r", stdout=lambda text: len(re.sub(r"(?s)UUID.*?\n|svn:date.*?Z", "", text)))


@program({"borg": "borgbackup"}, torture=True, modes=True)
def borg(box):
    (box.dir / "in").mkdir()
    for n in range(6):
        text_file(box.dir / "in" / f"f{n}", 8000, seed=n)
    environment = {"BORG_BASE_DIR": str(box.dir / "b"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
    box.run("borg", "init", "-e", "none", "r", env=environment, timeout=120)
    box.run("borg", "create", "r::a", *[f"in/f{n}" for n in range(6)], env=environment, timeout=120)  # a folder comes in the order of its inodes
    box.run("borg", "list", "--short", "r::a", env=environment, timeout=120)
    box.run("borg", "extract", "--stdout", "r::a", env=environment, timeout=120)
    box.run("borg", "check", "r", env=environment, timeout=120)


@program({"gpg": "gnupg"}, torture=True, modes=True)
def gpg(box):
    """Memory that is locked, and an agent of its own."""
    (box.dir / "g").mkdir(mode=0o700)
    text_file(box.dir / "text", 20_000)
    gpg = ["gpg", "--homedir", box.dir / "g", "--batch", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", "x"]
    box.run(*gpg, "--quick-gen-key", "a@example", "ed25519", "default", "0", stdout=False, timeout=120)
    box.run(*gpg, "--detach-sign", "--armor", "text", stdout=False)
    box.run(*gpg, "--verify", "text.asc", "text")
    box.run(*gpg, "--symmetric", "--cipher-algo", "AES256", "-o", "secret", "text")
    box.run(*gpg, "--decrypt", "secret")
    box.run("gpgconf", "--homedir", box.dir / "g", "--kill", "all")


@program({"vim.nox": "vim-nox"}, torture=True, modes=True)
def vim(box):
    text_file(box.dir / "text", 8000)
    (box.dir / "s.vim").write_text("%s/[aeiou]/<&>/g\nsort u\ng/1/normal dd\n1,50join\nlet d = {}\nfor i in range(20000)\n let d[i * 7919 % 5003] = repeat('x', i % 60)\nendfor\ncall append(0, string(len(d)) . ' ' . strlen(join(values(d), '')))\nw! out\nqa!\n")
    box.run("vim.nox", "-Nu", "NONE", "-n", "-es", "-S", "s.vim", "text", may_fail=True, timeout=120)
    box.result("out")


@program({"7z": "p7zip-full"}, torture=True, modes=True)
def seven_zip(box):
    text_file(box.dir / "text", 60_000)
    box.run("7z", "a", "-bd", "-mmt=2", "-mx=7", "-mtm=off", "x.7z", "text", stdout=False, timeout=120)
    box.run("7z", "e", "-so", "x.7z", timeout=120)
    box.run("7z", "t", "-bd", "x.7z", stdout=False, timeout=120)


@program({"lrzip": "lrzip"}, torture=True, modes=True)
def lrzip(box):
    """It asks how much memory there is and takes it."""
    text_file(box.dir / "text", 60_000)
    box.run("lrzip", "-q", "-p", "2", "-m", "1", "text", stdout=False, timeout=120)
    (box.dir / "text").unlink()
    box.run("lrzip", "-q", "-d", "text.lrz", stdout=False, timeout=120)
    box.result("text")


@program({"lz4": "lz4", "brotli": "brotli", "zip": "zip", "unzip": "unzip", "bzip2": "bzip2", "gzip": "gzip"}, torture=True, modes=True)
def small_packers(box):
    text_file(box.dir / "text", 40_000)
    box.run("lz4", "-q", "-9", "text", "text.lz4")
    box.run("lz4", "-qdc", "text.lz4")
    box.run("brotli", "-q", "7", "text")
    box.run("brotli", "-dc", "text.br")
    box.run("zip", "-q", "-X", "t.zip", "text")
    box.run("unzip", "-p", "t.zip")
    box.run("bzip2", "-k", "text")
    box.run("gzip", "-nk9", "text")
    box.result("text.lz4", "text.br", "text.bz2", "text.gz")


@program({"tar": "tar", "find": "findutils", "rsync": "rsync"}, torture=True, modes=True)
def rsync(box):
    """Two processes with a pipe, and a third time over files that changed."""
    sources(box)
    box.run("rsync", "-a", "--checksum", "src/", "copy/", timeout=60)
    text_file(box.dir / "src" / "new", 20_000)
    box.run("rsync", "-a", "-z", "--no-whole-file", "--stats", "src/", "copy/", stdout=lambda text: re.findall(r"Number of .*", text), timeout=60)
    box.run("diff", "-r", "src", "copy")
    box.run("bash", "-c", "find copy -type f | sort | tar --mtime=@0 --owner=0 --group=0 -cT - | sha256sum")


@program({"xmllint": "libxml2-utils", "xsltproc": "xsltproc"}, torture=True, modes=True)
def xml(box):
    (box.dir / "x.xml").write_text("<a>" + "".join(f"<b k='{i * 7919 % 5003}'><c>{i}</c>{'text ' * (i % 9)}</b>" for i in range(20000)) + "</a>")
    (box.dir / "x.xsl").write_text("<xsl:stylesheet version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'><xsl:key name='k' match='b' use='@k'/><xsl:template match='/'><r><xsl:for-each select='a/b[position() mod 7 = 1]'><xsl:sort select='@k' data-type='number'/><x n='{count(key(\"k\", @k))}'><xsl:value-of select='c'/></x></xsl:for-each></r></xsl:template></xsl:stylesheet>")
    box.run("xmllint", "--xpath", "sum(//b[@k > 100]/c)", "x.xml")
    box.run("xmllint", "--format", "--c14n", "x.xml")
    box.run("xsltproc", "x.xsl", "x.xml", timeout=120)


@program({"/usr/share/groff/current/tmac/s.tmac": "groff"}, torture=True, modes=True)
def groff(box):
    (box.dir / "x.ms").write_text(".TL\nTitle\n" + "".join(f".SH\nSection {i}\n.PP\n{'words of a paragraph ' * (i % 30 + 5)}\n.TS\nl l.\na{i}\tb\n.TE\n" for i in range(300)))
    box.run("groff", "-t", "-ms", "-Tutf8", "x.ms", timeout=60)
    box.run("groff", "-t", "-ms", "-Tps", "x.ms", stdout=lambda text: re.sub(r"%%CreationDate.*", "", text)[:200] + str(len(text)), timeout=60)


@program({"qemu-x86_64": "qemu-user", "busybox": "busybox"}, torture=True, modes=True)
def qemu_user(box):
    """An emulator whose guest has mappings of its own; the guest is a static program."""
    box.run("qemu-x86_64", "/bin/busybox", "sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); x=$x$i; done; echo ${#x}; seq 5000 | sort -rn | awk '{ s += $1 } END { print s }'", timeout=120)


@program({"man": "man-db"}, modes=True, reports=False)
def man(box):
    """Its children are under a filter of libseccomp, which answers ENOSYS."""
    environment = {"MANWIDTH": "80", "MANPAGER": "cat", "MAN_KEEP_FORMATTING": "1"}
    (box.dir / "x.1").write_text(".TH X 1\n.SH NAME\nx - it\n" + "".join(f".SH S{i}\n.B word\n{'some text ' * (i % 40 + 3)}\n" for i in range(200)))
    box.run("man", "-l", "x.1", env=environment)
    box.run("man", "-l", "-Tutf8", "x.1", env=environment)
    box.run("lexgrog", "x.1")


@program({"bwrap": "bubblewrap"}, torture=True, modes=True, reports=False)
def bubblewrap(box):
    box.run("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-ipc", "--unshare-uts", "--die-with-parent",
            "perl", "-e", 'my %h; $h{$_ * 7919 % 5003} .= "x$_" for 1 .. 100000; my $s = join ",", map { "$_=$h{$_}" } sort { $a <=> $b } keys %h; print length $s, "\\n"')


@program({"file": "file"}, torture=True, modes=True)
def file_kinds(box):
    sources(box)
    box.run("bash", "-c", "find src include -type f | sort | xargs file -b", timeout=60)
    box.run("file", "-b", "-z", "-k", "/bin/bash", "/etc/passwd")


@program({"tshark": "tshark", "text2pcap": "wireshark-common"}, torture=True, modes=True)
def tshark(box):
    """Dissectors and their memory pools; a capture that is made here."""
    lines = []
    for n in range(300):
        packet = bytes.fromhex("ffffffffffff02000000000108004500003c") + bytes([n >> 8, n & 255]) + bytes.fromhex("400040110000 7f000001 7f000001 0035".replace(" ", "")) + bytes([n >> 8, n & 255]) + b"\0\x28\0\0" + bytes([0, n & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b"\x07example\x03org\0\0\1\0\1"
        lines.append("000000 " + packet.hex(" "))
    (box.dir / "x.txt").write_text("\n".join(lines) + "\n")
    box.run("text2pcap", "-q", "x.txt", "x.pcap", stdout=False)
    box.run("tshark", "-n", "-r", "x.pcap", "-T", "fields", "-e", "ip.id", "-e", "udp.dstport", "-e", "dns.qry.name", timeout=120)
    box.run("tshark", "-n", "-q", "-r", "x.pcap", "-z", "io,phs", timeout=120)


@program({"tcpdump": "tcpdump", "text2pcap": "wireshark-common"}, torture=True, modes=True)
def tcpdump(box):
    (box.dir / "x.txt").write_text("".join("000000 " + (bytes.fromhex("ffffffffffff0200000000010800450000201234400040110000 7f0000017f000001".replace(" ", "")) + bytes([n >> 8, n & 255, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4])).hex(" ") + "\n" for n in range(2000)))
    box.run("text2pcap", "-q", "x.txt", "x.pcap", stdout=False)
    box.run("tcpdump", "-nn", "-tt", "-vvv", "-X", "-r", "x.pcap", "udp and dst port 53 and greater 40 or udp[0:2] & 7 = 3", stdout=lambda text: re.sub(r"^\d+\.\d+ ", "", text, flags=re.M)[:5000] + str(len(text)))


@program({"gdb": "gdb", "gcc": "gcc"}, torture=True, modes=True)
def gdb(box):
    """It reads its own symbols, and Python in it."""
    (box.dir / "x.c").write_text("struct s { int a; struct s *n; } x[20];\n" + "".join(f"int f{i}(struct s *p, int b) {{ return p->a + b * {i}; }}\n" for i in range(500)) + "int main(void) { return 0; }\n")
    box.run("gcc", "-g3", "x.c", "-o", "x")
    box.run("gdb", "-nx", "-batch", "-ex", "info functions f1", "-ex", "ptype struct s", "-ex", "info line f77", "-ex", "disassemble f3", "-ex", "python print(sum(len(s.name or '') for s in gdb.selected_inferior().progspace.objfiles()[0].lookup_global_symbol('main').symtab.global_block()))", "x", timeout=120)


@program({"readelf": "binutils", "objdump": "binutils", "ld.gold": "binutils", "gcc": "gcc"}, torture=True, modes=True)
def binutils(box):
    box.run("objdump", "-dr", "--no-show-raw-insn", "/usr/bin/ls", timeout=60)
    box.run("readelf", "-aW", "/usr/bin/bash", timeout=60)
    (box.dir / "x.c").write_text("".join(f"int f{i}(void) {{ return {i}; }}\n" for i in range(3000)) + "int main(void) { return 0; }\n")
    box.run("gcc", "-c", "-ffunction-sections", "x.c")
    box.run("gcc", "-fuse-ld=gold", "-Wl,--threads,--gc-sections,--icf=all", "x.o", "-o", "x")
    box.result("x")
    box.run("strip", "-o", "y", "x")
    box.result("y")


@program({"curl": "curl", "wget": "wget"}, torture=True, modes=True)
def fetchers(box):
    """From files, and what they say of servers that are not there."""
    text_file(box.dir / "text", 20_000)
    box.run("curl", "-s", f"file://{box.dir}/text")
    port = box.port()
    box.run("curl", "-s", "--max-time", "5", f"http://127.0.0.1:{port}/", may_fail=True)
    box.run("wget", "-q", "-t1", "-T5", f"http://127.0.0.1:{port}/", may_fail=True)
    box.run("curl", "-s", "--parallel", *[word for n in range(12) for word in ("-o", f"o{n}", f"file://{box.dir}/text")])
    box.result("o3", "o11")
