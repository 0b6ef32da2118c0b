//! One schema for the files of an input: writers change, and a column's type with them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};

use crate::error::{Error, Result};

/// The columns of all files, each of a type that every file's values can be read as.
pub(super) fn merged(schemas: &[Schema]) -> Result<Schema> {
    let mut fields: Vec<Field> = Vec::new();
    for schema in schemas {
        for field in schema.fields() {
            add(&mut fields, field).map_err(|(a, b)| {
                Error::data(format!("column {:?} is {a} in one file and {b} in another", field.name())).next(
                    "write the files with one type, or name them as two inputs and UNION them in the first SELECT",
                )
            })?;
        }
    }
    Ok(Schema::new(fields))
}

/// Two types that have nothing in common.
type Clash = (DataType, DataType);

fn add(fields: &mut Vec<Field>, field: &Field) -> Result<(), Clash> {
    match fields.iter_mut().find(|f| f.name() == field.name()) {
        Some(known) => *known = Field::new(field.name(), common(known.data_type(), field.data_type())?, true),
        None => fields.push(Field::new(field.name(), field.data_type().clone(), true)),
    }
    Ok(())
}

/// The type that values of both can be read as without loss of meaning.
fn common(a: &DataType, b: &DataType) -> Result<DataType, Clash> {
    use DataType::{Date32, Date64, Dictionary, FixedSizeList, LargeList, List, Null, Struct, Timestamp};
    let number = |t: &DataType| t.is_integer() || t.is_floating();
    let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let time = |t: &DataType| matches!(t, Timestamp(..) | Date32 | Date64);
    Ok(match (a, b) {
        (a, b) if a == b => a.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Dictionary(_, value), other) | (other, Dictionary(_, value)) => common(value, other)?,
        (a, b) if a.is_integer() && b.is_integer() => DataType::Int64,
        (a, b) if number(a) && number(b) => DataType::Float64,
        (Timestamp(_, one), Timestamp(_, two)) if one.is_some() == two.is_some() => {
            Timestamp(TimeUnit::Microsecond, one.is_some().then(|| "UTC".into()))
        }
        // As text a time keeps what is known of its zone.
        (a, b) if (text(a) || time(a)) && (text(b) || time(b)) => DataType::Utf8,
        (List(x) | LargeList(x) | FixedSizeList(x, _), List(y) | LargeList(y) | FixedSizeList(y, _)) => {
            List(Arc::new(Field::new(x.name(), common(x.data_type(), y.data_type())?, true)))
        }
        (Struct(x), Struct(y)) => {
            let mut fields: Vec<Field> = x.iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
            y.iter().try_for_each(|field| add(&mut fields, field))?;
            Struct(Fields::from(fields))
        }
        (a, b) => return Err((a.clone(), b.clone())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(unit: TimeUnit, zone: Option<&str>) -> DataType {
        DataType::Timestamp(unit, zone.map(Into::into))
    }

    #[test]
    fn what_files_have_in_common() {
        use DataType::{Boolean, Date32, Float64, Int8, Int64, LargeUtf8, Null, UInt32, Utf8, Utf8View};
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(Utf8));
        let list = |t: &DataType| DataType::List(Arc::new(Field::new("item", t.clone(), true)));
        let large = |t: &DataType| DataType::LargeList(Arc::new(Field::new("element", t.clone(), true)));
        for (a, b, both) in [
            (Utf8, Utf8View, Some(Utf8)),
            (LargeUtf8, dictionary, Some(Utf8)),
            (Null, LargeUtf8, Some(LargeUtf8)),
            (Int8, UInt32, Some(Int64)),
            (Int64, Float64, Some(Float64)),
            (
                time(TimeUnit::Nanosecond, Some("+09:00")),
                time(TimeUnit::Millisecond, Some("UTC")),
                Some(time(TimeUnit::Microsecond, Some("UTC"))),
            ),
            (time(TimeUnit::Second, None), time(TimeUnit::Second, Some("UTC")), Some(Utf8)),
            (time(TimeUnit::Second, None), Utf8View, Some(Utf8)),
            (Date32, Utf8, Some(Utf8)),
            (list(&Int8), large(&Int64), Some(list(&Int64))),
            (Utf8, Int64, None),
            (Boolean, Int64, None),
        ] {
            assert_eq!(common(&a, &b).ok(), both, "{a} {b}");
            let turned = common(&b, &a).ok();
            assert!(turned == both || matches!(turned, Some(DataType::List(_))), "{b} {a}: {turned:?}");
        }
        let error = merged(&[
            Schema::new(vec![Field::new("n", Utf8, false)]),
            Schema::new(vec![Field::new("n", Int64, false)]),
        ]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("\"n\" is Utf8 in one file and Int64 in another"), "{error}");
    }

    #[test]
    fn fields_of_a_struct_are_those_of_all_files() {
        let one = DataType::Struct(vec![Field::new("role", DataType::Utf8, false)].into());
        let two = DataType::Struct(vec![Field::new("at", DataType::Int64, false)].into());
        let DataType::Struct(both) = common(&one, &two).unwrap() else { panic!("a struct") };
        let names: Vec<_> = both.iter().map(|f| (f.name().as_str(), f.is_nullable())).collect();
        assert_eq!(names, [("role", true), ("at", true)]);
    }
}
