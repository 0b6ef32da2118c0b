//! The journal: judgements as they come, one line of JSON each, so that what was paid survives the run.
//!
//! A thread of its own writes the lines and flushes them to the disk, every 64 answers or every second, whichever comes
//! first; the caller waits only if that thread is thousands of lines behind. The file is locked while it is open. Its
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
/// Lines that wait for the writer.
const WAITING: usize = 4096;

/// An open, locked journal.
pub struct Journal {
    path: PathBuf,
    found: Found,
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
    Line(String),
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
        let (to_writer, orders) = sync_channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || write(file, &orders).map_err(|e| e.at(place)))
            .or_internal("a thread cannot be started")?;
        let journal = Journal { path: path.into(), found, to_writer: Some(to_writer), writer: Some(writer) };
        Ok((journal, judgements))
    }

    pub fn found(&self) -> Found {
        self.found
    }

    /// Hands a judgement to the writer. An error may be of an earlier one.
    pub fn append(&mut self, judgement: &Judgement) -> Result<()> {
        self.order(Order::Line(judgement.to_line()?))
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

/// Where lines are written and flushed to.
trait Disk: Write {
    fn flush_to_disk(&self) -> std::io::Result<()>;
}

impl Disk for File {
    fn flush_to_disk(&self) -> std::io::Result<()> {
        self.sync_data()
    }
}

/// Writes lines until there is no one to send any, and flushes.
///
/// No clock is read: after an answer, each wait for the next takes a 64th of a second at most, and the 64th wait flushes.
fn write<D: Disk>(mut disk: D, orders: &Receiver<Order>) -> Result<D> {
    let flush = |disk: &D| disk.flush_to_disk().or_data("the journal cannot be flushed to the disk");
    let mut since_flush = 0;
    loop {
        let order = match since_flush {
            0 => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            _ => orders.recv_timeout(SECOND / ANSWERS),
        };
        match order {
            Ok(Order::Line(line)) => {
                disk.write_all(line.as_bytes()).or_data("the journal cannot be written")?;
                since_flush += 1;
            }
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::teacher::judgement::{Usage, Verdict};

    fn judgement(n: u8, grade: f64) -> Judgement {
        Judgement {
            key: [n; 32],
            question_hash: [1; 32],
            content_hash: [2; 32],
            verdict: Verdict::Grade(grade),
            answer: "7".into(),
            usage: Usage::default(),
        }
    }

    fn open(path: &Path) -> (Journal, Vec<Judgement>) {
        Journal::open(path).unwrap()
    }

    #[test]
    fn what_was_appended_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let given: Vec<_> = (0..200).map(|n| judgement(n, f64::from(n) / 20.0)).collect();
        let (mut journal, found) = open(&path);
        assert!(found.is_empty());
        given[..150].iter().for_each(|j| journal.append(j).unwrap());
        journal.sync().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 150);
        given[150..].iter().for_each(|j| journal.append(j).unwrap());
        drop(journal);
        let (mut journal, found) = open(&path);
        assert_eq!((found, journal.found()), (given, Found::default()));
        journal.append(&judgement(3, 0.0)).unwrap();
        drop(journal);
        let (journal, found) = open(&path);
        assert_eq!((found.len(), found[3].verdict.clone()), (200, Verdict::Grade(0.15)));
        assert_eq!(journal.found(), Found { torn: 0, duplicates: 1 });
        journal.remove().unwrap();
        assert!(!path.exists());
        assert!(open(&path).1.is_empty());
    }

    /// Whatever part of the last line a killed run leaves, the lines before it are whole, and appending goes on after them.
    #[test]
    fn a_torn_last_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let lines: Vec<String> = (0..3).map(|n| judgement(n, 5.0).to_line().unwrap()).collect();
        let whole = lines[..2].concat();
        let last = lines[2].trim_end();
        for cut in 0..=last.len() {
            std::fs::write(&path, format!("{whole}{}", &last[..cut])).unwrap();
            let (mut journal, found) = open(&path);
            let kept = if cut == last.len() { 3 } else { 2 };
            assert_eq!((found.len(), journal.found().torn), (kept, u64::from(cut > 0 && kept == 2)), "{cut}");
            journal.append(&judgement(9, 1.0)).unwrap();
            drop(journal);
            let (journal, found) = open(&path);
            assert_eq!((found.len(), found[kept].key, journal.found().torn), (kept + 1, [9; 32], 0));
        }
        std::fs::write(&path, format!("{whole}\0\0\0\0")).unwrap();
        assert_eq!(open(&path).0.found().torn, 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    }

    #[test]
    fn a_damaged_line_elsewhere_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let lines: Vec<String> = (0..3).map(|n| judgement(n, 5.0).to_line().unwrap()).collect();
        for damaged in ["", "x", "{}", "\u{0}", &lines[1][..40]] {
            let text = format!("{}{damaged}\n{}", lines[0], lines[2]);
            std::fs::write(&path, &text).unwrap();
            let said = Journal::open(&path).err().unwrap().to_string();
            assert!(said.contains("journal: line 2 is damaged") && said.contains("delete that line"), "{said}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "nothing is cut off");
        }
    }

    #[test]
    fn a_journal_is_open_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (first, _) = open(&path);
        let said = Journal::open(&path).err().unwrap().to_string();
        assert!(said.contains("in use by another process"), "{said}");
        drop(first);
        open(&path).0.remove().unwrap();
        let gone = Journal::open(&folder.path().join("no/journal")).err().unwrap().to_string();
        assert!(gone.contains("cannot be opened"), "{gone}");
    }

    /// A disk that is full is told at a later append or at the sync, and not as a success.
    #[test]
    fn a_journal_that_cannot_be_written_says_so() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let file = OpenOptions::new().write(true).open(full).unwrap();
        let (to_writer, orders) = sync_channel(WAITING);
        let writer = Some(std::thread::spawn(move || write(file, &orders).map_err(|e| e.at("full"))));
        let mut journal = Journal { path: full.into(), found: Found::default(), to_writer: Some(to_writer), writer };
        let appended = journal.append(&judgement(1, 1.0));
        let said = appended.and_then(|()| journal.sync()).unwrap_err().to_string();
        assert!(said.starts_with("full: the journal cannot be written"), "{said}");
        assert!(journal.append(&judgement(1, 1.0)).unwrap_err().to_string().contains("closed after an error"));
        assert!(journal.sync().is_err());
    }

    /// Counts lines, and remembers how many there were at each flush.
    #[derive(Clone, Default)]
    struct Counting(std::sync::Arc<std::sync::Mutex<(u32, Vec<u32>)>>);

    impl Write for Counting {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().0 += 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Disk for Counting {
        fn flush_to_disk(&self) -> std::io::Result<()> {
            let mut counts = self.0.lock().unwrap();
            let lines = counts.0;
            counts.1.push(lines);
            Ok(())
        }
    }

    #[test]
    fn lines_are_flushed_after_64_or_a_second() {
        let disk = Counting::default();
        let (to_writer, orders) = sync_channel(WAITING);
        (0..130).for_each(|_| to_writer.send(Order::Line("x".into())).unwrap());
        let writing = disk.clone();
        let writer = std::thread::spawn(move || write(writing, &orders).map(|_| ()));
        let flushes = || disk.0.lock().unwrap().1.clone();
        // 130 = 64 + 64 + 2, and the last two are flushed after a second in which nothing comes.
        let mut waits = 0;
        while flushes().len() < 3 && waits < 100 {
            std::thread::sleep(Duration::from_millis(100));
            waits += 1;
        }
        assert_eq!(flushes(), [64, 128, 130]);
        drop(to_writer);
        writer.join().unwrap().unwrap();
        assert_eq!(flushes(), [64, 128, 130, 130]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any bytes are judgements, an error that names a line, or a torn end; opening twice finds the same.
        #[test]
        fn any_file_is_read_or_refused(lines in proptest::collection::vec(
            prop_oneof![Just(None), "[{}a\":0-9\n]{0,12}".prop_map(Some)], 0..6,
        ), torn in "[{\"a]{0,6}") {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("journal");
            let good = judgement(1, 2.0).to_line().unwrap();
            let text: String = lines.into_iter().map(|l| l.map_or(good.clone(), |l| l + "\n")).collect();
            std::fs::write(&path, text + &torn).unwrap();
            match Journal::open(&path) {
                Ok((journal, found)) => {
                    prop_assert!(found.len() <= 1);
                    drop(journal);
                    prop_assert_eq!(open(&path).1, found);
                    prop_assert_eq!(open(&path).0.found().torn, 0);
                }
                Err(e) => prop_assert!(e.to_string().contains("is damaged")),
            }
        }
    }
}
