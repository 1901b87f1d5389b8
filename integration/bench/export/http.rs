//! A minimal HTTP client for scrapes, which takes hardly any of the time itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const SCRAPE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a scrape begins with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionMode {
    /// Each scrape opens a connection.
    New,
    /// All use the same, as Prometheus does.
    Kept,
}

/// Scrapes one address.
#[derive(Debug)]
pub(crate) struct ScrapeClient {
    address: SocketAddr,
    connection: ConnectionMode,
    kept: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl ScrapeClient {
    pub(crate) fn new(address: SocketAddr, connection: ConnectionMode) -> Self {
        Self { address, connection, kept: None, buffer: Vec::new() }
    }

    /// Time from before the connection, if a new one is opened, to the last byte.
    pub(crate) fn scrape(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let mut stream = match self.kept.take() {
            Some(stream) => stream,
            None => connect(self.address)?,
        };
        let keep = if self.connection == ConnectionMode::New { "close" } else { "keep-alive" };
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nAccept: text/plain;version=0.0.4\r\n\
             Connection: {keep}\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes())?;
        self.read(&mut stream)?;
        let took = begin.elapsed();
        ensure!(self.buffer.windows(7).take(16).any(|part| part == b" 200 OK"), "{}", self.text());
        self.kept = (self.connection == ConnectionMode::Kept).then_some(stream);
        Ok(took)
    }

    /// The samples of the last scrape.
    pub(crate) fn body(&self) -> Result<&str> {
        let at = body_at(&self.buffer).context("no body")?;
        Ok(std::str::from_utf8(&self.buffer[at..])?)
    }

    fn read(&mut self, stream: &mut TcpStream) -> Result<()> {
        self.buffer.clear();
        let mut part = vec![0; 65536];
        let mut whole = None;
        while whole.is_none_or(|whole| self.buffer.len() < whole) {
            let bytes = stream.read(&mut part)?;
            if bytes == 0 {
                ensure!(whole.is_none(), "a reply that ends early");
                break;
            }
            self.buffer.extend_from_slice(&part[..bytes]);
            if whole.is_none() {
                whole = length(&self.buffer);
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    Ok(stream)
}

fn body_at(reply: &[u8]) -> Option<usize> {
    reply.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4)
}

/// Length of the whole reply, once its header has arrived.
fn length(reply: &[u8]) -> Option<usize> {
    let at = body_at(reply)?;
    let head = std::str::from_utf8(&reply[..at]).ok()?.to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    Some(at + value.trim().parse::<usize>().ok()?)
}
