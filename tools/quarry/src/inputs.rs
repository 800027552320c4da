// SPDX-License-Identifier: MIT
//! What is read is not written over, and of what is written no file is written twice. Only quarry convert may put what it makes
//! of a file in its place.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure;

/// An error if one of the files to write is one of those to read or another one to write, whatever either is called. `-` among the inputs is
/// standard input; as an output it is standard output, which is for the shell to open.
pub fn spare(
    inputs: impl IntoIterator<Item = impl AsRef<Path>>,
    outputs: impl IntoIterator<Item = impl AsRef<Path>>,
) -> anyhow::Result<()> {
    let dash = Path::new("-");
    let inputs: Vec<(u64, u64)> = inputs
        .into_iter()
        .filter_map(|input| match input.as_ref() {
            input if input == dash => file(Path::new("/dev/stdin")),
            input => file(input),
        })
        .collect();
    let mut places = Vec::new();
    for output in outputs {
        let output = output.as_ref();
        if let Some(place) = place(output) {
            if places.contains(&place) {
                return Err(failure::usage(format!(
                    "{} would be written twice; name two files",
                    output.display()
                )));
            }
            places.push(place);
        }
        if output != dash && file(output).is_some_and(|file| inputs.contains(&file)) {
            return Err(failure::usage(format!(
                "{} is what is read, and would be written over; name another file to write",
                output.display()
            )));
        }
    }
    Ok(())
}

/// Where a file is, or will be. None: no regular file, of which one can have all that is written to it.
fn place(path: &Path) -> Option<PathBuf> {
    if path == Path::new("-") {
        return None;
    }
    match path.metadata() {
        Ok(about) => about.is_file().then(|| path.canonicalize().ok())?,
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
        }
    }
}

/// The device and the number of a regular file: to write to another one harms nothing that can be read.
fn file(path: &Path) -> Option<(u64, u64)> {
    let about = path.metadata().ok().filter(|about| about.is_file())?;
    Some((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_file_has_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (log, link, hard, dotted) = (path("log"), path("link"), path("hard"), path("./log"));
        for name in ["log", "other"] {
            fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink("log", &link).unwrap();
        fs::hard_link(&log, &hard).unwrap();
        let inputs = [path("missing"), path("other"), log.clone()];
        for output in [&log, &link, &hard, &dotted] {
            let error = spare(&inputs, [output]).unwrap_err();
            assert_eq!(failure::code_of(&error), 2, "{output:?}");
        }
        assert!(spare([&log], [path("other"), path("missing"), PathBuf::from("-")]).is_ok());
        let null = Path::new("/dev/null");
        // Two of what is written: there already, not there yet, and what takes anything.
        for (one, other) in [(&log, &link), (&path("new"), &path("./new")), (&log, &log)] {
            let error = spare([path("missing")], [one, other]).unwrap_err();
            assert!(error.to_string().contains("written twice"), "{one:?}: {error}");
        }
        assert!(
            spare([&log], [path("new"), path("newer"), path("nowhere/new"), path("nowhere/new")]).is_ok()
        );
        assert!(spare([&log], [null, null]).is_ok() && spare([&log], ["-", "-"]).is_ok());
        assert!(spare([null], [null]).is_ok() && spare([&log], None::<PathBuf>).is_ok());
    }
}
