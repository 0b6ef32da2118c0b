//! The journal: judgements as they come, one line of JSON each, so that what was paid survives the run.
//!
//! A line is handed to the system at once, so that a process that is killed loses none; a thread of its own flushes them to
//! the disk, every 64 answers or every second, whichever comes first. The file is locked while it is open. Its
//! last line may be torn, by a run that was killed; it is cut off. A damaged line anywhere else is an error.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::channel::oneshot;

use super::judgement::Judgement;
use crate::error::{Context, Error, Result};

/// Answers between two flushes.
const ANSWERS: u32 = 64;
/// The longest time between an answer and its flush.
const SECOND: Duration = Duration::from_secs(1);
/// Lines that wait for the thread to count them.
const WAITING: usize = 4096;

/// An open, locked journal.
pub struct Journal {
    path: PathBuf,
    found: Found,
    /// What lines are written to: the thread's file under another handle.
    lines: File,
    to_writer: Option<SyncSender<Order>>,
    writer: Option<JoinHandle<Result<File>>>,
}

/// What an opened journal held beside its judgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// A last line that was not whole, cut off: 0 or 1.
    pub torn: u64,
    /// Judgements of a key that had one; the first counts.
    pub duplicates: u64,
}

enum Order {
    /// A line has been written.
    Written,
    Flush(oneshot::Sender<()>),
}

impl Journal {
    /// Opens a journal, or makes one, and reads what it holds: each key's first judgement, in order.
    pub fn open(path: &Path) -> Result<(Journal, Vec<Judgement>)> {
        let place = path.display().to_string();
        let mut file = locked(path).map_err(|e| e.at(&place))?;
        let (judgements, found, end) = read(&file).map_err(|e| e.at(&place))?;
        let mut cut = || {
            file.set_len(end.whole)?;
            file.seek(SeekFrom::End(0))?;
            if end.wants_newline {
                file.write_all(b"\n")?;
            }
            file.sync_all()
        };
        cut().or_data("the journal cannot be written").map_err(|e| e.at(&place))?;
        let lines = file.try_clone().or_data("the journal cannot be opened twice").map_err(|e| e.at(&place))?;
        let (to_writer, orders) = sync_channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || flush_often(file, &orders).map_err(|e| e.at(place)))
            .or_internal("a thread cannot be started")?;
        let journal = Journal { path: path.into(), found, lines, to_writer: Some(to_writer), writer: Some(writer) };
        Ok((journal, judgements))
    }

    pub fn found(&self) -> Found {
        self.found
    }

    /// Writes a judgement, which a process that is killed then keeps. An error may be of an earlier one.
    pub fn append(&mut self, judgement: &Judgement) -> Result<()> {
        if self.to_writer.is_some() {
            let written = self.lines.write_all(judgement.to_line()?.as_bytes());
            if let Err(e) = written {
                // Half a line may be there: no other may follow it.
                self.close()?;
                return Err(Error::data("the journal cannot be written").source(e).at(self.path.display().to_string()));
            }
        }
        self.order(Order::Written)
    }

    /// Waits until all that was appended is on the disk. For async code there is [`Journal::settle`].
    pub fn sync(&mut self) -> Result<()> {
        let flushed = self.flush()?;
        futures::executor::block_on(flushed).or_else(|_| self.close().map(|_| ()))
    }

    /// Waits until all that was appended is on the disk, without blocking its thread.
    pub async fn settle(&mut self) -> Result<()> {
        let flushed = self.flush()?;
        // A writer that is gone failed: to join it takes no time.
        flushed.await.or_else(|_| self.close().map(|_| ()))
    }

    /// Deletes the journal, once all that it holds is kept elsewhere.
    pub fn remove(mut self) -> Result<()> {
        // The lock is held until the file is gone, so that no other process fills a file without a name.
        let _locked = self.close()?;
        std::fs::remove_file(&self.path)
            .or_data("the journal cannot be removed")
            .map_err(|e| e.at(self.path.display().to_string()))
    }

    fn flush(&mut self) -> Result<oneshot::Receiver<()>> {
        let (done, flushed) = oneshot::channel();
        self.order(Order::Flush(done))?;
        Ok(flushed)
    }

    fn order(&mut self, order: Order) -> Result<()> {
        let sent = self.to_writer.as_ref().map(|to| to.send(order));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.close().err().unwrap_or_else(|| {
                Error::data("the journal is closed after an error").at(self.path.display().to_string())
            })),
        }
    }

    /// Ends the writer once it wrote and flushed all. Its file, still locked, or what went wrong.
    fn close(&mut self) -> Result<Option<File>> {
        self.to_writer = None;
        let Some(writer) = self.writer.take() else { return Ok(None) };
        writer.join().unwrap_or_else(|_| Err(Error::internal("the journal's writer failed"))).map(Some)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Whoever wants to know whether all was written calls `sync`.
        let _ = self.close();
    }
}

/// Opens and locks the file that has this name.
fn locked(path: &Path) -> Result<File> {
    loop {
        let fresh = !path.exists();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.or_data("the journal cannot be opened")?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::transient("the journal is in use by another process")
                    .next("wait until the other run ends, or end it"));
            }
            Err(TryLockError::Error(e)) => return Err(Error::data("the journal cannot be locked").source(e)),
        }
        if fresh && let Some(folder) = path.parent() {
            // So that a machine that dies keeps the name too; not every file system can.
            let _ =
                File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }).map(|f| f.sync_all());
        }
        if has_name(&file, path) {
            return Ok(file);
        }
    }
}

/// Whether a file was not removed between its opening and its lock.
#[cfg(unix)]
fn has_name(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        (_, Err(e)) => e.kind() != std::io::ErrorKind::NotFound,
        (Err(_), _) => true,
    }
}

#[cfg(not(unix))]
fn has_name(_: &File, _: &Path) -> bool {
    true
}

/// Where the whole lines end.
struct End {
    whole: u64,
    /// The last line lacks nothing but its end.
    wants_newline: bool,
}

fn read(file: &File) -> Result<(Vec<Judgement>, Found, End)> {
    let mut lines = BufReader::new(file);
    let (mut judgements, mut keys) = (Vec::new(), HashSet::new());
    let (mut found, mut end) = (Found::default(), End { whole: 0, wants_newline: false });
    let (mut line, mut number) = (Vec::new(), 0u64);
    loop {
        line.clear();
        let bytes = lines.read_until(b'\n', &mut line).or_data("the journal cannot be read")?;
        if bytes == 0 {
            return Ok((judgements, found, end));
        }
        number += 1;
        let whole = line.pop_if(|b| *b == b'\n').is_some();
        match Judgement::from_line(&line) {
            Ok(judgement) => {
                end = End { whole: end.whole + bytes as u64, wants_newline: !whole };
                if keys.insert(judgement.key) {
                    judgements.push(judgement);
                } else {
                    found.duplicates += 1;
                }
            }
            Err(_) if !whole => found.torn += 1,
            Err(e) => {
                let what = format!("line {number} is damaged");
                return Err(Error::data(what)
                    .source(e)
                    .next("delete that line, and its pair is asked again; or delete the file, and all its pairs are"));
            }
        }
    }
}

/// Where lines are flushed to.
trait Disk {
    fn flush_to_disk(&self) -> std::io::Result<()>;
}

impl Disk for File {
    fn flush_to_disk(&self) -> std::io::Result<()> {
        self.sync_data()
    }
}

/// Flushes what is written until there is no one to write any.
///
/// No clock is read: after an answer, each wait for the next takes a 64th of a second at most, and the 64th wait flushes.
fn flush_often<D: Disk>(disk: D, orders: &Receiver<Order>) -> Result<D> {
    let flush = |disk: &D| disk.flush_to_disk().or_data("the journal cannot be flushed to the disk");
    let mut since_flush = 0;
    loop {
        let order = match since_flush {
            0 => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            _ => orders.recv_timeout(SECOND / ANSWERS),
        };
        match order {
            Ok(Order::Written) => since_flush += 1,
            Ok(Order::Flush(done)) => {
                flush(&disk)?;
                since_flush = 0;
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => since_flush += 1,
            Err(RecvTimeoutError::Disconnected) => {
                flush(&disk)?;
                return Ok(disk);
            }
        }
        if since_flush >= ANSWERS {
            flush(&disk)?;
            since_flush = 0;
        }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
