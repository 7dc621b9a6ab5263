//! Compaction: a home that has shrunk gives its room back to the file system.

use crate::events::Event;
use crate::{Database, Error};

/// What [`Database::compact`] has done.
///
/// # Examples
///
/// ```
/// # let db = terrace::doc_test::database();
/// let compacted = db.compact()?;
/// println!("{} bytes went back to the file system", compacted.bytes_punched);
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Pages that have another place now, so that the extent where they were is free.
    pub pages_moved: u64,
    /// Pages that are free since their contents found room in a neighbour.
    pub pages_freed: u64,
    /// Bytes of home that were given back to the file system, as far as it counts them at once. 0
    /// if home is on a block device, or on a file system without holes.
    pub bytes_punched: u64,
}

impl Database {
    /// Brings what is stored in half-empty pages together, and gives the room of home that is free
    /// then back to the file system: the file of home has holes there, and `du` shows less. What
    /// was free before without holes goes back, too. Without it, home uses such room again, but no
    /// other file does.
    ///
    /// The database stays in use. A compaction waits for no lock, and changes few pages at a time;
    /// other transactions run beside it, and each of its steps survives a crash by itself. It reads
    /// all leaves, logs each page that it changes, and takes checkpoints at its end, which write
    /// home all that is dirty. Another thread may close the database meanwhile: it then returns
    /// `Closed`. A value of 4,041 bytes or more, its key and 11 bytes included, moves in a
    /// transaction that locks its row; it stays if another one has locked that, and if it has 1 MiB
    /// or more.
    ///
    /// # Errors
    ///
    /// `ReadOnly`, `Failed`, `Closed`; `Corrupt` if it meets a damaged page; `LogFull`, `LogHeld`,
    /// `AllPinned` or `HomeFull` if what they tell of lasts. What was done before stays.
    pub fn compact(&self) -> Result<Compacted, Error> {
        self.check_writable()?;
        self.engine().check_beginning()?;
        self.engine().check_running()?;
        let engine = self.engine();
        let _alone = engine.compacting.lock();
        let compacted = engine.trees.compact(engine).and_then(|tidied| {
            let bytes_punched = engine.trees.punch(engine)?;
            Ok(Compacted { pages_moved: tidied.moved, pages_freed: tidied.merged, bytes_punched })
        });
        if let Ok(compacted) = &compacted {
            Event::Compacted { compacted }.tell();
        }
        compacted.map_err(|error| engine.explain_first(error))
    }
}
