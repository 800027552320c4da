# SPDX-License-Identifier: MIT
"""What the real programs of real.py work on: scripts in their languages, and files that are made here, always the same ones."""
import json

GAWK = """BEGIN {
    seed = 1
    for (round = 0; round < 6; round++) {
        delete seen
        for (i = 0; i < 200000; i++) {
            seed = (seed * 16807) % 2147483647
            key = "key " seed % 40000
            seen[key] = substr(seen[key] " " seed, 1, 60)
        }
        for (key in seen) { n = split(seen[key], words); sum += n + length(words[1]) }
    }
    print sum
}
"""

LUA = """local seed, sum = 1, 0
local function tree(depth)
    if depth == 0 then return {} end
    return {left = tree(depth - 1), right = tree(depth - 1), name = "node " .. depth}
end
for round = 1, 12 do
    local words = {}
    for i = 1, 60000 do
        seed = seed * 16807 % 2147483647
        local key = "word " .. seed % 20000
        local list = words[key] or {}
        list[#list + 1] = ("x"):rep(seed % 200)
        words[key] = list
    end
    for _, list in pairs(words) do sum = sum + #table.concat(list, ",") end
    local t = tree(15)
    sum = sum + #t.name
end
print(sum)
"""

TCL = """set seed 1
set sum 0
for {set round 0} {$round < 4} {incr round} {
    set words [dict create]
    for {set i 0} {$i < 60000} {incr i} {
        set seed [expr {$seed * 16807 % 2147483647}]
        dict lappend words "word [expr {$seed % 20000}]" [string repeat x [expr {$seed % 200}]]
    }
    foreach key [lsort [dict keys $words]] {incr sum [string length [join [dict get $words $key] ,]]}
}
puts $sum
"""

# Half of what a compiler works at is the library's.
CXX = """#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
struct Word { std::string text; std::vector<std::shared_ptr<Word>> next; };
int main() {
    std::regex words("([a-z]+)[^a-z]+([a-z]*)", std::regex::icase | std::regex::optimize);
    std::map<std::string, std::unordered_map<std::string, std::shared_ptr<Word>>> known;
    std::vector<std::function<bool(const Word &)>> tests;
    for (std::string line; std::getline(std::cin, line);) {
        for (std::sregex_iterator at(line.begin(), line.end(), words), end; at != end; ++at) {
            auto &word = known[at->str(1)][at->str(2)];
            if (!word) word = std::make_shared<Word>(Word{at->str(), {}});
            tests.emplace_back([word](const Word &other) { return word->text < other.text; });
        }
    }
    std::stable_sort(tests.begin(), tests.end(), [&](auto &a, auto &b) { return a(Word{"m", {}}) < b(Word{"n", {}}); });
    std::cout << std::regex_replace(std::to_string(known.size()), words, "$2 $1") << tests.size();
}
"""

JQ = '[group_by(.kind)[] | {kind: .[0].kind, n: length, names: ([.[].name] | sort | join(",") | length), tags: ([.[].tags[]] | unique | length)}] | tojson | length'

NODE = """const zlib = require("zlib");
let seed = 1, sum = 0;
const next = () => (seed = seed * 16807 % 2147483647);
const kept = new Map();
for (let round = 0; round < 150; round++) {
    const parts = [];
    for (let i = 0; i < 400; i++) {
        const part = Buffer.alloc(next() % 5000, "word " + next());
        parts.push(part);
        if (i % 7 == 0) kept.set(next() % 500, Buffer.from(part));
    }
    const packed = zlib.deflateSync(Buffer.concat(parts), {level: 3});
    sum += packed.length + zlib.inflateSync(packed).length;
    const text = JSON.stringify([...kept].map(([key, value]) => ({key, length: value.length, words: value.toString("latin1", 0, 60).split(" ")})));
    for (const entry of JSON.parse(text)) sum += entry.words.length + entry.length;
}
console.log(sum);
"""

EMACS = """(let ((seed 1) (sum 0))
  (dotimes (_ 5)
    (let ((words (make-hash-table :test 'equal)))
      (dotimes (_ 40000)
        (setq seed (% (* seed 16807) 2147483647))
        (push (make-string (% seed 200) ?x) (gethash (format "word %d" (% seed 8000)) words)))
      (maphash (lambda (_ list) (setq sum (+ sum (length (mapconcat #'identity list ","))))) words))
    (with-temp-buffer
      (dotimes (i 20000)
        (setq seed (% (* seed 16807) 2147483647))
        (insert (format "line %d of %d\\n" i seed)))
      (sort-numeric-fields 4 (point-min) (point-max))
      (goto-char (point-min))
      (while (re-search-forward "line \\\\([0-9]+\\\\) of" nil t) (replace-match "\\\\1:"))
      (setq sum (+ sum (buffer-size)))))
  (message "%d" sum))
"""

CMAKE = """set(seed 1)
set(sum 0)
foreach(round RANGE 1 16)
  set(words "")
  foreach(i RANGE 1 4000)
    math(EXPR seed "(${seed} * 16807) % 2147483647")
    math(EXPR key "${seed} % 500")
    list(APPEND words "word ${key}")
    string(APPEND text_${key} "${seed},")
  endforeach()
  list(SORT words)
  list(REMOVE_DUPLICATES words)
  list(JOIN words " " line)
  string(REGEX REPLACE "word ([0-9]+)" "\\\\1;" line "${line}")
  string(SHA1 digest "${line}")
  list(LENGTH words count)
  math(EXPR sum "${sum} + ${count}")
endforeach()
foreach(key RANGE 0 499)
  string(LENGTH "${text_${key}}" length)
  math(EXPR sum "${sum} + ${length}")
endforeach()
message("${sum} ${digest}")
"""

# Groups by keys, sorts, and builds a new tree.
XSL = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="kinds" match="item" use="@kind"/>
<xsl:template match="/items"><kinds>
<xsl:for-each select="item[generate-id() = generate-id(key('kinds', @kind)[1])]"><xsl:sort select="@kind"/>
<kind name="{@kind}" count="{count(key('kinds', @kind))}">
<xsl:for-each select="key('kinds', @kind)"><xsl:sort select="name"/><xsl:copy-of select="name"/><xsl:value-of select="normalize-space(concat(tag[1], ' ', tag[2]))"/></xsl:for-each>
</kind></xsl:for-each></kinds></xsl:template>
</xsl:stylesheet>
"""

# A server that starts, works on tables in memory, and ends. Without InnoDB it has nothing to write through to the disk.
MARIADB = """create database words;
use words;
create table t(a int primary key, b varchar(60), c int, key(b)) engine=memory;
insert into t select seq, concat('row ', seq * 7919 % 65537, hex(seq)), seq % 997 from seq_1_to_60000;
create table u engine=memory as select c, count(*) n, cast(max(b) as char(60)) b from t group by c;
select sum(x.n), count(distinct x.b) from u x join t y on x.c = y.c where y.a % 3 = 0;
select c, length(group_concat(b order by b)) l from t group by c order by l desc limit 3;
select sum(json_length(json_array(a, b, json_object('c', c, 'b', upper(b))))) from t;
select count(*) from t where b regexp '7[0-9]+A' or soundex(b) = 'R000';
drop database words;
"""


def records(path, count):
    path.write_text(json.dumps([{"id": n, "kind": f"kind {n * 7919 % 97}", "name": f"record {n * 104729 % 1000003}",
                                 "tags": [f"tag {n * k % 211}" for k in range(1, 6)], "at": {"x": n / 7, "y": [n, n + 1]}} for n in range(count)]))


def items(path, count):
    """The same as XML."""
    path.write_text("<items>\n" + "".join(
        f'<item id="{n}" kind="kind {n * 7919 % 97}"><name>record {n * 104729 % 1000003}</name><tag>tag {n % 211}</tag><tag>tag  {n * 3 % 211}</tag></item>\n'
        for n in range(count)) + "</items>\n")


def drawing(path, count):
    """Many shapes, each with a gradient of its own."""
    shapes = []
    for n in range(count):
        x, y, color = n * 7919 % 900, n * 104729 % 900, f"#{n * 2654435761 % (1 << 24):06x}"
        shapes.append(f'<linearGradient id="g{n}"><stop offset="0" stop-color="{color}"/><stop offset="1" stop-color="#fff" stop-opacity=".2"/></linearGradient>'
                      f'<path d="M{x} {y}q{n % 50} {n % 70} {n % 90} 9t40 {n % 31}l-{n % 60} 30z" fill="url(#g{n})" stroke="{color}" stroke-dasharray="{n % 9 + 1}"/>')
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="900">{"".join(shapes)}</svg>')


def classes(path, count):
    """C++ with comments, for programs that read sources: classes that derive from and use each other."""
    text = ["#include <map>\n#include <string>\n#include <vector>\n"]
    for n in range(count):
        base = f" : public Part{n * 7 % n}" if n else ""
        text.append(f"""
/// Part {n} of the whole.
/// It knows {n % 9} others, see Part{n * 3 % (n or 1)}.
class Part{n}{base} {{
public:
    /// Begins with a name. @param name what it is called @param size how large it is
    Part{n}(const std::string &name, int size) : {f"Part{n * 7 % n}(name, size + 1), " if n else ""}name{n}(name), size{n}(size) {{}}
    /// @return the sum of what is known under `key`
    int sum(const std::string &key, int limit) const {{
        int result = 0;
        for (auto at = known.find(key); at != known.end(); ++at) {{
            if (at->second.empty() || result > limit) continue;
            int *p = new int[at->second.size() + {n % 5}];
            for (size_t i = 0; i < at->second.size(); i++) p[i] = at->second[i] * {n};
            if (p[0] % {n % 7 + 2} == 1) result += p[0]; else result -= limit / ({n % 3 + 1});
            delete[] p;
        }}
        return result > size{n} ? result : size{n};
    }}
private:
    std::string name{n};  ///< what it is called
    int size{n};          ///< in parts
    std::map<std::string, std::vector<int>> known;
}};
""")
    path.write_text("".join(text))


def words(path, count):
    """Text with as much repetition as there is in a log."""
    with open(path, "w") as out:
        seed = 1
        for n in range(count):
            seed = seed * 16807 % 2147483647
            out.write(f"{n:08d} request {seed % 5000} of client {seed % 211}: {'done' if seed % 7 else 'failed'} after {seed % 997} ms, {seed} bytes\n")
