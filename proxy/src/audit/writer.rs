//! The one thread that writes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::event::Event;
use super::output::{Output, Unwritten};
use super::queue::{Queue, Work};
use crate::metrics::Metrics;

/// Bytes that are written at once, at most about.
const WRITE: usize = 64 << 10;

struct Writer<'a> {
    metrics: &'a Metrics,
    output: Option<Output>,
    /// Events that were lost since the log could last be written; none while it can.
    lost: Option<usize>,
}

/// Writes until the queue is closed and empty.
pub(super) fn run(queue: &Queue, metrics: &Metrics) {
    let mut writer = Writer {
        metrics,
        output: None,
        lost: None,
    };
    while let Some(work) = queue.take() {
        let count = work.events.len();
        let bytes = work.events.iter().map(Event::bytes).sum();
        let done = catch_unwind(AssertUnwindSafe(|| writer.work(work)));
        if done.is_err() {
            metrics.audited(0, count);
            tracing::error!(count, "audit events may be lost: a panic");
        }
        queue.done(bytes);
    }
    queue.end();
}

impl Writer<'_> {
    fn work(&mut self, work: Work) {
        if let Some(output) = work.output {
            self.output = Some(output);
            self.lost = None;
        }
        if work.reopen
            && let Some(output) = &mut self.output
        {
            output.reopen();
        }
        let mut lines = Vec::new();
        let mut count = 0;
        for event in work.events {
            event.write_line(&mut lines);
            count += 1;
            if lines.len() >= WRITE {
                self.write(&lines, count);
                lines.clear();
                count = 0;
            }
        }
        if count > 0 {
            self.write(&lines, count);
        }
    }

    fn write(&mut self, lines: &[u8], count: usize) {
        let Some(output) = &mut self.output else {
            self.metrics.audited(0, count);
            return;
        };
        let Err(Unwritten { whole_lines, error }) = output.write(lines) else {
            self.metrics.audited(count, 0);
            if let Some(lost) = self.lost.take() {
                tracing::warn!(path = %output.target(), lost, "audit log is written again");
            }
            return;
        };
        let lost = count - whole_lines;
        self.metrics.audited(whole_lines, lost);
        match &mut self.lost {
            Some(before) => *before += lost,
            None => {
                self.lost = Some(lost);
                tracing::error!(
                    path = %output.target(),
                    %error,
                    "audit log cannot be written: events are lost until it can be"
                );
            }
        }
    }
}
