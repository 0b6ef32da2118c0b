//! NVIDIA's run-time compiler, where its library is on the machine: a source in, machine code for one chip out.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::error::{Error, Result};

/// Names the library's file, or `off`.
pub const LIBRARY: &str = "MEMSLATE_NVRTC";
/// As a loader finds it, newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// As `kernels/build.py` compiles what is committed.
const OPTIONS: [&CStr; 2] = [c"--std=c++17", c"-default-device"];

type Program = *mut c_void;

/// An open compiler.
pub struct Nvrtc {
    library: Library,
    /// Major and minor.
    pub version: (i32, i32),
}

/// A file that a source may include, or the source itself: name and text.
pub type File = (&'static str, &'static str);

impl Nvrtc {
    /// The library that [`LIBRARY`] names, else one that the loader finds; none where there is none.
    ///
    /// # Errors
    /// A library that is named and cannot be used.
    pub fn find() -> Result<Option<Nvrtc>> {
        match std::env::var_os(LIBRARY).filter(|v| !v.is_empty()) {
            Some(off) if off == "off" => Ok(None),
            Some(path) => Self::open(&path).map(Some).map_err(|e| e.at(LIBRARY)),
            None => Ok(NAMES.iter().find_map(|name| Self::open(&OsString::from(name)).ok())),
        }
    }

    /// Opens a library by its path, or by a name that the loader knows.
    pub fn open(file: &OsString) -> Result<Nvrtc> {
        let failed = |e: libloading::Error| {
            Error::device(format!("{} is no NVRTC that can be opened", Path::new(file).display())).source(e)
        };
        // It looks for its builtins by name, which a loader finds only where they are installed; beside a named file they
        // are opened first.
        for builtins in beside(Path::new(file)) {
            // SAFETY: a library of NVIDIA's, whose initialisers touch nothing of ours. It stays open with the process.
            unsafe { Library::open(Some(builtins), RTLD_NOW | RTLD_GLOBAL) }.map(std::mem::forget).map_err(failed)?;
        }
        // SAFETY: as above.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.map_err(failed)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the function has this type and writes two numbers.
        let status = unsafe {
            let version = library.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion");
            version.map_err(failed)?(&mut major, &mut minor)
        };
        match status {
            0 => Ok(Nvrtc { library, version: (major, minor) }),
            code => Err(Error::device(format!("NVRTC does not tell its version: code {code}"))),
        }
    }

    /// Whether it makes machine code for a chip: an older one does not know newer chips.
    pub fn knows(&self, capability: (u32, u32)) -> bool {
        let known = || -> Result<Vec<c_int>> {
            let mut count = 0;
            // SAFETY: the functions have these types; the list is as long as the count.
            unsafe {
                let number = self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>("nvrtcGetNumSupportedArchs")?;
                self.check(number(&mut count), "architectures")?;
                let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
                let list = self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>("nvrtcGetSupportedArchs")?;
                self.check(list(all.as_mut_ptr()), "architectures")?;
                Ok(all)
            }
        };
        let wanted = capability.0 * 10 + capability.1;
        known().is_ok_and(|all| all.iter().any(|a| u32::try_from(*a) == Ok(wanted)))
    }

    /// Compiles `source` for the chip `sm_XY`.
    ///
    /// # Errors
    /// What the compiler says, as a device error.
    pub fn cubin(&self, source: File, headers: &[File], architecture: &str) -> Result<Vec<u8>> {
        let text = |s: &str| CString::new(s).map_err(|e| Error::internal("a kernel's source holds a NUL").source(e));
        let (name, body) = (text(source.0)?, text(source.1)?);
        let names = headers.iter().map(|h| text(h.0)).collect::<Result<Vec<_>>>()?;
        let bodies = headers.iter().map(|h| text(h.1)).collect::<Result<Vec<_>>>()?;
        let pointers = |all: &[CString]| all.iter().map(|c| c.as_ptr()).collect::<Vec<*const c_char>>();
        let (names_at, bodies_at) = (pointers(&names), pointers(&bodies));
        let target = text(&format!("--gpu-architecture={architecture}"))?;
        let options: Vec<*const c_char> = OPTIONS.iter().map(|o| o.as_ptr()).chain([target.as_ptr()]).collect();
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        let mut program = Made { nvrtc: self, program: std::ptr::null_mut() };
        // SAFETY: the functions have these types; all strings and lists live until the end of this call.
        unsafe {
            let count = headers.len() as c_int;
            let create = self.function::<Create>("nvrtcCreateProgram")?;
            let status = create(
                &mut program.program,
                body.as_ptr(),
                name.as_ptr(),
                count,
                bodies_at.as_ptr(),
                names_at.as_ptr(),
            );
            self.check(status, source.0)?;
            let compile = self.function::<Compile>("nvrtcCompileProgram")?;
            let status = compile(program.program, options.len() as c_int, options.as_ptr());
            if status != 0 {
                let log = program.read("ProgramLog").unwrap_or_default();
                let said =
                    String::from_utf8_lossy(&log).trim_end_matches('\0').lines().next().unwrap_or("").to_string();
                let (major, minor) = self.version;
                return Err(Error::device(format!(
                    "NVRTC {major}.{minor} does not compile kernels/{} for {architecture}: {said}",
                    source.0
                ))
                .next(format!("set {LIBRARY}=off to leave it to the driver")));
            }
        }
        program.read("CUBIN")
    }

    /// # Safety
    /// The function of this name has the type `F`.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F> {
        // SAFETY: the caller's; the library stays open as long as `self`.
        let found = unsafe { self.library.get::<F>(name.as_bytes()) };
        found.map(|f| *f).map_err(|e| Error::device(format!("NVRTC has no {name}")).source(e))
    }

    fn check(&self, status: c_int, what: &str) -> Result<()> {
        if status == 0 { Ok(()) } else { Err(Error::device(format!("NVRTC failed on {what}: code {status}"))) }
    }
}

/// A program, given back when dropped.
struct Made<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Made<'_> {
    /// What the program has under this name.
    fn read(&self, what: &str) -> Result<Vec<u8>> {
        let mut size = 0usize;
        // SAFETY: the functions have these types, and write as many bytes as the first one says.
        unsafe {
            let length = self
                .nvrtc
                .function::<unsafe extern "C" fn(Program, *mut usize) -> c_int>(&format!("nvrtcGet{what}Size"))?;
            self.nvrtc.check(length(self.program, &mut size), what)?;
            let mut bytes = vec![0u8; size];
            let get = self
                .nvrtc
                .function::<unsafe extern "C" fn(Program, *mut c_char) -> c_int>(&format!("nvrtcGet{what}"))?;
            self.nvrtc.check(get(self.program, bytes.as_mut_ptr().cast()), what)?;
            Ok(bytes)
        }
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if self.program.is_null() {
            return;
        }
        // SAFETY: the program was made by this library and is given back once. Nothing can be done about a failure here.
        unsafe {
            if let Ok(destroy) =
                self.nvrtc.function::<unsafe extern "C" fn(*mut Program) -> c_int>("nvrtcDestroyProgram")
            {
                destroy(&mut self.program);
            }
        }
    }
}

/// The builtins in the folder of a file that is named by its path.
fn beside(file: &Path) -> Vec<PathBuf> {
    let Some(folder) = file.parent().filter(|p| !p.as_os_str().is_empty()) else { return Vec::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let named = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libnvrtc-builtins.so"));
    entries.filter(named).collect()
}
