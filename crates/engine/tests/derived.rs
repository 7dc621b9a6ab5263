//! Structs that derive `Key` and `Value`, as an application would use them.

use terrace::{Database, Error, Key, TableDef, Value};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
struct Visit {
    page: String,
    day: i32,
    user: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Value)]
struct Point(f64, f64);

#[derive(Clone, Debug, PartialEq, Value)]
#[terrace(name = "Visit details")]
struct Details {
    tags: [String; 2],
    at: Point,
    note: Option<String>,
    raw: Vec<u8>,
}

const VISITS: TableDef<Visit, Details> = TableDef::new("visits");

fn visit(page: &str, day: i32, user: Option<u64>) -> Visit {
    Visit { page: page.into(), day, user }
}

fn details(note: Option<&str>) -> Details {
    let tags = ["a".into(), String::new()];
    Details { tags, at: Point(1.5, -2.0), note: note.map(Into::into), raw: vec![0; 300] }
}

#[test]
fn structs_are_stored_and_sort_by_their_fields() -> Result<(), Error> {
    let db = terrace::doc_test::database();
    let mut keys = [
        visit("b", -1, None),
        visit("a\0", 5, Some(1)),
        visit("a", 7, Some(2)),
        visit("a", -7, Some(2)),
        visit("a", 7, None),
    ];
    db.write(|txn| {
        let mut visits = txn.open_table(VISITS)?;
        keys.iter().try_for_each(|key| visits.insert(key.clone(), details(Some(&key.page))))
    })?;
    keys.sort();
    db.read(|txn| {
        let stored: Result<Vec<_>, Error> = txn
            .open_table(VISITS)?
            .range(..)?
            .map(|entry| entry.map(|entry| (entry.key(), entry.value())))
            .collect();
        let expected: Vec<_> =
            keys.iter().map(|key| (key.clone(), details(Some(&key.page)))).collect();
        assert_eq!(stored?, expected);
        Ok::<_, Error>(())
    })
}

/// A struct of the same stored name, with another field.
mod changed {
    #[derive(Clone, terrace::Value)]
    #[terrace(name = "Visit details")]
    pub struct Details {
        pub tags: [String; 2],
        pub at: super::Point,
    }
}

#[test]
fn a_struct_with_other_fields_is_refused() -> Result<(), Error> {
    const OLDER: TableDef<Visit, changed::Details> = TableDef::new("visits");
    let db: Database = terrace::doc_test::database();
    db.write(|txn| txn.open_table(VISITS)?.insert(visit("a", 1, None), details(None)))?;
    let Err(Error::TableTypes { .. }) = db.read(|txn| txn.open_table(OLDER).map(|_| ())) else {
        panic!("a table of other fields was opened");
    };
    Ok(())
}
