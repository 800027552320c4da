// SPDX-License-Identifier: MIT
//! What traces are called: %p is the process id, %e the name of the program, %t the time, %% a percent sign.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use quarry_synth::convert::output::Packing;

use super::aside::Aside;
use crate::failure;

/// What traces are called unless somebody says otherwise.
const DEFAULT: &str = "quarry.%e.%p.qtr";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Process,
    Program,
}

/// The name that the traces of one recording have.
#[derive(Debug)]
pub struct Name {
    directory: PathBuf,
    pieces: Vec<Piece>,
    /// Files of such a name that were there when room was made.
    before: Vec<PathBuf>,
}

impl Name {
    /// What the user said, or else the default. All that can be known to go wrong goes wrong here: nothing has run yet, and nothing
    /// has changed.
    pub fn new(option: Option<&Path>, follow: bool) -> anyhow::Result<Self> {
        let given = option.unwrap_or(Path::new(DEFAULT));
        if given == Path::new("-") {
            let why = "a trace is written in place, so it must be a file; name one with -o FILE, and quarry \
                       convert writes to standard output";
            return Err(failure::usage(format!("-o -: {why}")));
        }
        let shown = given.display();
        let (Some(file), false) = (given.file_name(), given.as_os_str().as_bytes().ends_with(b"/")) else {
            return Err(failure::usage(format!("-o {shown}: is a directory; name a file in it")));
        };
        let pieces = pieces(file).map_err(|why| failure::usage(format!("-o {shown}: {why}")))?;
        if follow && !pieces.contains(&Piece::Process) {
            let why = "with --follow every process has a trace of its own, so %p (the process id) must stand in the name";
            return Err(failure::usage(format!("-o {shown}: {why}")));
        }
        let parent = given.parent().filter(|parent| !parent.as_os_str().is_empty());
        // The program may change its directory.
        let directory =
            std::path::absolute(parent.unwrap_or(Path::new("."))).context("the current directory")?;
        let name = Self { directory, pieces, before: Vec::new() };
        name.check_directory()?;
        if let Some(path) = name.fixed() {
            check_replaceable(&path)?;
        }
        Ok(name)
    }

    /// Have the traces of an earlier recording out of the way, for now. What else is there under such a name stays, and is
    /// not this recording's.
    pub fn make_room(&mut self) -> anyhow::Result<Aside> {
        let mut older = Vec::new();
        if let Some(path) = self.fixed() {
            // With those of its later programs.
            let later = self.files().into_iter().filter(|file| *file != path && is_trace(file));
            older.extend(path.exists().then(|| path.clone()).into_iter().chain(later));
        }
        let aside = Aside::of(&self.directory, older)?;
        self.before = self.files();
        Ok(aside)
    }

    /// The directory of the traces.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name, if it does not depend on the process.
    fn fixed(&self) -> Option<PathBuf> {
        match &self.pieces[..] {
            [Piece::Text(name)] => Some(self.directory.join(OsStr::from_bytes(name))),
            _ => None,
        }
    }

    /// Files can be made in the directory, or it is an error.
    fn check_directory(&self) -> anyhow::Result<()> {
        let directory = self.directory.display();
        match fs::metadata(&self.directory) {
            Err(error) => anyhow::bail!(
                "cannot write traces to {directory}: {error}; make the directory, or say -o FILE"
            ),
            Ok(about) if !about.is_dir() => {
                anyhow::bail!("cannot write traces to {directory}: it is not a directory; say -o FILE")
            }
            Ok(_) => {}
        }
        // Without a name, where the system can do that: whatever ends us, it leaves nothing.
        let probe = tempfile::tempfile_in(&self.directory);
        probe
            .map(drop)
            .with_context(|| format!("cannot write traces to {directory}; name another place with -o FILE"))
    }

    /// The same for the recorder: in its words, of which a comma is not one.
    pub fn for_recorder(&self) -> OsString {
        let mut text = escaped(self.directory.as_os_str().as_bytes());
        text.push(b'/');
        for piece in &self.pieces {
            match piece {
                Piece::Text(bytes) => text.extend(escaped(bytes)),
                Piece::Process => text.extend(b"%p"),
                Piece::Program => text.extend(b"%e"),
            }
        }
        OsString::from_vec(text)
    }

    /// Traces of this name that were not there when room was made.
    pub fn found(&self) -> Vec<PathBuf> {
        let mut files = self.files();
        files.retain(|file| !self.before.contains(file));
        files
    }

    /// How traces of this name are packed when they are complete: as its ending says.
    pub fn packing(&self) -> Packing {
        match self.pieces.last() {
            // What is an ending alone is a hidden file without one.
            Some(Piece::Text(end)) => {
                Packing::of_name(Path::new(OsStr::from_bytes(&[b"x", &end[..]].concat())))
            }
            _ => Packing::Plain,
        }
    }

    /// The number of a program within its process, from the name of its trace.
    pub fn number(&self, file: &Path, process: i64) -> u64 {
        let file = file.file_name().unwrap_or_default();
        number(&self.pieces, file.as_bytes(), Some(process)).unwrap_or(1)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .filter(|entry| number(&self.pieces, entry.file_name().as_bytes(), None).is_some())
            .map(|entry| entry.path())
            .collect();
        files.sort();
        files
    }
}

/// A file name of the user's, in pieces. The time is put in here: it is that of the recording, not of a process.
fn pieces(name: &OsStr) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut bytes = name.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            text.push(byte);
            continue;
        }
        let piece = match bytes.next() {
            Some(b'%') => {
                text.push(b'%');
                continue;
            }
            Some(b't') => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                text.extend(now.as_secs().to_string().bytes());
                continue;
            }
            Some(b'p') => Piece::Process,
            Some(b'e') => Piece::Program,
            other => {
                let other = other.map_or(String::new(), |&b| char::from(b).to_string());
                return Err(format!(
                    "what is %{other}? There are %p (process id), %e (program), %t (seconds since 1970) and %%"
                ));
            }
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(piece);
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn escaped(bytes: &[u8]) -> Vec<u8> {
    let escape = |&byte: &u8| match byte {
        b',' => b"%c".to_vec(),
        b'%' => b"%%".to_vec(),
        byte => vec![byte],
    };
    bytes.iter().flat_map(escape).collect()
}

/// Which program of the process this is the name of a trace of, if it is one: the first has the name alone, later ones a
/// number behind it: .2, .3, ...
fn number(pieces: &[Piece], name: &[u8], process: Option<i64>) -> Option<u64> {
    let Some((first, rest)) = pieces.split_first() else {
        return if name.is_empty() { Some(1) } else { decimal(name.strip_prefix(b".")?) };
    };
    let behind = |n: usize| number(rest, &name[n..], process);
    match first {
        Piece::Text(text) => name.starts_with(text).then(|| behind(text.len()))?,
        Piece::Process => {
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let is = |n: usize| process.is_none_or(|process| name[..n] == *process.to_string().as_bytes());
            (1..=digits).filter(|&n| is(n)).find_map(behind)
        }
        Piece::Program => (1..=name.len()).find_map(behind),
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()
}

/// How a file begins that is a trace.
const TRACE: &[u8] = b"QTRB";

fn begin(path: &Path) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    quarry_input::Input::open(path)?.take(TRACE.len() as u64).read_to_end(&mut begin)?;
    Ok(begin)
}

/// A trace of an earlier recording: whole, packed, or of a program that was killed before there was a head, when the file is
/// empty or has zeros where the head would be.
fn is_replaceable(begin: &[u8]) -> bool {
    begin.is_empty() || begin == TRACE || begin.iter().all(|&byte| byte == 0)
}

fn is_trace(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file())
        && begin(path).is_ok_and(|begin| is_replaceable(&begin))
}

/// What is there already under the only name there is: an older trace can be replaced, nothing else.
fn check_replaceable(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    // A link to a file is that file, for this.
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.with_context(|| format!("cannot write the trace {shown}"))?,
    };
    if about.is_dir() {
        return Err(failure::usage(format!("-o {shown}: is a directory; name a file in it")));
    }
    if !about.is_file() {
        let why = "is no regular file; a trace is written in place, so name one that is, or one that is not there yet";
        return Err(failure::usage(format!("-o {shown}: {why}")));
    }
    let begin = begin(path).with_context(|| format!("cannot look at {shown}, which is there already"))?;
    if !is_replaceable(&begin) {
        anyhow::bail!(
            "{shown} is there already and is no trace, so it is not replaced; remove it, or say -o FILE"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quarry_synth::convert::output::{Output as Packed, Packing};

    use super::*;

    fn name(text: &str) -> Result<Vec<Piece>, String> {
        pieces(OsStr::new(text))
    }

    #[test]
    fn placeholders() {
        let text = |t: &str| Piece::Text(t.into());
        assert_eq!(name("a.qtr"), Ok(vec![text("a.qtr")]));
        assert_eq!(
            name("q.%e.%p%%"),
            Ok(vec![text("q."), Piece::Program, text("."), Piece::Process, text("%")])
        );
        let Ok(time) = name("%t") else { panic!() };
        assert!(matches!(&time[..], [Piece::Text(t)] if t.len() >= 10 && t.iter().all(u8::is_ascii_digit)));
        assert!(name("a%x").unwrap_err().contains("%x"));
        assert!(name("a%").is_err());
    }

    #[test]
    fn names_are_found_again() {
        let is =
            |template: &str, file: &str| number(&name(template).unwrap(), file.as_bytes(), None).is_some();
        assert!(is("a.qtr", "a.qtr") && is("a.qtr", "a.qtr.2") && is("a.qtr", "a.qtr.17"));
        assert!(
            !is("a.qtr", "a.qtr.")
                && !is("a.qtr", "a.qtr.x")
                && !is("a.qtr", "a.qtr2")
                && !is("a.qtr", "b.qtr")
        );
        assert!(is("q.%e.%p.qtr", "q.a.b.12.qtr") && is("q.%e.%p.qtr", "q.sh.1.qtr.3"));
        assert!(!is("q.%e.%p.qtr", "q..1.qtr") && !is("q.%e.%p.qtr", "q.sh.x.qtr"));
        assert!(is("%p%p", "12") && !is("%p%p", "1"));
    }

    #[test]
    fn later_programs_of_a_process_have_numbers() {
        let of = |template: &str, file: &str| {
            let name =
                Name { directory: PathBuf::new(), pieces: name(template).unwrap(), before: Vec::new() };
            name.number(&Path::new("x").join(file), 12)
        };
        assert_eq!([of("a.qtr", "a.qtr"), of("a.qtr", "a.qtr.2"), of("a.qtr", "a.qtr.12")], [1, 2, 12]);
        // What ends in a number of its own.
        assert_eq!(
            [of("t.5", "t.5"), of("t.5", "t.5.2"), of("t.%p", "t.12"), of("t.%p", "t.12.3")],
            [1, 2, 1, 3]
        );
        assert_eq!([of("%e.%p", "sh.3.12"), of("%e.%p", "sh.3.12.4"), of("%p.%e", "12.sh.2")], [1, 4, 2]);
    }

    #[test]
    fn the_recorder_gets_its_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a,b%c");
        fs::create_dir(&odd).unwrap();
        let name = Name::new(Some(&odd.join("x,%e%%.%p")), true).unwrap();
        let text = name.for_recorder().into_string().unwrap();
        assert!(text.ends_with("/a%cb%%c/x%c%e%%.%p"), "{text}");
        assert!(text.starts_with('/'));
    }

    #[test]
    fn only_new_files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::write(file("1.qtr"), "").unwrap();
        let mut name = Name::new(Some(&file("%p.qtr")), false).unwrap();
        name.make_room().unwrap().remove();
        for other in ["2.qtr", "2.qtr.2", "x.qtr"] {
            fs::write(file(other), "").unwrap();
        }
        assert_eq!(name.found(), [file("2.qtr"), file("2.qtr.2")]);
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let mut packed = Packed::new(Vec::new(), Packing::Zstd).unwrap();
        std::io::Write::write_all(&mut packed, bytes).unwrap();
        packed.finish().unwrap().0
    }

    #[test]
    fn only_traces_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.qtr");
        let packed = zstd(b"QTRB and so on");
        for content in [&b""[..], b"QTRB and so on", b"\0\0\0\0\0\0", &packed[..]] {
            fs::write(&file, content).unwrap();
            let mut name = Name::new(Some(&file), false).unwrap();
            assert!(file.exists());
            name.make_room().unwrap().remove();
            assert!(!file.exists());
        }
        // With those of later programs; not with what is none.
        let others = [("a.qtr.2", ""), ("a.qtr.3", "a letter"), ("a.qtr.old", "QTRB"), ("b.qtr.2", "QTRB")];
        for (other, content) in others {
            fs::write(dir.path().join(other), content).unwrap();
        }
        let mut name = Name::new(Some(&file), false).unwrap();
        let left = || others.map(|(other, _)| dir.path().join(other).exists());
        let aside = name.make_room().unwrap();
        assert_eq!(left(), [false, true, true, true]);
        drop(aside);
        assert_eq!(left(), [true; 4]);
        name.make_room().unwrap().remove();
        assert_eq!(left(), [false, true, true, true]);
        let hidden = fs::read_dir(dir.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b"."));
        assert_eq!(hidden.count(), 0);
        fs::write(&file, "a letter").unwrap();
        let error = Name::new(Some(&file), false).unwrap_err().to_string();
        assert!(error.contains("no trace") && file.exists(), "{error}");
        for wrong in [dir.path(), Path::new("/dev/null"), Path::new("-"), Path::new("a/"), Path::new("..")] {
            assert_eq!(failure::code_of(&Name::new(Some(wrong), false).unwrap_err()), 2, "{wrong:?}");
        }
        for wrong in [file.join("x"), dir.path().join("no/x"), "/proc/x".into()] {
            assert_eq!(
                failure::code_of(&Name::new(Some(&wrong), false).unwrap_err()),
                failure::OURS,
                "{wrong:?}"
            );
        }
        let error = Name::new(Some(&dir.path().join("b.qtr")), true).unwrap_err();
        assert!(error.to_string().contains("%p"));
    }
}
