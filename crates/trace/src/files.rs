//! Numbers for the files and devices that a trace calls by name, in the order of appearance.
//!
//! - N1: a name keeps its number, and no two names share one.
//! - N2: at most [`FILES_MAX`] names of at most [`crate::lines::LINE_BYTES_MAX`] bytes.

use crate::error::{BadField, Problem};
use std::collections::BTreeMap;

/// Names that a trace may have.
const FILES_MAX: u32 = 1 << 20;

/// The names so far.
#[derive(Default)]
pub struct FileNames {
    numbers: BTreeMap<Vec<u8>, u32>,
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
        let next = self.numbers.len() as u32;
        let number = match self.numbers.get(&self.name) {
            Some(number) => *number,
            None if next == FILES_MAX => {
                return Err(BadField { field: "file", problem: Problem::TooManyFiles });
            }
            None => {
                self.numbers.insert(self.name.clone(), next);
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
            _ => self.numbers.get(&self.name).copied(),
        }
    }

    fn put_together(&mut self, parts: &[&[u8]]) {
        self.name.clear();
        for part in parts {
            self.name.extend_from_slice(part);
            // In no name, since lines have none.
            self.name.push(b'\n');
        }
    }
}
