# SPDX-License-Identifier: MIT
"""Real programs of kinds that those of real.py lack: a linker, an office program, a language server, renderers, a solver, a layout of
graphs, scientific computation, statistics, an archiver, and tools for documents. What they work on is made here, always the same."""
import shutil

import inputs

NAMES = ("lld", "octave", "R", "z3-jobs", "dot", "ruby-words", "ghostscript", "pdftoppm", "povray", "qpdf", "7z", "soffice", "clangd")

# Ruby: strings, hashes and objects that the collector gives back one by one.
RUBY = """seed, sum = 1, 0
Entry = Struct.new(:name, :tags, :size)
4.times do
  words = Hash.new { |hash, key| hash[key] = [] }
  60_000.times do
    seed = seed * 16807 % 2147483647
    words["word #{seed % 20000}"] << Entry.new("x" * (seed % 200), ["tag #{seed % 31}"], seed)
  end
  words.each_value { |list| sum += list.map(&:name).join(",").size }
  sum += words.values.flatten.group_by(&:tags).transform_values { |list| list.sum(&:size) }.size
end
puts sum
"""

# Octave: small matrices, cells and strings.
OCTAVE = """s = 1; total = 0;
for turn = 1:5
  parts = cell(1, 12000); names = cell(1, 12000);
  for i = 1:12000
    s = mod(s * 16807, 2147483647);
    parts{i} = (1:mod(s, 60) + 1)' * [1 2 3];
    names{i} = sprintf('part %d of %d', mod(s, 997), i);
  end
  total = total + sum(cellfun(@(m) sum(m(:)), parts)) + numel(unique(names));
  all = vertcat(parts{:});
  total = total + sum(sortrows(all, -2)(1:100, 1)) + sum(regexprep(names{7}, 'of', 'in'));
  a = reshape(mod(1:160000, 977), 400, 400) + 400 * eye(400);
  total = total + round(sum(sum(a \\ a)));
end
printf('%.0f\\n', total);
"""

# R: data frames are taken apart and put together.
R = """set.seed(1)
total <- 0
for (round in 1:3) {
  n <- 60000
  frame <- data.frame(key = sample.int(5000, n, TRUE), kind = paste("kind", sample.int(97, n, TRUE)), size = round(runif(n) * 1000))
  by_kind <- aggregate(size ~ kind, frame, sum)
  parts <- split(frame, frame$key)
  sums <- vapply(parts[1:2000], function(part) sum(part$size) + nchar(paste(part$kind, collapse = ",")), 0)
  both <- merge(frame[1:20000, ], by_kind, by = "kind")
  total <- total + sum(sums) + sum(both$size.y) + length(unique(strsplit(paste(frame$kind, collapse = " "), " ")[[1]]))
}
cat(total, "\\n")
"""

# z3: a schedule, and bits of a product.
Z3_HEAD = "(set-logic ALL)\n"


def problem(path, jobs):
    """Jobs with lengths on machines, none at once with another; and a number to be taken apart."""
    text = [Z3_HEAD]
    seed = 1
    for job in range(jobs):
        text.append(f"(declare-const s{job} Int)(assert (>= s{job} 0))")
    for one in range(jobs):
        for other in range(one):
            seed = seed * 16807 % 2147483647
            if seed % 3 == 0:
                text.append(f"(assert (or (>= s{one} (+ s{other} {other % 7 + 2})) (>= s{other} (+ s{one} {one % 7 + 2}))))")
    text.append("".join(f"(assert (<= s{job} {jobs * 2}))" for job in range(jobs)) + "(check-sat)(reset)" + Z3_HEAD)
    text.append("(declare-const a (_ BitVec 32))(declare-const b (_ BitVec 32))(assert (= (bvmul a b) #x3b9b2a5b))"
                "(assert (bvult #x00000001 a))(assert (bvult a #x0000ffff))(assert (bvult b #x0000ffff))(assert (bvult a b))(check-sat)")
    path.write_text("\n".join(text) + "\n")


def graph(path, nodes):
    edges = "".join(f"n{n} -> n{n * 7919 % (n or 1)} [label=\"edge {n % 31}\"];\n" + (f"n{n} -> n{n * 104729 % (n + 1) // 2};\n" if n % 4 == 0 else "") for n in range(nodes))
    labels = "".join(f'n{n} [label="node {n}|a{n % 9}"];' for n in range(nodes))
    path.write_text(f"digraph g {{ node [shape=record];\n{labels}\n{edges}}}\n")


def page(path, shapes):
    """PostScript: procedures, dictionaries, curves and text."""
    text = ["%!PS\n/words 997 dict def /Helvetica findfont 9 scalefont setfont\n"
            "/shape { 4 dict begin /n exch def /x n 7919 mul 560 mod def /y n 104729 mul 800 mod def\n"
            " words n 997 mod [ n x y (shape ) n 20 string cvs ] put gsave x y translate n 97 mod 97 div 1 1 sethsbcolor newpath 0 0 moveto\n"
            " n 50 mod 10 n 70 mod 20 40 n 31 mod curveto closepath fill 0 setgray 0 -3 moveto n 20 string cvs show grestore end } bind def\n"]
    text += [f"0 1 {shapes - 1} {{ shape }} for showpage\n"] * 6
    path.write_text("".join(text))


def pdf(path, pages, lines):
    """A document of text and curves, its objects one by one and not packed."""
    objects = ["<</Type/Catalog/Pages 2 0 R>>", None, "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids = []
    for at in range(pages):
        seed, content = at + 1, ["BT /F 9 Tf 11 TL 40 800 Td\n"]
        for line in range(lines):
            seed = seed * 16807 % 2147483647
            content.append(f"(page {at} line {line}: word {seed % 5000} of {seed % 211}) '\n")
        content.append("ET\n" + "".join(f"{n * 7919 % 560} {n * 31 % 800} m {n % 90} {n % 70} {n % 50} {n * 3 % 200} {n % 560} {n * 7 % 800} c S\n" for n in range(lines)))
        text = "".join(content)
        objects.append(f"<</Length {len(text)}>>stream\n{text}endstream")
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F 3 0 R>>>>/Contents {len(objects)} 0 R>>")
    objects[1] = f"<</Type/Pages/Count {pages}/Kids[{' '.join(kids)}]>>"
    out, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects):
        places.append(len(out))
        out += f"{number + 1} 0 obj {text} endobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    path.write_text(f"{out}xref\n0 {len(places) + 1}\n0000000000 65535 f \n{table}trailer<</Root 1 0 R/Size {len(places) + 1}>>\nstartxref\n{len(out)}\n%%EOF\n")


def scene(path, things):
    balls = "".join(f"sphere {{ <{n % 17 - 8}, {n * 7 % 11 - 5}, {n * 31 % 23}>, {0.2 + n % 5 / 9} pigment {{ rgb <{n % 3 / 3}, {n % 5 / 5}, {n % 7 / 7}> }} finish {{ reflection 0.2 }} }}\n" for n in range(things))
    mesh = "".join(f"triangle {{ <{n % 40 - 20}, {n * 7 % 13 - 9}, {n // 40}>, <{n % 40 - 19}, -8, {n // 40}>, <{n % 40 - 20}, -8, {n // 40 + 1}> }}\n" for n in range(things * 8))
    path.write_text(f"camera {{ location <0, 4, -18> look_at <0, 0, 8> }} light_source {{ <20, 30, -20> rgb 1 }}\n{balls}mesh {{ {mesh} pigment {{ rgb <0.5, 0.6, 0.7> }} }}\n")


def office(path, rows):
    """A text document with headings, paragraphs and a table, as an office program reads it."""
    text = "".join(f"<h2>Part {n}</h2><p>It has <b>{n * 7919 % 997}</b> words, and <i>{n % 31}</i> of them are known. {'More is said of it elsewhere. ' * (n % 9)}</p>" for n in range(rows // 4))
    cells = "".join(f"<tr><td>{n}</td><td>row {n * 104729 % 1000003}</td><td>{n / 7:.2f}</td></tr>" for n in range(rows))
    path.write_text(f"<html><head><title>Parts</title></head><body>{text}<table border=1>{cells}</table></body></html>")


def objects(folder, files, functions, assembler):
    """Files to be linked: functions in sections of their own that call each other, and strings to be merged."""
    names = []
    for at in range(files):
        text = []
        for n in range(functions):
            text.append(f".section .text.f{at}_{n},\"ax\",@progbits\n.globl f{at}_{n}\n.type f{at}_{n},@function\nf{at}_{n}: lea n{n}(%rip),%rdi\n"
                        f"call f{(at + 1) % files}_{n * 7 % functions}@PLT\nret\n.size f{at}_{n},.-f{at}_{n}\n"
                        f".section .rodata.str1.1,\"aMS\",@progbits,1\nn{n}: .asciz \"name {n * 7919 % 9973} of file {at % 4}\"\n")
        source = folder / f"link{at}.s"
        source.write_text("".join(text))
        names.append(f"link{at}.o")
        assembler("as", source, "-o", folder / names[-1])
    return names


def linker(table, quiet):
    if shutil.which("ld.lld") and shutil.which("as"):
        names = objects(table.folder, 32, 8000, quiet)
        table.add("lld", ["ld.lld", "--threads=2", "-O2", "-e", "f0_0", "-o", "linked", *names], threads=2)


def computation(table):
    folder = table.folder
    table.script("octave", ["octave-cli", "--norc", "--no-history", "-q"], "parts.m", OCTAVE, env={"HOME": str(folder), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    table.script("R", ["Rscript", "--vanilla"], "frames.R", R, env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    table.add("z3-jobs", ["z3", "jobs.smt2"], lambda: problem(folder / "jobs.smt2", 40))
    table.add("dot", ["dot", "-Tsvg", "parts.dot"], lambda: graph(folder / "parts.dot", 1100))
    table.script("ruby-words", ["ruby", "--disable-gems"], "words.rb", RUBY)


def renderers(table):
    folder = table.folder
    table.add("ghostscript", ["gs", "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", "-sDEVICE=ppmraw", "-r150", "-sOutputFile=-", "page.ps"], lambda: page(folder / "page.ps", 9000))
    table.add("pdftoppm", ["pdftoppm", "-r", "60", "pages.pdf"], lambda: pdf(folder / "pages.pdf", 12, 300))
    table.add("povray", ["povray", "+Iballs.pov", "+O-", "+FP", "+W400", "+H300", "-D", "-GA", "+WT2"], lambda: scene(folder / "balls.pov", 4000), threads=2, env={"HOME": str(folder)})


def documents(table):
    folder = table.folder
    table.add("qpdf", ["qpdf", "--deterministic-id", "--object-streams=generate", "--linearize", "many.pdf", "-"], lambda: pdf(folder / "many.pdf", 3000, 40))
    table.add("7z", ["7z", "a", "-mmt=2", "-mx=5", "-so", "-txz", "archive.xz", "archive.log"], lambda: inputs.words(folder / "archive.log", 40000), threads=2)
    profile = folder / "office"
    table.add("soffice", ["soffice", f"-env:UserInstallation=file://{profile}", "--headless", "--convert-to", "txt:Text", "--outdir", "converted", "parts.html"],
              lambda: office(folder / "parts.html", 600), threads=2, env={"HOME": str(folder)})


def language_servers(table):
    for name in ("clangd", "clangd-14", "clangd-16", "clangd-19"):
        if shutil.which(name):
            table.add("clangd", [name, "--check=words.cpp", "--log=error", "-j=2"], threads=2, env={"HOME": str(table.folder), "XDG_CACHE_HOME": str(table.folder / "cache")})
            return


def wider(table, quiet):
    before = set(table.found)
    linker(table, quiet)
    for part in (computation, renderers, documents, language_servers):
        part(table)
    assert set(table.found) - before <= set(NAMES), table.found
