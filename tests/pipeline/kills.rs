//! A run may be ended at any moment, and two may run at once: the tables are those of one run that nobody disturbed.

use super::killing::{Dice, Moment, Whole, files_made, night, start};

/// A few moments; `make test-long` tries thirty.
#[test]
fn a_killed_run_is_resumed_to_the_same_tables() {
    let whole = Whole::new();
    let mut dice = Dice::new(1);
    let mut killed = 0;
    for n in 0..4 {
        let (night, moment) = (night(), Moment::of(n, 4, &mut dice));
        killed += usize::from(whole.kill(&night, moment));
        whole.is_resumed(&night, &format!("{moment:?}"));
    }
    // Three times in the same lake, each time further on.
    let night = night();
    for part in [150, 450, 700] {
        killed += usize::from(whole.kill(&night, Moment::Files(part, dice.roll(3000))));
    }
    whole.is_resumed(&night, "three in a row");
    // A run may have ended by itself between the look and the signal.
    assert!(killed >= 4, "only {killed} of 7 runs were killed");
}

/// Ctrl-C and a service manager's stop: the run ends at once, and the next one goes on.
#[cfg(unix)]
#[test]
fn a_run_that_is_asked_to_stop_stops() {
    let whole = Whole::new();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let night = night();
        let mut run = start(&night);
        while files_made(&night.lake()) < 40 && run.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // SAFETY: a signal to a child that was not waited for, so that its id is its own.
        assert_eq!(unsafe { libc::kill(run.id() as i32, signal) }, 0);
        let ended = run.wait().unwrap();
        assert!(!ended.success(), "it was asked to stop, and went on to its end");
        whole.is_resumed(&night, &format!("signal {signal}"));
    }
}
