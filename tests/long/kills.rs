//! Thirty moments at which a run is killed, a third of them in lakes where runs were killed before.

use super::killing::{Dice, Moment, Whole, night};

const KILLS: usize = 30;

#[test]
fn thirty_kills_leave_the_tables_of_an_undisturbed_run() {
    let whole = Whole::new();
    let mut dice = Dice::new(30);
    let mut killed = 0;
    for n in 0..KILLS - 10 {
        let (night, moment) = (night(), Moment::of(n, KILLS - 10, &mut dice));
        killed += usize::from(whole.kill(&night, moment));
        whole.is_resumed(&night, &format!("kill {n}, {moment:?}"));
    }
    for chain in 0..2 {
        let night = night();
        for n in 0..5 {
            killed += usize::from(whole.kill(&night, Moment::of(n, 5, &mut dice)));
        }
        whole.is_resumed(&night, &format!("five in a row, {chain}"));
    }
    println!("{killed} of {KILLS} runs were alive when they were killed");
    assert!(killed >= KILLS * 2 / 3, "only {killed} of {KILLS} runs were killed");
}
