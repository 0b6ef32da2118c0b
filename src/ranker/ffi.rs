//! The calls into LightGBM's C interface. Training with groups is done here, call by call; loading and predicting
//! are the safe crate's.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use lightgbm3::{Booster, ImportanceType};
use lightgbm3_sys as sys;

use super::dataset::Dataset;
use crate::error::{Context, Error, Result};

/// A training set, and what is held out of it to say when to stop.
pub(super) struct Sets<'a> {
    pub learnt: &'a Dataset,
    pub held_out: Option<&'a Dataset>,
}

/// A trained model.
pub(super) struct Fit {
    pub text: String,
    pub trees: usize,
    /// The first metric of the parameters on what was held out, with so many trees.
    pub held_out: Option<f64>,
}

/// How many trees a model has.
pub(super) struct Length {
    pub most: usize,
    /// With a set held out: the fewest, from which on its metric is looked at.
    pub least: usize,
    /// With a set held out: training stops when its metric has not risen for so many trees.
    pub patience: usize,
}

/// Trains a model. With a set held out, it ends with the tree with which the set's metric is best. The datasets are checked and in canonical order.
///
/// # Errors
/// What LightGBM says, as an internal error: all that can be wrong with the data is checked before.
pub(super) fn train(sets: &Sets, params: &str, length: &Length) -> Result<Fit> {
    quiet();
    let params = CString::new(params).or_internal("training parameters")?;
    let set = Handle::dataset(sets.learnt, &params, ptr::null_mut())?;
    let held_out = sets.held_out.map(|data| Handle::dataset(data, &params, set.raw)).transpose()?;
    let mut booster = Handle { raw: ptr::null_mut(), free: sys::LGBM_BoosterFree };
    // SAFETY: the datasets' handles are alive until after the booster is freed (locals drop in reverse order).
    check(unsafe { sys::LGBM_BoosterCreate(set.raw, params.as_ptr(), &mut booster.raw) })?;
    if let Some(held_out) = &held_out {
        // SAFETY: as above.
        check(unsafe { sys::LGBM_BoosterAddValidData(booster.raw, held_out.raw) })?;
    }
    let (mut made, mut best, mut best_value) = (0, 0, f64::NEG_INFINITY);
    while made < length.most {
        let mut finished: c_int = 0;
        // SAFETY: a live booster, and a place for the flag.
        check(unsafe { sys::LGBM_BoosterUpdateOneIter(booster.raw, &mut finished) })?;
        if finished != 0 {
            break;
        }
        made += 1;
        if held_out.is_some() && made >= length.least {
            let value = booster.metric()?;
            if value > best_value {
                (best, best_value) = (made, value);
            } else if made - best >= length.patience {
                break;
            }
        }
    }
    let trees = if best > 0 { best } else { made };
    Ok(Fit { text: booster.model_text(trees)?, trees, held_out: (best > 0).then_some(best_value) })
}

/// A dataset or a booster of LightGBM, freed with its owner.
struct Handle {
    raw: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void) -> c_int,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the handle came from LightGBM and is freed once. Nothing can be done about a failure here.
            unsafe { (self.free)(self.raw) };
        }
    }
}

impl Handle {
    /// `reference`: a dataset whose bins this one shares, or null.
    fn dataset(data: &Dataset, params: &CStr, reference: *mut c_void) -> Result<Handle> {
        let count = |n: usize| c_int::try_from(n).or_data(format!("{n} are more than LightGBM counts"));
        let (rows, columns) = (count(data.rows())?, count(data.features.len())?);
        let groups = data.groups.iter().map(|g| count(g.rows)).collect::<Result<Vec<c_int>>>()?;
        let names = data.features.iter().map(|f| CString::new(f.as_str())).collect::<Result<Vec<_>, _>>();
        let names = names.or_data("names of features")?;
        let mut pointers: Vec<*const c_char> = names.iter().map(|n| n.as_ptr()).collect();
        let mut set = Handle { raw: ptr::null_mut(), free: sys::LGBM_DatasetFree };
        // SAFETY: `values` holds rows x columns doubles, labels and groups as many values as is said; LightGBM copies
        // all of them before it returns.
        unsafe {
            check(sys::LGBM_DatasetCreateFromMat(
                data.values.as_ptr().cast(),
                sys::C_API_DTYPE_FLOAT64 as c_int,
                rows,
                columns,
                1,
                params.as_ptr(),
                reference,
                &mut set.raw,
            ))?;
            check(sys::LGBM_DatasetSetFeatureNames(set.raw, pointers.as_mut_ptr(), columns))?;
            set.field(c"label", data.labels.as_ptr().cast(), rows, sys::C_API_DTYPE_FLOAT32)?;
            set.field(c"group", groups.as_ptr().cast(), groups.len() as c_int, sys::C_API_DTYPE_INT32)?;
        }
        Ok(set)
    }

    /// # Safety
    /// `values` points to `count` values of the type `kind`.
    unsafe fn field(&self, name: &CStr, values: *const c_void, count: c_int, kind: u32) -> Result<()> {
        // SAFETY: the caller's promise.
        check(unsafe { sys::LGBM_DatasetSetField(self.raw, name.as_ptr(), values, count, kind as c_int) })
    }

    /// The first metric on the set that is held out.
    fn metric(&self) -> Result<f64> {
        let mut values = [f64::NAN; 16];
        let (mut count, mut given) = (0, 0);
        // SAFETY: the number of metrics is asked for first, and they fit.
        unsafe {
            check(sys::LGBM_BoosterGetEvalCounts(self.raw, &mut count))?;
            if !(1..=values.len() as c_int).contains(&count) {
                return Err(Error::internal(format!("LightGBM gives {count} metrics")));
            }
            check(sys::LGBM_BoosterGetEval(self.raw, 1, &mut given, values.as_mut_ptr()))?;
        }
        Ok(values[0])
    }

    /// The text of the first `trees` trees.
    fn model_text(&self, trees: usize) -> Result<String> {
        let trees = c_int::try_from(trees).or_internal("a number of trees")?;
        // Gains, not split counts, in the file's list of importances.
        let gains = sys::C_API_FEATURE_IMPORTANCE_GAIN as c_int;
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let mut length = 0;
            let size = buffer.len() as i64;
            let at = buffer.as_mut_ptr().cast();
            // SAFETY: LightGBM writes at most `size` bytes, and says how many it needs.
            check(unsafe { sys::LGBM_BoosterSaveModelToString(self.raw, 0, trees, gains, size, &mut length, at) })?;
            if length <= size {
                let text = CStr::from_bytes_until_nul(&buffer).or_internal("LightGBM's model text")?;
                return Ok(text.to_str().or_internal("LightGBM's model text")?.to_string());
            }
            buffer.resize(length as usize, 0);
        }
    }
}

fn check(status: c_int) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: LightGBM's message is a static buffer of this thread, ended by NUL.
    let says = unsafe { CStr::from_ptr(sys::LGBM_GetLastError()) };
    Err(Error::internal(format!("LightGBM: {}", says.to_string_lossy())))
}

/// LightGBM prints to stdout, which is for data: its messages go to the log instead, thread by thread.
fn quiet() {
    unsafe extern "C" fn log(message: *const c_char) {
        // SAFETY: LightGBM gives a string ended by NUL.
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        if !message.trim().is_empty() {
            tracing::debug!("{}", message.trim());
        }
    }
    // SAFETY: the callback is a function of this program.
    unsafe { sys::LGBM_RegisterLogCallback(Some(log)) };
}

/// Boosters of one model, one for each thread that predicts at the same time.
///
/// LightGBM takes a shared lock to predict and then writes to the booster all the same (the range of trees), so two
/// threads never share one here.
pub(super) struct Pool {
    text: String,
    idle: Mutex<Vec<Idle>>,
}

struct Idle(Booster);

// SAFETY: a booster has no tie to the thread that made it; it is only ever moved, never shared.
unsafe impl Send for Idle {}

impl Pool {
    /// Loads one booster, so that a wrong model fails here. The text has been checked.
    pub(super) fn load(text: String) -> Result<Pool> {
        let first = booster(&text)?;
        Ok(Pool { text, idle: Mutex::new(vec![first]) })
    }

    /// One value a row, on the calling thread.
    pub(super) fn predict(&self, rows: &[f64], columns: usize) -> Result<Vec<f64>> {
        let taken = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let booster = taken.map_or_else(|| booster(&self.text), Ok)?;
        quiet();
        let out = booster.0.predict_with_params(rows, columns as i32, true, "num_threads=1 verbosity=-1");
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(booster);
        out.or_internal("prediction")
    }

    /// Total gain of the splits on each feature, in the model's order.
    pub(super) fn gains(&self) -> Result<Vec<f64>> {
        booster(&self.text)?.0.feature_importance(ImportanceType::Gain).or_internal("feature gains")
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn booster(text: &str) -> Result<Idle> {
    quiet();
    Booster::from_string(text).map(Idle).or_data("LightGBM cannot read the model")
}
