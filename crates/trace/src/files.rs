//! Numbers for the files and devices that a trace calls by name, in the order of appearance.
//!
//! - N1: a name keeps its number, and no two names share one.
//! - N2: at most [`FILES_MAX`] names of at most [`crate::lines::LINE_BYTES_MAX`] bytes.

use crate::error::{BadField, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names that a trace may have.
const FILES_MAX: u32 = 1 << 20;
/// Follows each part of a name. It is in no name, since lines have none.
const PART_END: u8 = b'\n';

/// The names so far.
#[derive(Default)]
pub struct FileNames {
    numbers: BTreeMap<Arc<[u8]>, u32>,
    /// By number.
    names: Vec<Arc<[u8]>>,
    /// The name asked for last, and its number: mostly the next, too.
    last: Option<(Vec<u8>, u32)>,
    /// Where names are put together.
    name: Vec<u8>,
}

impl FileNames {
    /// The number of the name that has these `parts`, which it is given unless it has one.
    ///
    /// # Errors
    ///
    /// One name too many.
    pub fn number(&mut self, parts: &[&[u8]]) -> Result<u32, BadField> {
        self.put_together(parts);
        match &self.last {
            Some((name, number)) if *name == self.name => return Ok(*number),
            _ => {}
        }
        let next = self.names.len() as u32;
        let number = match self.numbers.get(&self.name[..]) {
            Some(number) => *number,
            None if next == FILES_MAX => {
                return Err(BadField { field: "file", problem: Problem::TooManyFiles });
            }
            None => {
                let name: Arc<[u8]> = Arc::from(&self.name[..]);
                self.names.push(name.clone());
                self.numbers.insert(name, next);
                next
            }
        };
        self.last = Some((self.name.clone(), number));
        Ok(number)
    }

    /// The number of the name that has these `parts`, if it has one.
    pub fn get(&mut self, parts: &[&[u8]]) -> Option<u32> {
        self.put_together(parts);
        match &self.last {
            Some((name, number)) if *name == self.name => Some(*number),
            _ => self.numbers.get(&self.name[..]).copied(),
        }
    }

    /// The name with this `number`, of a single part.
    pub fn name(&self, number: u32) -> Option<&[u8]> {
        self.names.get(number as usize)?.strip_suffix(&[PART_END])
    }

    fn put_together(&mut self, parts: &[&[u8]]) {
        self.name.clear();
        for part in parts {
            self.name.extend_from_slice(part);
            self.name.push(PART_END);
        }
    }
}
