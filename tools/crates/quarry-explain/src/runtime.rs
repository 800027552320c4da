// SPDX-License-Identifier: MIT
//! Runtimes that map memory of their own for objects, past every malloc, and how to see inside.

use quarry_proc::Space;

/// A runtime with a heap of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Python,
    Php,
    Java,
    Node,
}

impl Runtime {
    /// That of this process, told by what is loaded.
    pub fn of(space: &Space) -> Option<Self> {
        space.mappings.iter().find_map(|mapping| Self::of_file(&mapping.name))
    }

    fn of_file(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().filter(|_| path.starts_with('/'))?;
        let is_version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let is = |program: &str| name.strip_prefix(program).is_some_and(is_version);
        if is("python") || name.starts_with("libpython") && name.contains(".so") {
            return Some(Runtime::Python);
        }
        if is("php") || is("php-fpm") || name.starts_with("libphp") && name.contains(".so") {
            return Some(Runtime::Php);
        }
        match name {
            "libjvm.so" => Some(Runtime::Java),
            "node" | "nodejs" => Some(Runtime::Node),
            _ => None,
        }
    }

    /// Who maps what.
    pub fn maps(self) -> &'static str {
        match self {
            Runtime::Python => "Python maps arenas for its small objects by itself, without malloc",
            Runtime::Php => "PHP maps memory for its objects by itself, without malloc",
            Runtime::Java => "the JVM maps memory for its objects by itself, without malloc",
            Runtime::Node => "V8 maps memory for the objects of JavaScript by itself, without malloc",
        }
    }

    /// How to see who holds it.
    pub fn advice(self) -> &'static str {
        match self {
            Runtime::Python => {
                "start it anew with its objects on malloc: PYTHONMALLOC=malloc quarry record -g -- CMD, then quarry profile FILE"
            }
            Runtime::Php => {
                "start it anew with its objects on malloc: USE_ZEND_ALLOC=0 quarry record -g -- CMD, then quarry profile FILE"
            }
            Runtime::Java => "ask the JVM: jcmd PID GC.class_histogram",
            Runtime::Node => "ask V8: start it with --heapsnapshot-signal=SIGUSR2, and send that signal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_told_by_its_files() {
        let of = Runtime::of_file;
        assert_eq!(of("/usr/bin/python3.11"), Some(Runtime::Python));
        assert_eq!(of("/usr/lib/libpython3.12.so.1.0"), Some(Runtime::Python));
        assert_eq!(of("/usr/sbin/php-fpm8.2"), Some(Runtime::Php));
        assert_eq!(of("/opt/jdk/lib/server/libjvm.so"), Some(Runtime::Java));
        assert_eq!(of("/usr/bin/node"), Some(Runtime::Node));
        assert_eq!(of("/usr/bin/python-data"), None);
        assert_eq!(of("/home/python3/server"), None);
        assert_eq!(of("[anon:python3]"), None);
    }
}
