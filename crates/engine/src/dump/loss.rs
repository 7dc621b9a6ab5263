//! What could not be saved, in words.

use std::fmt;

use terrace_page::PageId;

use crate::Error;
use crate::btree::Flaw;

/// Bytes of a key that a message shows.
const KEY_SHOWN: usize = 48;

/// Something that could not be saved, or not be trusted.
#[derive(Debug)]
pub enum Loss {
    /// Recovery failed: only what home has was read.
    Unrecovered(Error),
    /// A part of the catalog is lost, and with it names of tables.
    InCatalog(Flaw),
    /// An entry of the catalog makes no sense.
    Entry {
        /// Its key.
        key: Vec<u8>,
        /// What is wrong.
        what: &'static str,
    },
    /// A table has lost its name and its types.
    Name {
        /// How it is called in the dump.
        table: String,
        /// The page of its header, or 0.
        header: PageId,
    },
    /// A table's types or its schema: it is saved with what is left of them.
    Schema {
        /// Its name.
        table: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A part of a table.
    InTable {
        /// Its name.
        table: String,
        /// What is lost of it.
        flaw: Flaw,
    },
}

/// A key as text where it is text, else in hexadecimal digits.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(KEY_SHOWN)];
        let is_text = !shown.is_empty() && shown.iter().all(|byte| (32..127).contains(byte));
        match std::str::from_utf8(shown) {
            Ok(text) if is_text => write!(f, "{text:?}")?,
            _ => {
                f.write_str("0x")?;
                shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            }
        }
        if self.0.len() > KEY_SHOWN { f.write_str("...") } else { Ok(()) }
    }
}

fn range(f: &mut fmt::Formatter<'_>, lower: &[u8], upper: Option<&[u8]>) -> fmt::Result {
    match (lower, upper) {
        ([], None) => f.write_str("all keys"),
        ([], Some(upper)) => write!(f, "keys below {}", Shown(upper)),
        (lower, None) => write!(f, "keys from {} on", Shown(lower)),
        (lower, Some(upper)) => write!(f, "keys from {} up to {}", Shown(lower), Shown(upper)),
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Keys { lower, upper, page, what } => {
                f.write_str("lost: ")?;
                range(f, lower, upper.as_deref())?;
                write!(f, " ({page}: {what})")
            }
            Flaw::Value { key, leaf, what } => {
                write!(f, "lost: the value of key {} (in {leaf}: {what})", Shown(key))
            }
            Flaw::Node { page, what } => {
                write!(f, "{page} is damaged ({what}); all leaves below it were found without it")
            }
            Flaw::Doubtful { lower, upper, page } => {
                f.write_str("doubtful: ")?;
                range(f, lower, upper.as_deref())?;
                write!(f, " ({page} may be of an older day: its allocation map is damaged)")
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Unrecovered(why) => write!(
                f,
                "the database cannot be recovered ({why}): only its home was read, which may lack \
                 the last changes, and have some that were never committed"
            ),
            Loss::InCatalog(flaw) => write!(f, "in the list of tables: {flaw}"),
            Loss::Entry { key, what } => {
                write!(f, "in the list of tables, at {}: {what}", Shown(key))
            }
            Loss::Name { table, header } => write!(
                f,
                "a table without a name was found (header: {header}): it is saved as \"{table}\", \
                 without its types"
            ),
            Loss::Schema { table, what } => write!(f, "table \"{table}\": {what}: it is lost"),
            Loss::InTable { table, flaw } => write!(f, "table \"{table}\": {flaw}"),
        }
    }
}
