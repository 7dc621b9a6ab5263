//! Entries of the catalog: what stands in the tree that names the tables.
//!
//! ```text
//! key      'T' name                  a table
//!          'D' tree (4, big-endian)  a tree that is garbage, unless a transaction names it
//!
//! value    offset size field
//!               0    1 kind        0 typed
//!               1    1 reserved    zero
//!               2    2 types_len
//!               4    4 tree
//!               8    8 header      page of the tree's header; 0 in a 'D' whose pages are not made
//!              16    4 schema_len
//!              20    4 reserved    zero
//!              24      types       key type name, a zero, value type name; empty in a 'D'
//!                      schema      columns (`schema.rs`); empty if the table has none
//! ```
//!
//! - E1: nothing is believed that does not decode to its last byte: a tree's number is not the
//!   catalog's, nor one that means something else as an owner of extents; its header is the first
//!   page of an extent of home.
//! - E2: names of types that are no text, and a schema that does not decode, cost their own table
//!   these and nothing else: its rows are found without them. Their bytes are kept as they are.

use std::sync::Arc;

use terrace_page::PageId;

use crate::schema::{Schema, TableInfo};
use crate::space::{EXTENT_PAGES, TREES_MAX};
use crate::{KeyHash, TreeId};

const KIND_TYPED: u8 = 0;
const TYPES_LEN_AT: usize = 2;
const TREE_AT: usize = 4;
const HEADER_AT: usize = 8;
const SCHEMA_LEN_AT: usize = 16;
const RESERVED_AT: usize = 20;
const TYPES_AT: usize = 24;

const _: () = assert!(TREE_AT + 4 == HEADER_AT && HEADER_AT + 8 == SCHEMA_LEN_AT);
const _: () = assert!(SCHEMA_LEN_AT + 4 == RESERVED_AT && RESERVED_AT + 4 == TYPES_AT);

/// What an entry says of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tree: TreeId,
    /// Page of its header, or 0 if there is none yet.
    pub(crate) header: PageId,
    /// Names of the types of keys and values.
    pub(crate) types: Arc<str>,
    /// Its columns, if it was made with some.
    pub(crate) schema: Option<Arc<Schema>>,
    /// What was stored for both, if that does not decode (E2).
    pub(crate) damaged: Option<Arc<Damaged>>,
}

/// Stored types and schema of which one does not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damaged {
    types: Vec<u8>,
    schema: Vec<u8>,
    pub(crate) what: &'static str,
}

/// What a key of the catalog says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// The name of a table.
    Table(&'a str),
    /// A tree that is garbage.
    Garbage(TreeId),
}

/// The key of table `name`.
pub(crate) fn table_key(name: &str) -> Vec<u8> {
    [b"T", name.as_bytes()].concat()
}

/// The key of a tree that is garbage.
pub(crate) fn garbage_key(tree: TreeId) -> [u8; 5] {
    let [a, b, c, d] = tree.0.to_be_bytes();
    [b'D', a, b, c, d]
}

/// What is locked for `name`.
pub(crate) fn name_lock(name: &str) -> KeyHash {
    KeyHash::of(&table_key(name))
}

/// What is locked for a tree that is garbage.
pub(crate) fn garbage_lock(tree: TreeId) -> KeyHash {
    KeyHash::of(&garbage_key(tree))
}

/// Decodes a key.
pub(crate) fn decode_key(key: &[u8]) -> Result<Key<'_>, &'static str> {
    match key {
        [b'T', name @ ..] => std::str::from_utf8(name)
            .map(Key::Table)
            .map_err(|_| "a table's name in the catalog is no text"),
        [b'D', a, b, c, d] => Ok(Key::Garbage(TreeId(u32::from_be_bytes([*a, *b, *c, *d])))),
        _ => Err("a key of the catalog is neither a table's nor a tree's"),
    }
}

impl Entry {
    /// An entry of a tree that is garbage.
    pub(crate) fn garbage(tree: TreeId, header: PageId) -> Entry {
        Entry { tree, header, types: "".into(), schema: None, damaged: None }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let encoded;
        let (types, schema) = match self.damaged.as_deref() {
            Some(Damaged { types, schema, .. }) => (&types[..], schema),
            None => {
                encoded = self.schema.as_ref().map_or(Vec::new(), |schema| schema.encode());
                (self.types.as_bytes(), &encoded)
            }
        };
        let mut bytes = vec![KIND_TYPED, 0];
        bytes.extend_from_slice(&(types.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.tree.0.to_le_bytes());
        bytes.extend_from_slice(&self.header.0.to_le_bytes());
        bytes.extend_from_slice(&(schema.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(types);
        bytes.extend_from_slice(schema);
        bytes
    }

    /// Decodes an entry of `key` in a home of `home_pages` (E1, E2).
    pub(crate) fn decode(
        key: Key<'_>,
        value: &[u8],
        home_pages: u64,
    ) -> Result<Entry, &'static str> {
        let Some((head, rest)) = value.split_first_chunk::<TYPES_AT>() else {
            return Err("an entry of the catalog is too short");
        };
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let header = &head[HEADER_AT..SCHEMA_LEN_AT];
        let header = u64::from_le_bytes(header.try_into().expect("eight"));
        let types_len = usize::from(u16::from_le_bytes([head[TYPES_LEN_AT], head[3]]));
        if head[0] != KIND_TYPED || head[1] != 0 || u32_at(RESERVED_AT) != 0 {
            return Err("an entry of the catalog is of a kind that is not known");
        }
        if rest.len() as u64 != types_len as u64 + u64::from(u32_at(SCHEMA_LEN_AT)) {
            return Err("an entry of the catalog has another length than it says");
        }
        let (types, schema) = rest.split_at(types_len);
        let tree = TreeId(u32_at(TREE_AT));
        let number_fits = match key {
            Key::Table(_) => true,
            Key::Garbage(named) => named == tree,
        };
        if tree.0 == 0 || tree.0 >= TREES_MAX || !number_fits {
            return Err("an entry of the catalog names a tree that cannot be");
        }
        let is_unmade = header == 0 && matches!(key, Key::Garbage(_));
        let is_first = header.is_multiple_of(EXTENT_PAGES);
        let is_at_home = is_first && (2 * EXTENT_PAGES..home_pages).contains(&header);
        if !is_unmade && !is_at_home {
            return Err("an entry of the catalog has its tree where none can be");
        }
        let decoded = Schema::decode(schema).map(Arc::new);
        let what = match (std::str::from_utf8(types), &decoded) {
            (Err(_), _) => Some("the names of its types are no text"),
            (_, None) if !schema.is_empty() => Some("its schema does not decode"),
            _ => None,
        };
        let damaged = |what| Arc::new(Damaged { types: types.into(), schema: schema.into(), what });
        Ok(Entry {
            tree,
            header: PageId(header),
            types: String::from_utf8_lossy(types).into(),
            schema: decoded,
            damaged: what.map(damaged),
        })
    }

    /// What it says of the table `name`.
    pub(crate) fn info(&self, name: &str) -> TableInfo {
        let schema = self.schema.as_deref().cloned();
        TableInfo { schema, damage: self.damage(), ..TableInfo::new(name, &self.types) }
    }

    /// What of its types and its schema does not decode.
    pub(crate) fn damage(&self) -> Option<&'static str> {
        self.damaged.as_ref().map(|damaged| damaged.what)
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    const HOME: u64 = 4_096;

    fn entry() -> Entry {
        let types = "u64\0&str".into();
        let column = |name: &str| crate::Column {
            name: name.into(),
            type_name: "INT".into(),
            is_nullable: false,
        };
        let schema = Schema::new(vec![column("a"), column("b")], 1).expect("sound");
        let schema = Some(schema.into());
        Entry { types, schema, ..Entry::garbage(TreeId(7), PageId(96)) }
    }

    #[test]
    fn an_entry_comes_back() {
        let (key, entry) = (Key::Table("t"), entry());
        assert_eq!(Entry::decode(key, &entry.encode(), HOME), Ok(entry));
        let unmade = Entry::garbage(TreeId(9), PageId(0));
        let key = garbage_key(TreeId(9));
        let key = decode_key(&key).expect("just encoded");
        assert_eq!(Entry::decode(key, &unmade.encode(), HOME), Ok(unmade.clone()));
        assert!(Entry::decode(Key::Table("t"), &unmade.encode(), HOME).is_err());
        let other = Key::Garbage(TreeId(8));
        assert!(Entry::decode(other, &unmade.encode(), HOME).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic_and_none_are_believed_that_say_something_else() {
        let mut prng = Prng::from_seed(11);
        let whole = entry().encode();
        let (mut sound, mut damaged) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=prng.below(3) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << prng.below(8);
            }
            bytes.truncate(prng.below(2 * bytes.len() as u64) as usize);
            if let Ok(entry) = Entry::decode(Key::Table("t"), &bytes, HOME) {
                assert_eq!(entry.encode(), bytes);
                assert!(entry.header.0 < HOME && entry.tree.0 != 0);
                match entry.damage() {
                    None => sound += 1,
                    Some(_) => damaged += 1,
                }
            }
            let _key = decode_key(&bytes);
        }
        assert!(sound > 100 && damaged > 100, "{sound} sound, {damaged} damaged");
    }
}
