//! `kernel-check LIBRARY [--small] [--list] [CASE...]`: runs cases, one line each. A name may end with `*`.
//!
//! Exit codes: 0 all right, 1 a case failed, 2 wrong usage. A kernel that is wrong in itself ends the process by a signal.

use memslate_kernel_checks::checks::{self, Case, Device};
use memslate_kernel_checks::emulation::Emulation;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

struct Options {
    library: PathBuf,
    small: bool,
    list: bool,
    names: Vec<String>,
}

fn main() -> ExitCode {
    match options().and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("kernel-check: {message}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options, String> {
    let (flags, mut words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    if let Some(unknown) = flags.iter().find(|flag| !["--small", "--list"].contains(&flag.as_str())) {
        return Err(format!("no option {unknown}"));
    }
    if words.is_empty() {
        return Err("usage: kernel-check LIBRARY [--small] [--list] [CASE...]".to_owned());
    }
    let library = PathBuf::from(words.remove(0));
    let has = |flag: &str| flags.iter().any(|f| f == flag);
    Ok(Options { library, small: has("--small"), list: has("--list"), names: words })
}

/// Whether all cases are right.
fn run(options: Options) -> Result<bool, String> {
    let emulation = Emulation::open(&options.library)?;
    let cases = chosen(checks::cases(emulation.kernels())?, &options.names)?;
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    let device = Device::new(&emulation, options.small);
    let mut failed = 0;
    for case in &cases {
        let worst = (case.run)(&device);
        let right = worst.error <= case.bar;
        failed += usize::from(!right);
        let verdict = if right { "ok".to_owned() } else { format!("FAIL at {}", worst.place) };
        println!("{:34} error {:8.1e}  bar {:7.0e}  {verdict}", case.name, worst.error, case.bar);
        stdout().flush().map_err(|e| e.to_string())?;
    }
    println!("{} cases, {failed} failed", cases.len());
    Ok(failed == 0)
}

fn chosen(cases: Vec<Case>, names: &[String]) -> Result<Vec<Case>, String> {
    let fits = |case: &Case, name: &str| match name.strip_suffix('*') {
        Some(beginning) => case.name.starts_with(beginning),
        None => case.name == name,
    };
    if let Some(unknown) = names.iter().find(|name| !cases.iter().any(|case| fits(case, name))) {
        return Err(format!("no case {unknown}; --list names them"));
    }
    let chosen = |case: &Case| names.is_empty() || names.iter().any(|name| fits(case, name));
    Ok(cases.into_iter().filter(chosen).collect())
}
