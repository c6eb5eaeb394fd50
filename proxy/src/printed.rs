//! What commands print. Whoever reads it may have seen enough, as `head` has: then a command ends without a word, as by SIGPIPE,
//! which Rust has its programs ignore.

use std::io::{self, ErrorKind, Stderr, Stdout, Write};

/// What a shell tells of a command that SIGPIPE has ended.
const SEEN_ENOUGH: i32 = 128 + 13;

/// Standard output or standard error.
#[derive(Debug)]
pub struct Printed<W>(W);

/// Standard output.
pub fn stdout() -> Printed<Stdout> {
    Printed(io::stdout())
}

/// Standard error.
pub fn stderr() -> Printed<Stderr> {
    Printed(io::stderr())
}

impl<W: Write> Write for Printed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(end_where_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().inspect_err(end_where_closed)
    }
}

fn end_where_closed(error: &io::Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(SEEN_ENOUGH);
    }
}
