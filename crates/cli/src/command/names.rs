//! Names of rows as people write them: whatever their case, with or without dashes, by other names
//! that the field has for them; and what was probably meant by a name that no row has.

use std::fmt::Display;

/// Other names of rows.
const ALIASES: [(&str, &str); 9] = [
    ("noflash", "no-ssd"),
    ("none", "no-ssd"),
    ("cleanwrite", "cw"),
    ("dualwrite", "dw"),
    ("lazycleaning", "lc"),
    ("temperature", "tac"),
    ("belady", "opt"),
    ("twoq", "2q"),
    ("secondchance", "clock"),
];
/// Edits between a name and what was probably meant.
const EDITS_MAX: usize = 2;

/// What `find` has by `name`, or by another spelling of it.
///
/// # Errors
///
/// What `find` says, which lists the known names, and the one that was probably meant.
pub fn named<T, E: Display>(name: &str, find: impl Fn(&str) -> Result<T, E>) -> Result<T, String> {
    let error = match find(name) {
        Ok(found) => return Ok(found),
        Err(error) => error.to_string(),
    };
    let bare = bare(name);
    let alias = ALIASES.iter().find(|row| row.0 == bare).map(|row| row.1);
    let known = || error.rsplit_once("known: ").map_or("", |(_, known)| known).split(", ");
    let same = known().find(|known| self::bare(known) == bare);
    if let Some(found) = same.or(alias).and_then(|name| find(name).ok()) {
        return Ok(found);
    }
    let far = |known: &&str| strsim::damerau_levenshtein(&self::bare(known), &bare);
    match known().min_by_key(far).filter(|near| far(near) <= EDITS_MAX.min(bare.len() / 2)) {
        Some(near) => Err(format!("{error}; did you mean `{near}`?")),
        None => Err(error),
    }
}

/// A name without what people vary.
fn bare(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_' | ' '));
    letters.collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_policy::designs;

    #[test]
    fn names_are_found_as_people_write_them() {
        for (written, name) in [
            ("lc", "lc"),
            ("LC", "lc"),
            ("No_SSD", "no-ssd"),
            ("noflash", "no-ssd"),
            ("Lazy-Cleaning", "lc"),
            ("FaceGR", "face-gr"),
        ] {
            assert_eq!(named(written, designs::find).map(|design| design.name), Ok(name));
        }
        let said = |name| named(name, designs::find).map(|_| ()).unwrap_err();
        assert!(said("exclusve").ends_with("; did you mean `exclusive`?"), "{}", said("exclusve"));
        assert!(!said("fastest").contains("did you mean"));
    }
}
