//! What the tests of this folder share: settings, a prompt, pairs, and a server that answers by a script.

use sha2::{Digest, Sha256};

use super::judgement::Pair;
use super::prompt::Prompt;
use super::settings::Settings;

#[path = "../../tests/support/stub_teacher.rs"]
mod stub_teacher;

pub use stub_teacher::{Act, Stub, answer};

/// Settings of a teacher at a URL, and more of them as TOML.
pub fn settings(url: &str, more: &str) -> Settings {
    toml::from_str(&format!("url = \"{url}\"\nmodel = \"m\"\nprompt = \"p.toml\"\n{more}")).unwrap()
}

pub fn prompt() -> Prompt {
    Prompt::parse("system = 'Grade.'\nuser = '{question} {turn}'").unwrap()
}

/// A pair whose turn says its number.
pub fn pair(n: usize) -> Pair {
    let (question, content) = ("which?".to_string(), format!("number {n}"));
    let hash = |text: &str| Sha256::digest(text.as_bytes()).into();
    Pair { question_hash: hash(&question), content_hash: hash(&content), question, content }
}
