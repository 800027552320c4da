# SPDX-License-Identifier: MIT
"""Interpreters with loops that make, grow and drop many objects. Each prints what it worked out."""
from harness import program

PERL = r'''
my (%h, $sum);
for my $i (1 .. 400_000) {
    my $k = $i * 7919 % 50021;
    if (length($h{$k} // "") < 200) { $h{$k} .= "x$i" } else { delete $h{$k} }
}
my @sorted = sort { $h{$a} cmp $h{$b} || $a <=> $b } keys %h;
my $all = join ",", map { "$_=$h{$_}" } @sorted;
$sum += hex $_ for map { substr unpack("H*", $_), 0, 6 } grep { length } $all =~ /x(\d{3})/g;
my @copy = map { [split /x/, $h{$_}] } @sorted;
print scalar(keys %h), " ", length $all, " $sum ", scalar(map { @$_ } @copy), "\n";
'''

RUBY = r'''
a = (1..80_000).map { |i| "s#{i}" * (i % 9 + 1) }
h = {}
a.each { |s| h[s] = s.reverse.to_sym }
GC.start
GC.compact if GC.respond_to?(:compact)
sums = 4.times.map { |n| Thread.new { (1..40_000).map { |i| (i * n).to_s(7) }.join.sum } }.map(&:value)
GC.stress = true
deep = (1..40).map { |i| [i, { i => i.to_s * 50 }] }
GC.stress = false
big = (1..2000).inject(:*)
puts h.size, h.values.map(&:to_s).map(&:size).sum, sums.inspect, deep.flatten.size, big.to_s.sum
'''

LUA = r'''
local t, n = {}, 0
for i = 1, 600000 do
  local k = i * 7919 % 100003
  t[k] = (i % 3 == 0) and nil or {i, tostring(i)}
end
local parts = {}
for k = 0, 100002 do if t[k] then n = n + t[k][1]; parts[#parts + 1] = t[k][2] end end
local s = table.concat(parts, "/")
local co = {}
for i = 1, 20000 do co[i] = coroutine.wrap(function(x) local y = coroutine.yield(x .. i); return #y end) end
for i = 1, 20000 do n = n + #co[i]("a") + co[i](("b"):rep(i % 50)) end
collectgarbage()
print(n, #s, select(2, s:gsub("9+", "nine")))
'''

TCL = r'''
set d [dict create]
for {set i 0} {$i < 250000} {incr i} {
    set k [expr {$i * 7919 % 20011}]
    if {[dict exists $d $k] && $i % 3 == 0} { dict unset d $k } else { dict lappend d $k [string repeat ab [expr {$i % 13}]] }
}
set l {}
dict for {k v} $d { lappend l [regsub -all {a(b+)} [join $v -] {\1\1}] }
set l [lsort $l]
set s [join $l ,]
puts "[dict size $d] [string length $s] [llength [split $s -]] [lindex $l 777]"
puts [string length [expr {7 ** 5000}]]
'''

BASH = r'''
declare -A words
for ((i = 0; i < 40000; i++)); do
    word=$((i * 7919 % 5003))
    words[$word]+="$i,"
    ((i % 7)) || unset "words[$word]"
done
total=0
for word in "${!words[@]}"; do text=${words[$word]}; text=${text//1/one}; ((total += ${#text})); done
echo "${#words[@]} $total"
lines=()
for ((i = 0; i < 200; i++)); do lines+=("$(echo "$i" | tr 0-9 a-j | sort)"); done
printf '%s ' "${lines[@]}" | cksum
'''


# Debian's php opens its extensions with RTLD_DEEPBIND: each takes what another library allocates and the other way round.
PHP = r'''
$want = ["dom", "xml", "mbstring", "curl", "sqlite3", "pdo_sqlite", "intl", "gd", "ctype", "iconv", "tokenizer"];
$have = array_values(array_filter($want, "extension_loaded"));
echo implode(" ", $have), "\n";
foreach ([1, 2, 3] as $round) {
    if (extension_loaded("dom")) {
        $d = new DOMDocument;
        $root = $d->appendChild($d->createElement("r"));
        for ($i = 0; $i < 5000; $i++) $root->appendChild($d->createElement("e", "text $i"))->setAttribute("n", $i);
        $e = new DOMDocument;
        $e->loadXML($d->saveXML());
        echo md5($e->saveXML()), " ", (new DOMXPath($e))->query("//e[@n > 4000]")->length, "\n";
    }
    if (extension_loaded("sqlite3")) {
        $q = new SQLite3(":memory:");
        $q->createFunction("twice", fn($x) => 2 * $x);
        $q->exec("create table t(a integer, b text)");
        for ($i = 0; $i < 3000; $i++) $q->exec("insert into t values($i, '" . str_repeat("x", $i % 97) . "')");
        echo $q->querySingle("select sum(twice(a) * length(b)) from t"), "\n";
    }
    if (extension_loaded("mbstring")) {
        mb_ereg("(\\w+) (\\w+)", "über größe", $m);
        echo mb_strtoupper(str_repeat("äöü", 3)), " ", mb_convert_encoding("grün", "UTF-16LE", "UTF-8") === "g\0r\0\xfc\0n\0" ? 1 : 0, " ", $m[1] ?? "", "\n";
    }
    if (extension_loaded("intl")) {
        $c = new Collator("de_DE");
        $words = ["zebra", "ähre", "apfel", "öl"];
        $c->sort($words);
        echo implode(",", $words), " ", (new NumberFormatter("de", NumberFormatter::SPELLOUT))->format(1234), "\n";
    }
    if (extension_loaded("gd")) {
        $g = imagecreatetruecolor(300, 200);
        for ($i = 0; $i < 100; $i++) imageline($g, $i, 0, 299 - $i, 199, $i * 65537);
        ob_start();
        imagepng(imagescale($g, 150));
        echo md5(ob_get_clean()), "\n";
    }
    if (extension_loaded("curl")) {
        $u = curl_init("file:///etc/hostname");
        curl_setopt($u, CURLOPT_RETURNTRANSFER, true);
        echo strlen(curl_exec($u)) > 0 ? 1 : 0, " ", curl_escape($u, "a b/c"), "\n";
    }
    echo strlen(iconv("UTF-8", "UTF-16", str_repeat("é", 1000))), " ", count(token_get_all("<?php echo 1 + 2;")), "\n";
}
'''


@program({"perl": "perl"})
def perl(box):
    box.run("perl", "-e", PERL)


@program({"ruby": "ruby"})
def ruby(box):
    box.run("ruby", "-e", RUBY)


@program({"lua5.4": "lua5.4"}, modes=True)
def lua(box):
    box.run("lua5.4", "-e", LUA)


@program({"tclsh8.6": "tcl8.6"}, modes=True)
def tcl(box):
    (box.dir / "loop.tcl").write_text(TCL)
    box.run("tclsh8.6", "loop.tcl")


@program({"bash": "bash"})
def bash(box):
    """Associative arrays, and 600 short-lived children: start and end of a process."""
    box.run("bash", "-c", BASH)


@program({"php": "php-cli"}, modes=True)
def php(box):
    box.run("php", "-d", "opcache.enable_cli=1", "-r", PHP)
    box.run("php", "-m")
