//! Prefixes, and deletions of many entries, held against a map.

use std::collections::BTreeMap;
use std::ops::Bound;

use terrace::{Database, Error, TableDef};
use terrace_rt::Prng;

type Pair = (u16, &'static [u8]);

const PAIRS: TableDef<Pair, u64> = TableDef::new("pairs");
const TEXTS: TableDef<&str, u64> = TableDef::new("texts");

type Model = BTreeMap<(u16, Vec<u8>), u64>;

/// Bytes of which many begin alike, some of them with the greatest byte.
fn bytes(prng: &mut Prng) -> Vec<u8> {
    (0..prng.below(4)).map(|_| [0, 7, 254, 255][prng.below(4) as usize]).collect()
}

fn part(prng: &mut Prng) -> u16 {
    [0, 1, 255, 256, 65_534, 65_535][prng.below(6) as usize]
}

#[test]
fn entries_are_removed_as_from_a_map() -> Result<(), Error> {
    let db = Database::in_memory()?;
    let (mut prng, mut model) = (Prng::from_seed(12), Model::new());
    for _ in 0..300 {
        db.write(|txn| {
            let mut pairs = txn.open_table(PAIRS)?;
            for _ in 0..40 {
                let (key, value) = ((part(&mut prng), bytes(&mut prng)), prng.below(9));
                pairs.insert((key.0, &key.1), value)?;
                model.insert(key, value);
            }
            let (low, high) = (part(&mut prng), bytes(&mut prng));
            let bounds = (Bound::Included((low, &high[..])), Bound::Excluded((low, &[255; 4][..])));
            let within = |key: &(u16, Vec<u8>)| key.0 == low && key.1 >= high;
            let before = model.len();
            match prng.below(5) {
                0 => {
                    model.retain(|key, _| !within(key));
                    assert_eq!(pairs.remove_range(bounds)? as usize, before - model.len());
                }
                1 => {
                    model.retain(|key, value| !within(key) || *value > 4);
                    let deleted = pairs.retain(bounds, |_, value| value > 4)?;
                    assert_eq!(deleted as usize, before - model.len());
                }
                2 => {
                    let mut keys: Vec<_> =
                        model.keys().filter(|key| within(key)).cloned().collect();
                    let (mut drain, mut from_front) = (pairs.drain(bounds)?, true);
                    for _ in 0..prng.below(6) {
                        from_front = from_front != prng.chance(2);
                        let (entry, key) = match from_front {
                            true => (drain.next(), (!keys.is_empty()).then(|| keys.remove(0))),
                            false => (drain.next_back(), keys.pop()),
                        };
                        let entry =
                            entry.transpose()?.map(|entry| (entry.key().0, entry.key().1.to_vec()));
                        assert_eq!(entry, key);
                        key.into_iter().for_each(|key| assert!(model.remove(&key).is_some()));
                    }
                }
                3 => {
                    let last = model.keys().rfind(|key| within(key)).cloned();
                    let popped = pairs.pop_last(bounds)?;
                    let popped = popped.map(|entry| (entry.key().0, entry.key().1.to_vec()));
                    assert_eq!(popped, last);
                    last.into_iter().for_each(|last| assert!(model.remove(&last).is_some()));
                }
                _ => {}
            }
            let of_low = pairs.prefix((low,))?.count();
            assert_eq!(of_low, model.keys().filter(|key| key.0 == low).count());
            let stored: Result<Model, Error> = pairs
                .range(..)?
                .map(|entry| entry.map(|e| ((e.key().0, e.key().1.to_vec()), e.value())))
                .collect();
            assert_eq!(stored?, model);
            assert_eq!(pairs.is_empty()?, model.is_empty());
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn texts_with_a_prefix_are_those_that_begin_with_it() -> Result<(), Error> {
    let db = Database::in_memory()?;
    let texts = ["", "a", "ab", "ab\u{10ffff}", "ab\u{10ffff}x", "ac", "b"];
    db.write(|txn| {
        let mut table = txn.open_table(TEXTS)?;
        texts.iter().try_for_each(|text| table.insert(text, 0))?;
        for prefix in texts {
            let found: Result<Vec<String>, Error> =
                table.prefix(prefix)?.map(|entry| entry.map(|e| e.key().to_owned())).collect();
            let expected: Vec<_> = texts.iter().filter(|text| text.starts_with(prefix)).collect();
            assert_eq!(found?.iter().collect::<Vec<_>>(), expected, "{prefix:?}");
        }
        Ok::<_, Error>(())
    })
}

/// What reads entries ahead met one that its own transaction had deleted meanwhile: a panic.
#[test]
fn entries_that_the_transaction_deletes_meanwhile_are_passed_over() -> Result<(), Error> {
    let db = Database::in_memory()?;
    let numbers: TableDef<u64, u64> = TableDef::new("numbers");
    db.write(|txn| {
        let mut table = txn.open_table(numbers)?;
        (0..100).try_for_each(|number| table.insert(number, number))?;
        let other = std::cell::RefCell::new(txn.open_table(numbers)?);
        let deleted = table.retain(..50, |number, _| {
            if number % 2 == 0 {
                other.borrow_mut().remove(number + 1).expect("a row");
            }
            false
        })?;
        assert_eq!(deleted, 25);
        let savepoint = txn.savepoint()?;
        (100..110).try_for_each(|number| table.insert(number, number))?;
        let mut drain = table.drain(90..)?;
        assert_eq!(drain.next_back().expect("an entry")?.key(), 109);
        other.borrow_mut().insert(91, 1091)?;
        txn.rollback_to(&savepoint)?;
        other.borrow_mut().insert(93, 1093)?;
        let left: Result<Vec<_>, Error> =
            drain.map(|entry| entry.map(|e| (e.key(), e.value()))).collect();
        let kept = |number| if number == 93 { 1093 } else { number };
        assert_eq!(left?, (90..100).map(|number| (number, kept(number))).collect::<Vec<_>>());
        Ok::<_, Error>(())
    })?;
    assert_eq!(db.read(|txn| Ok::<_, Error>(txn.open_table(numbers)?.range(..)?.count()))?, 40);
    Ok(())
}

#[test]
fn a_name_may_be_made_while_the_program_runs() -> Result<(), Error> {
    let db = Database::in_memory()?;
    for number in 0..200_u64 {
        let name = format!("table {number}");
        db.write(|txn| txn.open_table(TableDef::<u64, u64>::new(&name))?.insert(number, number))?;
    }
    let names = db.read(|txn| txn.table_names())?;
    assert_eq!(names.len(), 200);
    for name in &names {
        db.read(|txn| {
            let table = txn.open_table(TableDef::<u64, u64>::new(name))?;
            let (number, _) = table.first()?.map(|e| (e.key(), e.value())).expect("one row");
            assert_eq!(*name, format!("table {number}"));
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn a_database_in_memory_has_no_files() {
    let flash = Database::builder().flash("nowhere", 1 << 20).create_in_memory();
    assert!(matches!(flash, Err(Error::InvalidOption { option: "flash", .. })), "{flash:?}");
    let log = Database::builder().log("nowhere").create_in_memory();
    assert!(matches!(log, Err(Error::InvalidOption { option: "log", .. })), "{log:?}");
}
