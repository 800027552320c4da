// SPDX-License-Identifier: MIT
//! Answering scrapers: HTTP/1.1 as far as GET /metrics takes it. A thread for each connection, which has little time, up to so
//! many; there is nothing to keep between them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use quarry_stats::openmetrics::{self, Format};
use quarry_stats::{Found, NoPage, find, maker};

use super::Named;
use crate::failure;
use crate::output::Output;

/// The longest request that is read.
const REQUEST_MOST: usize = 16 << 10;
/// How long a client may take for it, and then for the whole answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of scrapers that are answered at a time. More wait for one of them to end, which is soon.
const CLIENTS_MOST: usize = 16;

/// "PORT" or "ADDR:PORT".
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        String::from("neither PORT nor ADDR:PORT, for example 9273, 127.0.0.1:9273 or [::1]:9273")
    })
}

/// Serve until somebody ends the process.
pub fn main(address: SocketAddr, named: &[Named], output: &Output) -> anyhow::Result<i32> {
    for &(pid, _) in named {
        match find::of_process(pid) {
            Ok(_) => {}
            Err(error @ (NoPage::NoProcess(_) | NoPage::NoMemory(_))) => return Err(failure::failed(error)),
            // It may have a page later.
            Err(error) => output.warn(error),
        }
    }
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr().unwrap_or(address);
    if !address.ip().is_loopback() {
        output.warn(format_args!(
            "anyone who reaches {address} can read the names and the memory use of this user's processes"
        ));
    }
    output.note(format_args!("answering at http://{address}/metrics"));
    serve(&listener, |client| {
        // A client that fails is no reason to end; the next one may do better.
        if let Err(error) = client.and_then(|client| answer(client, named)) {
            output.detail(format_args!("a request failed: {error}"));
        }
    });
    Ok(0)
}

/// Each connection in a thread of its own, so that one that says nothing keeps nobody waiting.
fn serve(listener: &TcpListener, answer: impl Fn(io::Result<TcpStream>) + Sync) {
    let places = Places { free: Mutex::new(CLIENTS_MOST), freed: Condvar::new() };
    thread::scope(|threads| {
        for client in listener.incoming() {
            let place = places.take();
            let answer = &answer;
            let thread = thread::Builder::new().spawn_scoped(threads, move || {
                let _place = place;
                answer(client);
            });
            // Without another thread this client is dropped.
            if let Err(error) = thread {
                answer(Err(error));
            }
        }
    });
}

struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place that is free again when its thread ends, even by a panic.
struct Place<'a>(&'a Places);

impl Places {
    fn take(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

fn answer(mut client: TcpStream, named: &[Named]) -> io::Result<()> {
    let head = read_head(&mut client)?;
    let (status, kind, body) = respond(&head, || collect(named));
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !head.starts_with("HEAD ") {
        answer.push_str(&body);
    }
    write_whole(&mut client, answer.as_bytes())
}

/// What is left of a client's time.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::other("too slow")) } else { Ok(left) }
}

/// The kernel's patience begins anew with each piece that it takes, ours does not.
fn write_whole(client: &mut TcpStream, mut answer: &[u8]) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !answer.is_empty() {
        client.set_write_timeout(Some(left(end)?))?;
        match client.write(answer) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => answer = &answer[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Up to the empty line.
fn read_head(client: &mut TcpStream) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > REQUEST_MOST {
            return Err(io::Error::other("too long"));
        }
        client.set_read_timeout(Some(left(end)?))?;
        match client.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn respond(head: &str, collect: impl FnOnce() -> Vec<Found>) -> (&'static str, &'static str, String) {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !matches!(method, "GET" | "HEAD") {
        return ("405 Method Not Allowed", PLAIN, String::from("only GET\n"));
    }
    match target.split('?').next() {
        Some("/metrics") => {
            let accepts = |line: &str| {
                let (name, value) = line.split_once(':').unwrap_or_default();
                name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
            };
            let format = if lines.any(accepts) { Format::OpenMetrics } else { Format::Prometheus };
            ("200 OK", format.content_type(), openmetrics::render(&collect(), format))
        }
        Some("/") => ("200 OK", PLAIN, String::from("the statistics are at /metrics\n")),
        _ => ("404 Not Found", PLAIN, String::from("there is only /metrics\n")),
    }
}

/// Processes that were named and have gone are left out: a scraper sees that they have.
fn collect(named: &[Named]) -> Vec<Found> {
    if named.is_empty() {
        return find::all().found;
    }
    let one = |&(pid, started): &Named| {
        let found = find::of_process(pid).ok()?;
        (maker::started(pid) == started).then_some(found)
    };
    named.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(parse("9273"), parse("127.0.0.1:9273"));
        assert_eq!(parse(":9273"), parse("9273"));
        assert!(parse("[::1]:1").unwrap().ip().is_loopback());
        assert!(parse("somewhere:1").is_err() && parse("70000").is_err() && parse("").is_err());
    }

    /// One who takes a little now and then does not keep the others waiting.
    #[test]
    fn a_slow_reader_has_only_so_much_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reader = std::thread::spawn(move || {
            let mut reader = TcpStream::connect(address).unwrap();
            let mut piece = vec![0; 16 << 10]; // so slowly the whole takes more than a minute
            let begin = Instant::now();
            while begin.elapsed() < 30 * PATIENCE && reader.read(&mut piece).is_ok_and(|n| n > 0) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut client = listener.accept().unwrap().0;
        let begin = Instant::now();
        assert!(write_whole(&mut client, &vec![b'x'; 64 << 20]).is_err());
        assert!(begin.elapsed() < 20 * PATIENCE, "{:?}", begin.elapsed());
        drop(client);
        reader.join().unwrap();
    }

    #[test]
    fn requests() {
        let ask = |head: &str| respond(head, Vec::new);
        assert_eq!(ask("POST /metrics HTTP/1.1\r\n\r\n").0, "405 Method Not Allowed");
        assert_eq!(ask("GET /other HTTP/1.1\r\n\r\n").0, "404 Not Found");
        assert_eq!(ask("").0, "405 Method Not Allowed");
        assert_eq!(ask("GET / HTTP/1.1\r\n\r\n").0, "200 OK");
        let (status, kind, body) = ask("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((status, kind, body.as_str()), ("200 OK", Format::Prometheus.content_type(), ""));
        let wish = "GET /metrics HTTP/1.1\r\nACCEPT: text/plain;q=0.5,application/openmetrics-text;version=1.0.0\r\n\r\n";
        let (_, kind, body) = ask(wish);
        assert_eq!((kind, body.as_str()), (Format::OpenMetrics.content_type(), "# EOF\n"));
    }
}
