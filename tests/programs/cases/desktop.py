# SPDX-License-Identifier: MIT
"""What people do at a desk: pictures, sound, documents, a browser. Small files are made here."""
import re
import struct
import zlib

from harness import program, text_file


def picture(path, width=640, height=400):
    """A PNG file with some structure, always the same."""
    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in ((x * y) & 255, (x ^ y) & 255, (x + 2 * y) & 255)) for y in range(height))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks))


def sound(path, seconds=4):
    samples = b"".join(struct.pack("<h", ((i * i // 50) % 40000) - 20000) for i in range(44100 * seconds))
    path.write_bytes(b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 44100, 88200, 2, 16) + b"data" + struct.pack("<I", len(samples)) + samples)


@program({"gm": "graphicsmagick"}, torture=True, modes=True)
def graphicsmagick(box):
    picture(box.dir / "a.png")
    box.run("gm", "convert", "a.png", "-resize", "300x300", "-blur", "2x1", "-rotate", "17", "b.ppm", timeout=120)
    box.run("gm", "convert", "a.png", "-quality", "80", "c.jpg", timeout=120)
    box.run("gm", "identify", "-format", "%w %h %q\\n", "b.ppm", "c.jpg")
    box.result("b.ppm", "c.jpg")


@program({"dot": "graphviz", "neato": "graphviz"}, torture=True, modes=True)
def graphviz(box):
    (box.dir / "x.dot").write_text("digraph g { rankdir=LR; " + "".join(f"n{i} -> n{i * 7919 % 200} [label=\"e{i}\"]; " for i in range(260)) + "}")
    box.run("dot", "-Tplain", "x.dot", "-o", "out", timeout=240)
    box.run("dot", "-Tsvg", "x.dot", "-o", "out.svg", timeout=240)
    box.result("out", "out.svg")


@program({"pdflatex": "texlive-latex-base", "pdftotext": "poppler-utils", "pdftoppm": "poppler-utils"}, torture=True, modes=True)
def latex(box):
    """A document of a hundred pages, its text, and a page as a picture."""
    body = "".join("\\section{S%d} %s \\\\ \\begin{tabular}{ll} a & %d \\\\ b & c \\end{tabular}\n\n" % (i, "Words of a paragraph and $x_{1}^2 + \\int_0^1 f(t)\\,dt$. " * 12, i)
                   for i in range(200))
    (box.dir / "x.tex").write_text("\\documentclass{article}\\pdfinfoomitdate=1\\pdftrailerid{}\\pdfsuppressptexinfo=-1\\begin{document}\\tableofcontents " + body + "\\end{document}")
    box.run("pdflatex", "-interaction=batchmode", "x.tex", stdout=False, timeout=240)
    box.result("x.pdf")
    box.run("pdftotext", "-layout", "x.pdf", "-", timeout=120)
    box.run("pdftoppm", "-r", "50", "-f", "3", "-l", "6", "x.pdf", "page", timeout=120)
    box.run("bash", "-c", "cat page* | sha256sum")


@program({"pandoc": "pandoc"}, torture=True, modes=True)
def pandoc(box):
    """A Haskell program: its own heap, and malloc for what it calls."""
    (box.dir / "x.md").write_text("".join(f"# Section {i}\n\nSome *text* with `code` and a [link](x{i}).\n\n- a\n- b\n\n| a | b |\n|---|---|\n| {i} | c |\n\n" for i in range(150)))
    for kind in ("html", "latex", "rst"):
        box.run("pandoc", "-t", kind, "x.md", timeout=120)


@program({"sox": "sox"}, torture=True, modes=True)
def sox(box):
    sound(box.dir / "a.wav")
    box.run("sox", "-D", "-R", "a.wav", "-b", "16", "b.wav", "rate", "-v", "48000", "reverb", "pitch", "200", "tempo", "1.3", timeout=120)
    box.result("b.wav")
    box.run("sox", "a.wav", "-n", "spectrogram", "-r", "-o", "s.png", may_fail=True, timeout=120)


@program({"flac": "flac", "lame": "lame", "oggenc": "vorbis-tools"}, torture=True, modes=True)
def sound_packers(box):
    sound(box.dir / "a.wav")
    box.run("flac", "-s", "-8", "a.wav", "-o", "a.flac", timeout=60)
    box.run("flac", "-s", "-d", "-c", "a.flac", timeout=60)
    box.run("lame", "--quiet", "-h", "a.wav", "a.mp3", timeout=60)
    box.run("oggenc", "-Q", "-s", "1", "a.wav", "-o", "a.ogg", timeout=60)
    box.result("a.flac", "a.mp3", "a.ogg")


@program({"optipng": "optipng", "cwebp": "webp"}, torture=True, modes=True)
def picture_packers(box):
    picture(box.dir / "a.png", 320, 200)
    box.run("optipng", "-quiet", "-o2", "a.png", "-out", "b.png", timeout=120)
    box.run("cwebp", "-quiet", "-m", "4", "-mt", "a.png", "-o", "a.webp", timeout=120)
    box.result("b.png", "a.webp")


@program({"exiftool": "libimage-exiftool-perl"}, torture=True, modes=True)
def exiftool(box):
    picture(box.dir / "a.png", 100, 100)
    box.run("exiftool", "-q", "-overwrite_original", "-Title=x", "-Comment=y", "a.png", timeout=60)
    box.run("exiftool", "-S", "-Title", "-Comment", "-ImageSize", "-j", "a.png", timeout=60)


@program({"hunspell": "hunspell", "aspell": "aspell"}, torture=True, modes=True)
def spelling(box):
    (box.dir / "text").write_text("\n".join(f"the qick brown fox jumps ovr lazzy dog number{i} speling" for i in range(6)))
    box.run("hunspell", "-d", "en_US", "-a", stdin=box.dir / "text", timeout=120)
    box.run("aspell", "-d", "en", "-a", stdin=box.dir / "text", timeout=120)


@program({"espeak-ng": "espeak-ng"}, torture=True, modes=True)
def espeak(box):
    text_file(box.dir / "text", 10)
    box.run("espeak-ng", "-f", "text", "-w", "out.wav", timeout=60)
    box.result("out.wav")
    box.run("espeak-ng", "-q", "-x", "-f", "text", timeout=60)


@program({"qpdf": "qpdf", "mutool": "mupdf-tools"}, torture=True, modes=True)
def pdf_tools(box):
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [" + " ".join(f"{3 + 2 * i} 0 R" for i in range(40)) + "] /Count 40 >>"]
    for i in range(40):
        content = "".join(f"{x} {i} m {i * 3} {x * 2} l S BT /F1 9 Tf {x} {x} Td (text {x}) Tj ET\n" for x in range(60))
        objects += [f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents {4 + 2 * i} 0 R /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
                    f"<< /Length {len(content)} >>\nstream\n{content}endstream"]
    text, places = "%PDF-1.4\n", []
    for n, o in enumerate(objects, 1):
        places.append(len(text))
        text += f"{n} 0 obj\n{o}\nendobj\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n" + "".join(f"{place:010} 00000 n \n" for place in places)
    (box.dir / "x.pdf").write_text(f"{text}{table}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF\n")
    box.run("qpdf", "--deterministic-id", "--object-streams=generate", "--linearize", "x.pdf", "y.pdf", timeout=60)
    box.result("y.pdf")
    box.run("qpdf", "--qdf", "--deterministic-id", "--no-original-object-ids", "y.pdf", "-", timeout=60)
    box.run("mutool", "draw", "-q", "-r", "40", "-F", "ppm", "-o", "p%d.ppm", "y.pdf", "1-8", timeout=60)
    box.run("mutool", "draw", "-q", "-F", "stext", "y.pdf", timeout=60)
    box.result("p1.ppm", "p8.ppm")


@program({"ssconvert": "gnumeric"}, torture=True, modes=True)
def gnumeric(box):
    (box.dir / "x.csv").write_text("".join(f"{i},name{i * 7919 % 5003},=A{i}*2\n" for i in range(1, 4000)))
    box.run("ssconvert", "--recalc", "x.csv", "y.xlsx", stdout=False, timeout=120)
    box.run("ssconvert", "y.xlsx", "z.csv", stdout=False, timeout=120)
    box.result("z.csv")


@program({"povray": "povray"}, torture=True, modes=True)
def povray(box):
    (box.dir / "x.pov").write_text("camera { location <0, 3, -9> look_at 0 } light_source { <9, 9, -9> rgb 1 }\n" + "".join(f"sphere {{ <{i % 10 - 5}, {i // 10 - 5}, {i % 7}>, 0.4 pigment {{ rgb <{i / 100}, 0.5, 0.2> }} finish {{ reflection 0.3 }} }}\n" for i in range(100)))
    box.run("povray", "+Ix.pov", "+Oout.ppm", "+FP", "+W160", "+H120", "-D", "-GA", "+WT2", "-J", stdout=False, timeout=120)
    box.run("bash", "-c", "tail -c 57600 out.ppm | sha256sum")  # before it, the time of day


@program({"tesseract": "tesseract-ocr", "gm": "graphicsmagick", "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf": "fonts-dejavu-core"}, torture=True, modes=True)
def tesseract(box):
    box.run("gm", "convert", "-size", "900x200", "xc:white", "-font", "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "-pointsize", "36", "-fill", "black", "-draw", "text 20,60 'The quick brown fox' text 20,130 'jumps over 12345'", "a.png", timeout=60)
    box.run("tesseract", "a.png", "-", "--psm", "6", env={"OMP_THREAD_LIMIT": "2"}, timeout=120)


@program({"djvutxt": "djvulibre-bin", "c44": "djvulibre-bin"}, torture=True, modes=True)
def djvu(box):
    (box.dir / "a.ppm").write_bytes(b"P6 400 300 255\n" + bytes((x * y) & 255 for y in range(300) for x in range(1200)))
    box.run("c44", "a.ppm", "a.djvu", timeout=60)
    box.result("a.djvu")
    box.run("ddjvu", "-format=ppm", "a.djvu", "b.ppm", timeout=60)
    box.result("b.ppm")


@program({"soffice": "libreoffice-calc-nogui"}, torture=True, modes=True)
def libreoffice(box):
    """Without a window: a table to a sheet, and back."""
    (box.dir / "x.csv").write_text("".join(f"{i},name{i * 7919 % 5003},{i * 2}\n" for i in range(1, 3000)))
    office = ["soffice", f"-env:UserInstallation=file://{box.dir}/profile", "--headless", "--norestore", "--convert-to"]
    box.run(*office, "ods", "x.csv", stdout=False, timeout=240)
    (box.dir / "x.csv").unlink()
    box.run(*office, "csv", "x.ods", stdout=False, timeout=240)
    box.result("x.csv")


@program({"chromium": "chromium"}, torture=True, reports=False)
def chromium(box):
    """The headless shell of a browser, with a script that builds a page. Its own malloc serves most of it; it does not run under strace, so in no mode."""
    (box.dir / "x.html").write_text("<body><script>let s = 0; for (let i = 0; i < 2000; i++) { const d = document.createElement('p'); d.textContent = 'n' + i * 7919 % 5003; document.body.append(d); s += d.textContent.length } document.title = s; document.body.append(JSON.stringify([...Array(500)].map((_, i) => i.toString(36)))) </script></body>")
    box.run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={box.dir}/profile", "--no-first-run", "--disable-background-networking",
            "--dump-dom", f"file://{box.dir}/x.html", stdout=lambda text: re.sub(r"\s+", " ", text), timeout=240)


@program({"gdalinfo": "gdal-bin", "gdal_translate": "gdal-bin"}, torture=True, modes=True)
def gdal(box):
    picture(box.dir / "a.png", 300, 200)
    box.run("gdal_translate", "-q", "-of", "GTiff", "-co", "COMPRESS=DEFLATE", "-co", "TILED=YES", "-co", "BLOCKXSIZE=64", "-co", "BLOCKYSIZE=64", "a.png", "b.tif", timeout=60)
    box.run("gdalwarp", "-q", "-ts", "150", "100", "-r", "cubic", "-t_srs", "EPSG:4326", "-s_srs", "EPSG:4326", "b.tif", "c.tif", timeout=60, may_fail=True)
    box.run("gdalinfo", "-checksum", "-stats", "b.tif", timeout=60)
    box.result("b.tif")


@program({"h5dump": "hdf5-tools", "h5import": "hdf5-tools"}, torture=True, modes=True)
def hdf5(box):
    (box.dir / "x.txt").write_text(" ".join(str(i * 7919 % 5003) for i in range(60000)) + "\n")
    (box.dir / "c.txt").write_text("PATH /g/d\nINPUT-CLASS TEXTIN\nRANK 2\nDIMENSION-SIZES 300 200\nOUTPUT-CLASS IN\nOUTPUT-SIZE 32\nCHUNKED-DIMENSION-SIZES 30 20\nCOMPRESSION-TYPE GZIP\nCOMPRESSION-PARAM 6\n")
    box.run("h5import", "x.txt", "-c", "c.txt", "-o", "x.h5", stdout=False, timeout=60)
    box.run("h5dump", "x.h5", timeout=60)


@program({"w3m": "w3m", "lynx": "lynx"}, torture=True, modes=True)
def text_browsers(box):
    (box.dir / "x.html").write_text("<html><body><table border=1>" + "".join(f"<tr><td>{i}<td><b>name {i * 7919 % 5003}</b><td><a href=x{i}>l</a></tr>" for i in range(1500)) + "</table></body></html>")
    box.run("w3m", "-dump", "-cols", "100", "x.html", timeout=60)
    box.run("lynx", "-dump", "-width=100", "-nolist", "x.html", timeout=60)


@program({"tmux": "tmux"}, torture=True, modes=True)
def tmux(box):
    """A server with a terminal in it, asked for what the terminal shows."""
    run = ["tmux", "-S", box.dir / "s", "-f", "/dev/null"]
    box.run(*run, "new-session", "-d", "-x", "80", "-y", "25", "sh -c 'seq 3000; echo done; sleep 20'", stdout=False)
    box.run("bash", "-c", "for i in $(seq 100); do tmux -S s capture-pane -p | grep -q done && break; sleep 0.1; done; tmux -S s capture-pane -p -S -500 | tail -30; tmux -S s kill-server")
