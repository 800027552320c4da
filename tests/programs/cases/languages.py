# SPDX-License-Identifier: MIT
"""More languages: each with a heap and a collector of its own on top of malloc. A loop that makes and drops objects; what it prints is compared."""
import harness

GUILE = r'''(define h (make-hash-table))
(let loop ((i 0)) (when (< i 300000) (let ((k (modulo (* i 7919) 5003))) (hash-set! h k (cons i (if (< (length (hash-ref h k '())) 20) (hash-ref h k '()) '())))) (loop (+ i 1))))
(display (hash-fold (lambda (k v a) (+ a (* k (length v)))) 0 h)) (newline)
(display (string-length (number->string (let f ((n 2000)) (if (= n 0) 1 (* n (f (- n 1)))))))) (newline)'''
ERLANG = """F = fun(I) -> lists:sum([length(integer_to_list(I * J)) || J <- lists:seq(1, 300)]) end,
Me = self(), [spawn(fun() -> Me ! F(I) end) || I <- lists:seq(1, 500)],
io:format("~p~n", [lists:sum([receive X -> X end || _ <- lists:seq(1, 500)])]),
T = ets:new(t, []), [ets:insert(T, {I rem 5003, list_to_binary(lists:duplicate(I rem 200, $x))}) || I <- lists:seq(1, 100000)],
io:format("~p ~p~n", [ets:info(T, size), erlang:phash2(lists:sort(ets:tab2list(T)))]), halt()."""
OCAML = r'''let () =
  let h = Hashtbl.create 100 in
  for i = 1 to 400000 do
    let k = i * 7919 mod 50021 in
    let s = (try Hashtbl.find h k with Not_found -> "") ^ "x" ^ string_of_int i in
    if String.length s < 200 then Hashtbl.replace h k s else Hashtbl.remove h k
  done;
  let l = List.sort compare (Hashtbl.fold (fun k v l -> (k, v) :: l) h []) in
  Printf.printf "%d %d %s\n" (List.length l) (Hashtbl.hash l) (Digest.to_hex (Digest.string (String.concat "," (List.map snd l))));
  let b = Bigarray.Array1.create Bigarray.int Bigarray.c_layout 1000000 in
  Bigarray.Array1.fill b 7; Printf.printf "%d\n" b.{999999}
'''
LISP = r'''(let ((h (make-hash-table)))
  (dotimes (i 300000) (let ((k (mod (* i 7919) 5003))) (setf (gethash k h) (cons i (if (< (length (gethash k h)) 20) (gethash k h) nil)))))
  (let ((sum 0)) (maphash (lambda (k v) (incf sum (* k (length v)))) h) (format t "~a~%" sum))
  (format t "~a~%" (length (write-to-string (let ((n 1)) (dotimes (i 2000 n) (setf n (* n (+ i 1)))))))))
'''
AWK = '{ for (i = 1; i <= NF; i++) { n[$i]++; at[$i] = at[$i] substr(NR, 1, 3); if (length(at[$i]) > 200) delete at[$i] } }\nEND { for (w in n) { s += n[w]; l += length(at[w]) } print s, length(n), l; t = sprintf("%3000d", 5); gsub(/ /, "ab", t); print length(t) }'
MAWK = AWK.replace("length(n), ", "")
R = r'''set.seed(1); x <- list(); for (i in 1:30000) x[[i %% 997 + 1]] <- rep(i, i %% 50)
cat(sum(sapply(x, length)), sum(unlist(x)), "\n"); m <- matrix(1:250000 / 7, 500); cat(format(sum(m %*% t(m)), digits = 10), "\n")
d <- data.frame(a = rep(1:100, 200), b = paste0("s", 1:20000)); cat(nrow(merge(d, d[1:500, ], by = "b")), "\n"); cat(substr(paste(sort(d$b), collapse = ""), 1, 60), "\n")
invisible(gc())'''
OCTAVE = "a = cell(1, 500); for i = 1:20000, a{mod(i * 7919, 500) + 1} = ones(1, mod(i, 60)) * i; end; disp(sum(cellfun(@numel, a))); m = reshape(1:90000, 300, 300) / 7; printf('%.6e\\n', sum(sum(m * m'))); s = ''; for i = 1:3000, s = [s sprintf('%d,', i)]; end; disp(length(regexprep(s, '1', 'one')))"
LUAJIT = 'local t, n = {}, 0 for i = 1, 600000 do local k = i * 7919 % 100003 t[k] = i % 3 ~= 0 and {i, tostring(i)} or nil end for k = 0, 100002 do if t[k] then n = n + t[k][1] + #t[k][2] end end print(n, #string.rep("abc", 100000):gsub("b", "xy"))'
FORTH = ": fill-all 2000 0 do i 1+ 137 * allocate throw dup i over c! free throw loop ; fill-all : grow 100 allocate throw 200 1 do i 1000 * resize throw loop free throw ; grow .\" done\" cr bye"
PROLOG = ":- length(L, 200000), foldl([X, A, B]>>(X is A * 7919 mod 50021, B is A + 1), L, 1, _), sort(0, @>=, L, S), length(S, N), sumlist(L, T), format('~w ~w~n', [N, T]), numlist(1, 50000, M), atomic_list_concat(M, ',', A), atom_length(A, K), format('~w~n', [K]), forall(between(1, 20000, I), assertz(f(I, I))), aggregate_all(count, f(_, _), C), format('~w~n', [C]), halt."
PARI = "v = vector(2000, i, factor(i^3 + 1)); print(sum(i = 1, 2000, #v[i]~)); print(#digits(3000!)); m = matrix(60, 60, i, j, (i * j) % 17 + (i == j) * 100); print(matdet(m)); print(polroots(x^7 - 3 * x + 1)[1] != 0); quit"
BC = "scale = 400\na(1) * 4\ne(1)\nfor (i = 1; i < 2000; i++) x = x * 3 + i\nlength(x)\nfor (i = 0; i < 2000; i++) y[i] = i ^ 20\nlength(y[1999])\n"
JQ = "[range(60000) | {k: (. * 7919 % 5003 | tostring), v: .}] | group_by(.k) | map({(.[0].k): (map(.v) | add)}) | add | [length, (to_entries | map(.value) | add), (tojson | length)]"
KSH = 'typeset -A a; for ((i = 0; i < 60000; i++)); do k=$((i * 7919 % 5003)); a[$k]+="x$i"; [ ${#a[$k]} -lt 100 ] || unset "a[$k]"; done; n=0; for k in "${!a[@]}"; do n=$((n + ${#a[$k]})); done; echo ${#a[@]} $n; x=$(seq 30000); echo ${#x}; echo "$x" | sort -rn | head -2'
ZSH = 'typeset -A a; for ((i = 0; i < 60000; i++)); do k=$((i * 7919 % 5003)); a[$k]+="x$i"; (( ${#a[$k]} < 100 )) || unset "a[$k]"; done; n=0; for k in ${(k)a}; do n=$((n + ${#a[$k]})); done; echo ${#a} $n; x=$(seq 30000); echo ${#x}; print -l ${(On)${(f)x}} | head -2'
FISH = "set -l x (seq 3000); for i in $x; set -a y (math $i \\* 2); end; count $y; string join , $y | string length; set -g z \"\"; for n in (seq 2000); set z $z$n; end; string length -- $z"
JAVA = """import java.util.*; import java.util.zip.*;
public class X { public static void main(String[] a) throws Exception {
  Map<Integer, String> m = new HashMap<>(); for (int i = 0; i < 400000; i++) m.merge(i * 7919 % 50021, "x" + i, (p, q) -> p.length() < 100 ? p + q : q);
  long n = 0; for (String s : m.values()) n += s.length(); System.out.println(m.size() + " " + n);
  Thread[] t = new Thread[4]; long[] sums = new long[4];
  for (int k = 0; k < 4; k++) { int w = k; t[k] = new Thread(() -> { Deflater d = new Deflater(); byte[] in = new byte[200000], out = new byte[300000]; for (int i = 0; i < in.length; i++) in[i] = (byte) (i * w % 251); d.setInput(in); d.finish(); sums[w] = d.deflate(out); d.end(); java.nio.ByteBuffer.allocateDirect(1 << 20).put(5, (byte) 1); }); t[k].start(); }
  for (Thread x : t) x.join(); System.out.println(Arrays.toString(sums)); } }
"""
NUMPY = "import numpy as np\na = [np.arange(i % 3000) * 1.5 for i in range(3000)]\nprint(sum(float(x.sum()) for x in a))\nm = np.arange(160000.).reshape(400, 400) % 17\nprint(float((m @ m.T).sum()), float(np.sort(m, axis=None)[::7].sum()), np.fft.fft(m).shape, len(np.unique(m)))\nz = np.zeros((4000, 4000)); z[::100] = 1; print(float(z.sum())); s = np.array(['x%d' % i for i in range(50000)]); print(len(np.char.upper(s)))"
ELISP = "(let ((h (make-hash-table)) (n 0)) (dotimes (i 200000) (let ((k (mod (* i 7919) 5003))) (puthash k (cons i (if (< (length (gethash k h)) 20) (gethash k h))) h))) (maphash (lambda (k v) (setq n (+ n (* k (length v))))) h) (princ (format \"%d\\n\" n)) (with-temp-buffer (dotimes (i 20000) (insert (format \"line %d\\n\" i))) (goto-char (point-min)) (while (re-search-forward \"1\\\\([0-9]\\\\)\" nil t) (replace-match \"<\\\\1>\")) (princ (format \"%d %s\\n\" (buffer-size) (md5 (buffer-string))))) (princ (length (number-to-string (let ((x 1)) (dotimes (i 500 x) (setq x (* x (1+ i)))))))))"


def script(name, needs, text, *command, file="script", timeout=60, stdin=False):
    """A program that runs one script, from a file or from its input."""
    def function(box):
        (box.dir / file).write_text(text)
        if needs_words(command):
            harness.text_file(box.dir / "words", 30_000)
        box.run(*command, stdin=box.dir / file if stdin else None, timeout=timeout)
    function.__name__ = name
    harness.program(needs, torture=True, modes=True)(function)


def needs_words(command):
    return "words" in command


script("guile", {"guile": "guile-3.0"}, GUILE, "guile", "--no-auto-compile", "-s", "script")
script("erlang", {"erl": "erlang-base"}, "main() ->\n" + ERLANG, "erl", "-noshell", "-eval", ERLANG)
script("ocaml", {"ocaml": "ocaml-nox"}, OCAML, "ocaml", "script")
script("racket", {"racket": "racket"}, '(define h (make-hash)) (for ([i 300000]) (hash-update! h (modulo (* i 7919) 5003) (lambda (l) (if (< (length l) 20) (cons i l) (list i))) null)) (displayln (for/sum ([(k v) h]) (* k (length v)))) (displayln (string-length (number->string (for/product ([i (in-range 1 2000)]) i))))', "racket", "-e", '(load "script")')
script("sbcl", {"sbcl": "sbcl"}, LISP, "sbcl", "--script", "script")
script("clisp", {"clisp": "clisp"}, LISP, "clisp", "-q", "-norc", "script")
script("gawk", {"gawk": "gawk"}, AWK, "gawk", "-f", "script", "words")
script("mawk", {"mawk": "mawk"}, MAWK, "mawk", "-f", "script", "words")
script("r_language", {"Rscript": "r-base-core"}, R, "Rscript", "--vanilla", "script", timeout=120)
script("octave", {"octave-cli": "octave"}, OCTAVE, "octave-cli", "--no-gui", "--quiet", "--no-history", "--no-init-file", "script.m", file="script.m", timeout=120)
script("luajit", {"luajit": "luajit"}, LUAJIT, "luajit", "script")
script("gforth", {"gforth": "gforth"}, FORTH, "gforth", "script")
script("prolog", {"swipl": "swi-prolog-nox"}, PROLOG, "swipl", "-q", "-f", "script")
script("pari", {"gp": "pari-gp"}, PARI, "gp", "-q", "-f", stdin=True)
script("bc", {"bc": "bc"}, BC, "bc", "-lq", "script", stdin=False)
script("jq", {"jq": "jq"}, JQ, "jq", "-nf", "script")
script("ksh", {"ksh": "ksh"}, KSH, "ksh", "script")
script("zsh", {"zsh": "zsh"}, ZSH, "zsh", "-f", "script")
script("fish", {"fish": "fish"}, FISH, "fish", "--no-config", "script")
script("numpy", {"/usr/lib/python3/dist-packages/numpy": "python3-numpy"}, NUMPY, "/usr/bin/python3", "script", timeout=120)
script("emacs", {"emacs": "emacs-nox"}, ELISP, "emacs", "-Q", "--batch", "-l", "script", timeout=120)
script("gnuplot", {"gnuplot": "gnuplot-nox"}, "set terminal svg; set samples 5000; set output 'out.svg'; plot for [i=1:20] sin(i * x) / i; unset output; print system('grep -c path out.svg')", "gnuplot", "script")


@harness.program({"java": "openjdk-17-jre-headless", "javac": "openjdk-17-jdk-headless"}, torture=True, modes=True)
def java(box):
    """Its own heap lies in mappings; the compiler's threads, the garbage collector and zip use malloc."""
    (box.dir / "X.java").write_text(JAVA)
    box.run("javac", "-J-XX:-UsePerfData", "X.java", timeout=120)
    box.run("java", "-Xmx200m", "-XX:-UsePerfData", "-cp", box.dir, "X", timeout=120)


@harness.program({"tcc": "tcc"}, torture=True, modes=True)
def tcc(box):
    """A compiler that runs what it compiled, in its own process."""
    (box.dir / "x.c").write_text("#include <stdio.h>\n#include <stdlib.h>\n" + "".join(f"int f{i}(int a) {{ char *p = malloc(a + {i}); int r = p != 0; free(p); return r + a % {i + 1}; }}\n" for i in range(1500))
                                 + "int main(void) { int s = 0; " + "".join(f"s += f{i}({i * 7});" for i in range(1500)) + ' printf("%d\\n", s); return 0; }\n')
    box.run("tcc", "-run", "x.c")
    box.run("tcc", "-c", "x.c", "-o", "x.o")
    box.result("x.o")
