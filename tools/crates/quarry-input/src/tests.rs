// SPDX-License-Identifier: MIT
//! One text in all the ways in which it may come.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;

use super::*;

const TEXT: &str = "one\ntwo\nthree\n";
/// `printf 'one\ntwo\nthree\n' | xz -C crc32`.
const XZ: [u8; 68] = [
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x00, 0x21, 0x01, 0x16,
    0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x0d, 0x6f, 0x6e, 0x65, 0x0a, 0x74, 0x77, 0x6f,
    0x0a, 0x74, 0x68, 0x72, 0x65, 0x65, 0x0a, 0x00, 0x00, 0x00, 0xb6, 0xd5, 0xe6, 0x25, 0x00, 0x01, 0x22,
    0x0e, 0x0c, 0xde, 0x8c, 0x60, 0x90, 0x42, 0x99, 0x0d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
];

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

fn lz4(text: &[u8]) -> Vec<u8> {
    let mut packer = lz4_flex::frame::FrameEncoder::new(Vec::new());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

fn utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
    [0xFEFF].into_iter().chain(text.encode_utf16()).flat_map(unit).collect()
}

fn read(bytes: &[u8]) -> (String, bool) {
    let mut input = Input::new(Cursor::new(bytes.to_vec()), bytes.len() as u64).unwrap();
    let mut text = Vec::new();
    input.read_to_end(&mut text).unwrap();
    (String::from_utf8(text).unwrap(), input.is_cut())
}

#[test]
fn packed_in_every_way() {
    let zstd = zstd::encode_all(TEXT.as_bytes(), 0).unwrap();
    // As pzstd begins: a frame that is skipped.
    let skipped = [&[0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &zstd].concat();
    let twice = gzip(&gzip(TEXT.as_bytes()));
    let windows = utf16(TEXT, u16::to_le_bytes);
    for (bytes, name) in [
        (TEXT.as_bytes().to_vec(), ""),
        (gzip(TEXT.as_bytes()), "gzip"),
        ([gzip(b"one\ntwo\n"), gzip(b"three\n")].concat(), "gzip"),
        ([gzip(b"one\ntwo\n"), vec![0; 3], gzip(b"three\n"), vec![0; 300_000]].concat(), "gzip"),
        ([lz4(b"one\ntwo\n"), lz4(b""), lz4(b"three\n")].concat(), "lz4"),
        (zstd, "zstd"),
        (skipped, "zstd"),
        (XZ.to_vec(), "xz"),
        (lz4(TEXT.as_bytes()), "lz4"),
        (twice, "gzip"),
        (gzip(&windows), "gzip"),
        (windows, "UTF-16"),
        (utf16(TEXT, u16::to_be_bytes), "UTF-16"),
        ([&b"\xEF\xBB\xBF"[..], TEXT.as_bytes()].concat(), "UTF-8 with a mark"),
    ] {
        assert_eq!(read(&bytes), (TEXT.to_owned(), false), "{name}");
        let input = Input::new(Cursor::new(bytes), 0).unwrap();
        assert_eq!((input.packed(), input.begin()), (name, TEXT.as_bytes()));
    }
    let error = Input::new(Cursor::new(b"BZh91AY".to_vec()), 0).err().unwrap();
    assert!(error.to_string().contains("bzip2"), "{error}");
}

#[test]
fn what_ends_early_is_cut_and_what_is_wrong_an_error() {
    let long: String = (0..20_000).map(|number| format!("{number:x} ")).collect();
    for (name, bytes) in [
        ("gzip", gzip(long.as_bytes())),
        ("zstd", zstd::encode_all(long.as_bytes(), 0).unwrap()),
        ("lz4", lz4(long.as_bytes())),
        ("UTF-16", utf16(&long, u16::to_le_bytes)),
        ("xz", XZ.to_vec()),
    ] {
        let (all, _) = read(&bytes);
        // The last four bytes of lz4 only say that there is no more.
        for length in [(bytes.len() / 2) | 1, bytes.len() - 5] {
            let (text, cut) = read(&bytes[..length]);
            assert!(cut && all.starts_with(&text), "{name} {length}");
        }
    }
    for packed in [gzip(long.as_bytes()), lz4(long.as_bytes())] {
        let mut input = Input::new(Cursor::new([&packed, &b"garbage"[..]].concat()), 0).unwrap();
        let error = input.read_to_end(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("something else behind") && !input.is_cut(), "{error}");
    }
    let mut wrong = gzip(long.as_bytes());
    let middle = wrong.len() / 2;
    wrong[middle..middle + 64].fill(0xFF);
    let mut input = Input::new(Cursor::new(wrong), 0).unwrap();
    assert!(input.read_to_end(&mut Vec::new()).is_err() && !input.is_cut());
}

#[test]
fn letters_beyond_two_bytes_and_halves_of_them() {
    let text: String = "a\u{1F600}é\r\n".repeat(5000);
    assert_eq!(read(&utf16(&text, u16::to_le_bytes)), (text.clone(), false));
    let alone: Vec<u8> = [0xFEFF_u16, 0xD83D, 0x61].into_iter().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read(&alone), (String::from("\u{FFFD}a"), false));
}

#[test]
fn files_are_what_they_are_and_all_else_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Zeros in the middle, as in core files.
    let bytes = [&b"begin"[..], &vec![0; 300_000], b"end"].concat();
    fs::write(path("plain"), &bytes).unwrap();
    fs::write(path("packed"), gzip(&bytes)).unwrap();
    for (name, is_file) in [("plain", true), ("packed", false)] {
        let input = Input::open(&path(name)).unwrap();
        assert_eq!((input.is_file(), input.length()), (is_file, fs::metadata(path(name)).unwrap().len()));
        let (mut file, cut) = input.into_file().unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == bytes && !cut, "{name}");
    }
    // A file without a length is read all the same.
    assert!(!Input::open(Path::new("/proc/self/status")).unwrap().begin().is_empty());
    let error = |path: &Path| Input::open(path).err().unwrap().to_string();
    assert!(error(folder.path()).contains("directory"));
    assert!(error(Path::new("/dev/zero")).contains("device"));
    assert!(error(&path("none")).contains("No such file"));
}

#[test]
fn a_socket_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let writer = std::thread::spawn(move || listener.accept().unwrap().0.write_all(TEXT.as_bytes()).unwrap());
    let mut text = String::new();
    Input::open(&path).unwrap().read_to_string(&mut text).unwrap();
    writer.join().unwrap();
    assert_eq!(text, TEXT);
    // One without a name, by its number.
    let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
    far.write_all(TEXT.as_bytes()).unwrap();
    drop(far);
    let number = std::os::fd::AsRawFd::as_raw_fd(&near);
    let mut text = String::new();
    Input::open(Path::new(&format!("/dev/fd/{number}"))).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, TEXT);
}
