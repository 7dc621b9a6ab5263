//! `terrace stat`: what it shows of tables.

use std::path::Path;
use std::process::{Command, Output};

use terrace::{Database, TableDef};

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder).env_remove("RUST_BACKTRACE");
    command.output().expect("the command starts")
}

#[test]
fn stat_shows_types_and_columns_of_tables() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let builder = Database::builder().home_size(8 << 20).log_size(1 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    let column = |name: &str, is_nullable| terrace::Column {
        name: name.into(),
        type_name: "INT".into(),
        is_nullable,
    };
    let schema = terrace::Schema::new(vec![column("id", false), column("age", true)], 1);
    let table = TableDef::<u64, Option<u8>>::new("people");
    let made = db.write(|txn| {
        let mut people = txn.open_table_with(table, schema.as_ref().expect("sound"))?;
        people.insert(1, None)?;
        people.insert(2, Some(36))?;
        txn.open_table(TableDef::<&str, u64>::new("plain")).map(drop)
    });
    made.expect("room");
    db.close().expect("a good disk");
    let output = terrace(folder.path(), &["stat", "db"]);
    let said = String::from_utf8(output.stdout).expect("text");
    // The checkpoint of the closing has listed them.
    let people = said.lines().find(|line| line.starts_with("  people ")).expect("listed");
    let cells: Vec<&str> = people.split_whitespace().collect();
    assert_eq!((cells.len(), &cells[2..]), (4, &["2", "1"][..]), "{said}");
    let lines = "\n  people: <u64, u8?> (id INT; age INT?)\n  plain: <str, u64>\n";
    assert!(said.contains(lines), "{said}");
    let output = terrace(folder.path(), &["stat", "db", "--json", "-"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (people, plain) = (&said["schemas"][0], &said["schemas"][1]);
    assert_eq!(
        (&said["table_rows"]["people"], &said["table_depth"]["plain"]),
        (&2.into(), &1.into())
    );
    assert_eq!((&people["table"], &people["value_type"]), (&"people".into(), &"u8?".into()));
    assert_eq!(
        (&people["columns"][0]["key"], &people["columns"][1]["key"]),
        (&true.into(), &false.into())
    );
    assert_eq!(people["columns"][1]["nullable"], true);
    assert!(plain["columns"].is_null());
}
