//! The fuzz targets over inputs made from their corpus: each changed a thousand times.

use std::path::Path;

#[path = "../fuzz/json.rs"]
mod json;
#[path = "../fuzz/targets.rs"]
mod targets;

use super::killing::Dice;

#[test]
fn the_corpus_changed_a_thousand_times_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, target) in targets::ALL {
        let files = std::fs::read_dir(corpus.join(name)).unwrap().map(|e| std::fs::read(e.unwrap().path()).unwrap());
        let mut files: Vec<Vec<u8>> = files.collect();
        files.sort();
        let mut dice = Dice::new(7);
        for n in 0..1000u32 {
            let mut input = files[dice.roll(files.len())].clone();
            let size = input.len();
            input.resize(size + 4096, 0);
            let separator = (name == "beam" || name == "chat").then_some(targets::NEXT_FILE);
            let json = if name == "slates" || n % 4 == 0 { None } else { changed(&mut input, size, n, separator) };
            let size = json.unwrap_or_else(|| {
                for _ in 0..=dice.roll(8) {
                    let at = dice.roll(size.max(1));
                    input[at] = dice.roll(256) as u8;
                }
                dice.roll(size + 1)
            });
            target(&input[..size]);
        }
    }
}

fn changed(input: &mut [u8], size: usize, n: u32, separator: Option<&[u8]>) -> Option<usize> {
    let max = input.len();
    json::mutate(input, size, max, n, separator)
}
