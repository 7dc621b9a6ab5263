//! What the catalog of a PostgreSQL database calls its files.

use super::Traffic;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::process::Command;

/// The database's number, and each relation with its file.
const QUERY: &str = "SELECT 'database', oid::text, '' FROM pg_database \
                     WHERE datname = current_database() \
                     UNION ALL SELECT 'relation', pg_relation_filenode(oid)::text, \
                     oid::regclass::text \
                     FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL";
/// Between fields: in no name.
const SEPARATOR: &str = "\u{1f}";

/// Names the relations of those of `files` that belong to the database at `connection`, which psql
/// knows how to reach.
///
/// # Errors
///
/// psql is missing, or the database does not answer.
pub fn name_relations(files: &mut BTreeMap<u32, Traffic>, connection: &str) -> Result<(), Failure> {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-A", "-t", "-F", SEPARATOR, "-c", QUERY, "-d", connection]);
    let output =
        psql.output().map_err(|error| Failure::failed("--catalogue: cannot run psql", error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Failure::failed("--catalogue: psql", said.trim()));
    }
    let (database, relations) = read(&String::from_utf8_lossy(&output.stdout));
    for file in files.values_mut() {
        file.relation = relation_of(&file.path, &database, &relations);
    }
    Ok(())
}

/// The number of the database, and the names of relations by the numbers of their files.
fn read(text: &str) -> (String, BTreeMap<String, String>) {
    let (mut database, mut relations) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        let mut fields = line.split(SEPARATOR);
        match (fields.next(), fields.next(), fields.next()) {
            (Some("database"), Some(number), _) => database = number.to_string(),
            (Some("relation"), Some(number), Some(name)) => {
                relations.insert(number.to_string(), name.to_string());
            }
            _ => {}
        }
    }
    (database, relations)
}

/// The relation whose file, fork or segment is at `path`: `base/5/16384_vm`, `base/5/16384.1`.
fn relation_of(path: &str, database: &str, relations: &BTreeMap<String, String>) -> Option<String> {
    let mut parts = path.rsplit('/');
    let (name, folder) = (parts.next()?, parts.next()?);
    let end = name.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(name.len());
    let relation = relations.get(&name[..end]).filter(|_| folder == database)?;
    let fork = name[end..].split('.').next().unwrap_or_default().trim_start_matches('_');
    Some(if fork.is_empty() { relation.clone() } else { format!("{relation} {fork}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_the_catalog() {
        let rows = ["database|5|", "relation|16384|accounts", "relation|16390|accounts_pkey"];
        let (database, relations) = read(&rows.join("\n").replace('|', SEPARATOR));
        let name = |path: &str| relation_of(path, &database, &relations);
        assert_eq!(name("/d/base/5/16384").as_deref(), Some("accounts"));
        assert_eq!(name("/d/base/5/16384.2").as_deref(), Some("accounts"));
        assert_eq!(name("/d/base/5/16384_vm").as_deref(), Some("accounts vm"));
        assert_eq!(name("/d/base/5/16390").as_deref(), Some("accounts_pkey"));
        assert_eq!(name("/d/base/4/16384"), None);
        assert_eq!(name("/d/pg_wal/000000010000000000000001"), None);
    }
}
