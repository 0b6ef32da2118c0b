//! How far a run is: a bar on a terminal, plain lines elsewhere, both on stderr.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::summary::TableSummary;
use crate::error::say;

const LINE_EVERY: Duration = Duration::from_secs(10);

/// Progress through the shards of one table.
pub struct Bar {
    name: &'static str,
    bar: Option<ProgressBar>,
    plain: Mutex<Plain>,
}

struct Plain {
    done: u64,
    total: u64,
    rows: u64,
    started: Instant,
    said: Instant,
}

impl Bar {
    pub fn new(name: &'static str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg:<11} {bar:30} {pos}/{len} shards, {per_sec}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total).with_style(style).with_message(name)
        });
        let now = Instant::now();
        Bar { name, bar, plain: Mutex::new(Plain { done: 0, total, rows: 0, started: now, said: now }) }
    }

    /// So many shards were done before.
    pub fn skip(&self, shards: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(shards);
            bar.reset_eta();
        }
        let mut plain = self.plain.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        plain.total -= shards.min(plain.total);
    }

    /// One more shard is done.
    pub fn step(&self, rows: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            return;
        }
        let mut plain = self.plain.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        plain.done += 1;
        plain.rows += rows;
        if plain.said.elapsed() >= LINE_EVERY && plain.done < plain.total {
            plain.said = Instant::now();
            let seconds = plain.started.elapsed().as_secs_f64();
            let left = seconds / plain.done as f64 * (plain.total - plain.done) as f64;
            let (name, done, total, rows) = (self.name, plain.done, plain.total, plain.rows);
            say(format!(
                "{name}: {done}/{total} shards, {rows} rows, {:.0} rows/s, about {left:.0} s left",
                rows as f64 / seconds
            ));
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A table is up to date.
pub fn report(table: &TableSummary) {
    let rejects = if table.rejects > 0 { format!(", {} rows set aside", table.rejects) } else { String::new() };
    let (name, rows) = (table.table, table.rows);
    if table.stores == 0 {
        // Rows by content belong to no store.
        return say(format!("{name}: {rows} rows, {} computed{rejects}", table.rows_computed));
    }
    let (kept, computed) = (table.stores_kept, table.stores_computed);
    say(format!("{name}: {rows} rows; {kept} stores kept, {computed} computed{rejects}"));
}
