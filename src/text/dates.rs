//! Times as people and exports write them, read into microseconds UTC. The clock is never read.
//!
//! A time without a zone (a *naive* one) takes the caller's default offset: minutes east of UTC, so 540 is +09:00.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime};

use crate::error::{Error, Result};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;
const MICROS_PER_DAY: i64 = 24 * 60 * MICROS_PER_MINUTE;

/// Years 1 to 9999: what every reader of our tables can show.
const READABLE_MICROS: std::ops::Range<i64> = -62_135_596_800 * MICROS_PER_SECOND..253_402_300_800 * MICROS_PER_SECOND;

/// Epoch numbers from here on are milliseconds: as seconds they would lie in the year 5138.
const FIRST_EPOCH_MILLIS: f64 = 1e11;

/// Shorter numbers in a text are years, days or counters far more often than seconds before March 1973.
const MIN_EPOCH_DIGITS: usize = 9;

/// Reads a time, in microseconds UTC; `None` where the text is none of these:
/// RFC 3339 (`2023-05-08T13:56:00Z`, `+09:00`), the same without a zone, with a space, without seconds or with a
/// fraction; a date alone (`2023-05-08`, `2023/05/08`, `20230508`: its midnight); `2023/05/30 (Tue) 23:17`
/// (the weekday is not checked); `1:56 pm on 8 May, 2023`; `March-15-2024`; epoch seconds or milliseconds in digits.
pub fn parse_instant(text: &str, default_offset_minutes: i32) -> Option<i64> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(digits) = number(&text) {
        return match digits.len() {
            8 => naive_to_utc(midnight(NaiveDate::parse_from_str(digits, "%Y%m%d").ok()?), default_offset_minutes),
            n if n >= MIN_EPOCH_DIGITS => instant_of_epoch(text.parse().ok()?),
            _ => None,
        };
    }
    let (body, offset_minutes) = split_zone(&text);
    naive_to_utc(parse_naive(body)?, offset_minutes.unwrap_or(default_offset_minutes))
}

/// Microseconds UTC of an epoch number: seconds, or milliseconds where seconds would be far off (1e11 and more).
/// `None` outside the years 1 to 9999.
pub fn instant_of_epoch(number: f64) -> Option<i64> {
    let micros_each = if number.abs() < FIRST_EPOCH_MILLIS { 1e6 } else { 1e3 };
    let micros = (number * micros_each).round();
    // The bounds are exact as f64 values are whole there; NaN fails both comparisons.
    let readable = micros >= READABLE_MICROS.start as f64 && micros < READABLE_MICROS.end as f64;
    readable.then_some(micros as i64)
}

/// `2023-05-08`, in UTC.
pub fn format_day(micros: i64) -> String {
    format(micros, "%Y-%m-%d")
}

/// `2023-05-08 13:56`, in UTC; seconds are cut off.
pub fn format_minute(micros: i64) -> String {
    format(micros, "%Y-%m-%d %H:%M")
}

/// Reads a column of times: text of any layout, timestamps of any unit (a zone is kept to, a naive one takes the
/// default offset), dates, and epoch numbers. Also gives the rows that are not null and could not be read; they are
/// null in the array.
///
/// # Errors
/// A column of another type.
pub fn instants(array: &ArrayRef, default_offset_minutes: i32) -> Result<(TimestampMicrosecondArray, Vec<usize>)> {
    let read: Vec<Option<i64>> = match array.data_type() {
        DataType::Null => vec![None; array.len()],
        DataType::Dictionary(_, values) => return instants(&cast(array, values)?, default_offset_minutes),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let text = cast(array, &DataType::Utf8)?;
            let text: &StringArray = downcast(&text)?;
            text.iter().map(|t| parse_instant(t?, default_offset_minutes)).collect()
        }
        DataType::Timestamp(unit, zone) => {
            let offset = if zone.is_some() { 0 } else { default_offset_minutes };
            let (unit, values) = (*unit, cast(array, &DataType::Int64)?);
            let values: &Int64Array = downcast(&values)?;
            values.iter().map(|v| shift(to_micros(v?, unit)?, offset)).collect()
        }
        DataType::Date32 => {
            let days = cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?;
            let days: &Int64Array = downcast(&days)?;
            days.iter().map(|d| shift(d?.checked_mul(MICROS_PER_DAY)?, default_offset_minutes)).collect()
        }
        DataType::Date64 => {
            let millis = cast(array, &DataType::Int64)?;
            let millis: &Int64Array = downcast(&millis)?;
            millis.iter().map(|m| shift(m?.checked_mul(1_000)?, default_offset_minutes)).collect()
        }
        t if t.is_integer() || matches!(t, DataType::Float32 | DataType::Float64) => {
            let numbers = cast(array, &DataType::Float64)?;
            let numbers: &Float64Array = downcast(&numbers)?;
            numbers.iter().map(|n| instant_of_epoch(n?)).collect()
        }
        other => {
            return Err(Error::data(format!("a column of type {other} cannot be read as times"))
                .next("give text such as 2023-05-08T13:56:00Z, a timestamp, a date, or epoch seconds"));
        }
    };
    let nulls = array.logical_nulls();
    let given = |i: usize| nulls.as_ref().is_none_or(|n| n.is_valid(i));
    let unreadable = (0..array.len()).filter(|&i| given(i) && read[i].is_none()).collect();
    Ok((TimestampMicrosecondArray::from(read).with_timezone(Arc::<str>::from("UTC")), unreadable))
}

/// The whole digits of a plain number, without its sign and fraction.
fn number(text: &str) -> Option<&str> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    (!whole.is_empty() && digits(whole) && digits(fraction)).then_some(whole)
}

/// Cuts off a zone: `Z`, `UTC`, `+09:00`, `+0900` or `+09`. A sign is a zone's only after a time of day: the last
/// part of `2023-05-08` is a day.
fn split_zone(text: &str) -> (&str, Option<i32>) {
    for name in ["Z", "z", "UTC", "GMT"] {
        if let Some(body) = text.strip_suffix(name) {
            return (body.trim_end(), Some(0));
        }
    }
    let sign = text.find(':').and_then(|colon| Some(colon + text[colon..].rfind(['+', '-'])?));
    let Some(sign) = sign else { return (text, None) };
    match zone_minutes(&text[sign + 1..]) {
        Some(minutes) if text.as_bytes()[sign] == b'-' => (text[..sign].trim_end(), Some(-minutes)),
        Some(minutes) => (text[..sign].trim_end(), Some(minutes)),
        None => (text, None),
    }
}

fn zone_minutes(zone: &str) -> Option<i32> {
    let digits: String = match zone.split_once(':') {
        Some((hours, minutes)) if hours.len() == 2 && minutes.len() == 2 => [hours, minutes].concat(),
        Some(_) => return None,
        None => zone.to_owned(),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes): (i32, i32) = match digits.len() {
        2 => (digits.parse().ok()?, 0),
        4 => (digits[..2].parse().ok()?, digits[2..].parse().ok()?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

fn parse_naive(text: &str) -> Option<NaiveDateTime> {
    let bytes = text.as_bytes();
    if bytes.len() >= 8 && bytes[..4].iter().all(u8::is_ascii_digit) && matches!(bytes[4], b'-' | b'/') {
        return parse_year_first(text);
    }
    let day = NaiveDate::parse_from_str(text, "%B-%d-%Y").ok().map(midnight);
    let read = day.or_else(|| NaiveDateTime::parse_from_str(text, "%I:%M %p on %d %B, %Y").ok())?;
    // A year of two digits would be read as the first century's.
    (1000..=9999).contains(&read.year()).then_some(read)
}

fn parse_year_first(text: &str) -> Option<NaiveDateTime> {
    let (day, time) = match text.find([' ', 'T', 't']) {
        Some(at) => (&text[..at], text[at + 1..].trim_start()),
        None => (text, ""),
    };
    let day = NaiveDate::parse_from_str(&day.replace('/', "-"), "%Y-%m-%d").ok()?;
    let time = without_weekday(time);
    if time.is_empty() {
        return Some(midnight(day));
    }
    let read = NaiveTime::parse_from_str(time, "%H:%M:%S%.f").or_else(|_| NaiveTime::parse_from_str(time, "%H:%M"));
    Some(day.and_time(read.ok()?))
}

/// `(Tue) 23:17` without its weekday, which the date already says.
fn without_weekday(time: &str) -> &str {
    let Some((name, rest)) = time.strip_prefix('(').and_then(|t| t.split_once(')')) else { return time };
    if name.chars().all(char::is_alphabetic) { rest.trim_start() } else { time }
}

fn midnight(day: NaiveDate) -> NaiveDateTime {
    day.and_time(NaiveTime::MIN)
}

fn naive_to_utc(naive: NaiveDateTime, offset_minutes: i32) -> Option<i64> {
    shift(naive.and_utc().timestamp_micros(), offset_minutes)
}

/// Local microseconds to UTC; `None` outside the years that can be read.
fn shift(local_micros: i64, offset_minutes: i32) -> Option<i64> {
    let micros = local_micros.checked_sub(i64::from(offset_minutes) * MICROS_PER_MINUTE)?;
    READABLE_MICROS.contains(&micros).then_some(micros)
}

fn to_micros(value: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => value.checked_mul(1_000_000),
        TimeUnit::Millisecond => value.checked_mul(1_000),
        TimeUnit::Microsecond => Some(value),
        // Down, before 1970 too: a time never moves to a later microsecond.
        TimeUnit::Nanosecond => Some(value.div_euclid(1_000)),
    }
}

fn downcast<A: 'static>(array: &ArrayRef) -> Result<&A> {
    array.as_any().downcast_ref().ok_or_else(|| Error::internal("a cast gave another type than it was asked for"))
}

fn format(micros: i64, pattern: &str) -> String {
    match DateTime::from_timestamp_micros(micros) {
        Some(time) => time.format(pattern).to_string(),
        None => format!("{micros} microseconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BooleanArray, Date32Array, Date64Array, DictionaryArray, LargeStringArray, NullArray, StringViewArray,
        TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    };
    use arrow::datatypes::Int32Type;

    /// `date -u -d '2023-05-08 13:56' +%s` gives 1683554160.
    const MAY_8_1356: i64 = 1_683_554_160_000_000;
    /// `date -u -d '2023-05-08' +%s`.
    const MAY_8: i64 = 1_683_504_000_000_000;
    const HOUR: i64 = 3_600_000_000;

    #[test]
    fn zones_are_kept_to_and_naive_times_take_the_default() {
        for (text, offset, expected) in [
            ("2023-05-08T13:56:00Z", 540, MAY_8_1356),
            ("2023-05-08t13:56:00z", 540, MAY_8_1356),
            ("2023-05-08T22:56:00+09:00", 0, MAY_8_1356),
            ("2023-05-08T22:56+0900", -300, MAY_8_1356),
            ("2023-05-08 22:56:00 +09", 0, MAY_8_1356),
            ("2023-05-08T08:26:00-05:30", 60, MAY_8_1356),
            ("2023-05-08 13:56:00 UTC", 60, MAY_8_1356),
            ("2023-05-08T13:56:00", 0, MAY_8_1356),
            ("2023-05-08 13:56", 0, MAY_8_1356),
            ("  2023-05-08   13:56  ", 540, MAY_8_1356 - 9 * HOUR),
            ("2023-05-08", 540, MAY_8 - 9 * HOUR),
            ("2023-05-08", -300, MAY_8 + 5 * HOUR),
        ] {
            assert_eq!(parse_instant(text, offset), Some(expected), "{text} at {offset}");
        }
    }

    #[test]
    fn reads_every_layout_of_the_known_sources() {
        for (text, expected) in [
            ("1:56 pm on 8 May, 2023", MAY_8_1356),
            ("12:00 am on 8 May, 2023", MAY_8),
            ("12:00 pm on 8 May, 2023", MAY_8 + 12 * HOUR),
            ("2023/05/08 (Mon) 13:56", MAY_8_1356),
            ("2023/05/08 (Fri) 13:56", MAY_8_1356),
            ("2023/05/08 13:56", MAY_8_1356),
            ("May-08-2023", MAY_8),
            ("March-15-2024", 1_710_460_800_000_000),
            ("2024-02-29", 1_709_164_800_000_000),
            ("20230508", MAY_8),
            ("2023-05-08T13:56:00.25Z", MAY_8_1356 + 250_000),
            ("2023-05-08 13:56:00.123456789", MAY_8_1356 + 123_456),
            ("1683554160", MAY_8_1356),
            ("1683554160.5", MAY_8_1356 + 500_000),
            ("1683554160000", MAY_8_1356),
            ("1969-12-31T23:59:59.5Z", -500_000),
        ] {
            assert_eq!(parse_instant(text, 0), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "soon",
            "2023",
            "17",
            "2023-02-30",
            "30/02/2023",
            "2023-05-08T25:00:00Z",
            "2023-05-08T13:56:00+99:00",
            "2023-05-08T13:56:00 Mars",
            "March-15-24",
            "20231340",
            "13:56 pm on 8 May, 2023",
            "99999999999999999999",
            "2023-05-08 13:56 é",
            "é:-",
        ] {
            assert_eq!(parse_instant(text, 0), None, "{text}");
        }
    }

    #[test]
    fn formats_day_and_minute() {
        assert_eq!(format_day(MAY_8_1356), "2023-05-08");
        assert_eq!(format_minute(MAY_8_1356 + 59_999_999), "2023-05-08 13:56");
        assert_eq!(format_day(-1), "1969-12-31");
        assert_eq!(parse_instant(&format_minute(MAY_8_1356), 0), Some(MAY_8_1356));
    }

    fn read(array: impl Array + 'static, offset: i32) -> (Vec<Option<i64>>, Vec<usize>) {
        let (times, unreadable) = instants(&(Arc::new(array) as ArrayRef), offset).unwrap();
        assert_eq!(times.data_type(), &crate::schema::time());
        (times.iter().collect(), unreadable)
    }

    #[test]
    fn columns_of_text_name_their_unreadable_rows() {
        let rows = vec![Some("2023-05-08"), None, Some("soon"), Some("2023-05-08T13:56:00Z")];
        let right = (vec![Some(MAY_8 - HOUR), None, None, Some(MAY_8_1356)], vec![2]);
        assert_eq!(read(StringArray::from(rows.clone()), 60), right);
        assert_eq!(read(LargeStringArray::from(rows.clone()), 60), right);
        assert_eq!(read(StringViewArray::from(rows.clone()), 60), right);
        assert_eq!(read(rows.into_iter().collect::<DictionaryArray<Int32Type>>(), 60), right);
    }

    #[test]
    fn columns_of_times_dates_and_numbers() {
        let naive = TimestampSecondArray::from(vec![Some(MAY_8_1356 / 1_000_000), None]);
        assert_eq!(read(naive.clone(), 60), (vec![Some(MAY_8_1356 - HOUR), None], vec![]));
        assert_eq!(read(naive.with_timezone("+05:00"), 60), (vec![Some(MAY_8_1356), None], vec![]));
        let millis = TimestampMillisecondArray::from(vec![MAY_8_1356 / 1_000, i64::MAX]);
        assert_eq!(read(millis.with_timezone("UTC"), 0), (vec![Some(MAY_8_1356), None], vec![1]));
        let nanos = TimestampNanosecondArray::from(vec![MAY_8_1356 * 1_000 + 999, -1]);
        assert_eq!(read(nanos, 0), (vec![Some(MAY_8_1356), Some(-1)], vec![]));
        // 2023-05-08 is day 19485.
        assert_eq!(read(Date32Array::from(vec![19_485]), 0), (vec![Some(MAY_8)], vec![]));
        assert_eq!(read(Date64Array::from(vec![MAY_8 / 1_000]), 60), (vec![Some(MAY_8 - HOUR)], vec![]));
        let seconds = Int64Array::from(vec![Some(MAY_8_1356 / 1_000_000), None, Some(0), Some(i64::MAX)]);
        assert_eq!(read(seconds, 60), (vec![Some(MAY_8_1356), None, Some(0), None], vec![3]));
        assert_eq!(read(NullArray::new(2), 0), (vec![None, None], vec![]));
    }

    #[test]
    fn another_type_is_an_error_that_says_what_to_give() {
        let e = instants(&(Arc::new(BooleanArray::from(vec![true])) as ArrayRef), 0).unwrap_err();
        assert!(e.to_string().contains("Boolean") && e.to_string().contains("2023-05-08T13:56:00Z"), "{e}");
    }
}
