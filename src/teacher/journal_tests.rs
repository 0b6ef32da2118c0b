//! What a journal keeps, cuts off and refuses.

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

/// A disk that is full is told, and not as a success.
#[test]
fn a_journal_that_cannot_be_written_says_so() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let file = OpenOptions::new().write(true).open(full).unwrap();
    let (to_writer, orders) = sync_channel(WAITING);
    let lines = file.try_clone().unwrap();
    let writer = Some(std::thread::spawn(move || {
        Ok::<File, Error>({
            // A device has nothing to flush.
            while orders.recv().is_ok() {}
            file
        })
    }));
    let mut journal = Journal { path: full.into(), found: Found::default(), lines, to_writer: Some(to_writer), writer };
    let said = journal.append(&judgement(1, 1.0)).unwrap_err().to_string();
    assert!(said.starts_with("/dev/full: the journal cannot be written"), "{said}");
    assert!(journal.append(&judgement(1, 1.0)).unwrap_err().to_string().contains("closed after an error"));
    assert!(journal.sync().is_err());
}

/// Counts flushes.
#[derive(Clone, Default)]
struct Counting(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Disk for Counting {
    fn flush_to_disk(&self) -> std::io::Result<()> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn lines_are_flushed_after_64_or_a_second() {
    let disk = Counting::default();
    let flushes = || disk.0.load(std::sync::atomic::Ordering::SeqCst);
    let (to_writer, orders) = sync_channel(WAITING);
    let writing = disk.clone();
    let writer = std::thread::spawn(move || flush_often(writing, &orders).map(|_| ()));
    let wait_for = |count: usize| {
        let mut waits = 0;
        while flushes() < count && waits < 100 {
            std::thread::sleep(Duration::from_millis(100));
            waits += 1;
        }
        flushes()
    };
    // 130 = 64 + 64 + 2, and the last two are flushed after a second in which nothing comes.
    (0..130).for_each(|_| to_writer.send(Order::Written).unwrap());
    assert_eq!(wait_for(3), 3);
    // Nothing new, nothing to flush.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(flushes(), 3);
    to_writer.send(Order::Written).unwrap();
    assert_eq!(wait_for(4), 4);
    drop(to_writer);
    writer.join().unwrap().unwrap();
    assert_eq!(flushes(), 5);
}

/// What another process finds of a journal whose own has not flushed nor closed it.
#[test]
fn an_answer_is_in_the_file_when_append_returns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (mut journal, _) = Journal::open(&path).unwrap();
    for n in 1..=5 {
        journal.append(&judgement(n, 3.0)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap().iter().filter(|b| **b == b'\n').count(), usize::from(n));
    }
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
