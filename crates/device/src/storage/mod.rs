//! Storages of the user's own: a file, a block store, whatever keeps bytes.
//!
//! [`Storage`] is what a user writes: blocking calls, without `unsafe`. [`StorageDevice`] makes a
//! device of it, whose calls run on helper threads. [`conformance`] finds out whether a storage
//! keeps the rules.
//!
//! The rules. Those of devices (`device.D1` to `D3`), as a storage has to keep them:
//!
//! - S1: a storage is a sequence of `len` bytes. `read_at` and `write_at` return how many bytes
//!   they have moved, at least one of a range within the length: the rest is asked for again. A
//!   read at or past the end returns 0. Nothing is written past the end.
//! - S2: a write that has returned is seen by every read that begins later, in any thread. It
//!   changes the bytes that it has counted, and no other.
//! - S3: calls come from several threads at once, up to 64 of one storage. A read beside a write of
//!   the same bytes returns the old or the new ones, for each 512 of them that begin at a multiple
//!   of 512.
//! - S4: when `sync` has returned, all writes that had returned before it began are durable: they
//!   survive a power cut, and are there when the storage is opened again. After one that failed
//!   nothing is known, and the engine syncs no more.
//! - S5: `grow` makes the storage longer, durably, and never shorter; what is new reads as zeroes.
//! - S6: `punch` may give room back: the range reads as before, or as zeroes. It changes no other
//!   byte, and not the length.
//! - S7: each call comes to an end. One that does not is given up after a time limit. Its thread,
//!   its buffer and its share in the storage stay until it returns, and it may write that late.

mod broken;
mod conformance;
mod device;
#[cfg(test)]
mod tests;

use std::io;

pub use self::broken::Broken;
pub use self::conformance::conformance;
pub use self::device::StorageDevice;
pub use crate::Punched;

/// A storage of the user's own. The rules stand in the module's description.
///
/// Offsets and lengths of ranges are multiples of 512, but for the rest of a call that has moved
/// fewer bytes than it was asked for; buffers begin at multiples of 4,096 in memory. So a file with
/// direct I/O (`O_DIRECT`) that moves all or fails fits, too.
///
/// An error may be of any kind. `Interrupted` and `WouldBlock` are tried again. `StorageFull` from
/// `grow` or `reserve` is a full disk: transactions that need space fail, and no others. A write
/// that fails stops the engine, whatever its kind, unless it is one of a cache on flash. `TimedOut`
/// counts as no answer.
///
/// # Examples
///
/// A file:
///
/// ```
/// use std::fs::File;
/// use std::io;
/// use std::os::unix::fs::FileExt;
///
/// use terrace_device::storage::Storage;
///
/// struct Plain(File);
///
/// impl Storage for Plain {
///     fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
///         self.0.read_at(bytes, offset)
///     }
///     fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
///         self.0.write_at(bytes, offset)
///     }
///     fn sync(&self) -> io::Result<()> {
///         self.0.sync_data()
///     }
///     fn len(&self) -> io::Result<u64> {
///         self.0.metadata().map(|found| found.len())
///     }
///     fn grow(&self, len: u64) -> io::Result<()> {
///         if len > self.len()? {
///             self.0.set_len(len)?;
///         }
///         self.0.sync_all()
///     }
/// }
/// ```
#[expect(clippy::len_without_is_empty, reason = "what matters is how long it is")]
pub trait Storage: Send + Sync + 'static {
    /// Reads at `offset`, and returns how many bytes it has read (S1, S3).
    ///
    /// # Errors
    ///
    /// If it could not: `bytes` may have been changed. The read is tried twice again.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes at `offset`, and returns how many bytes it has written (S1 to S3).
    ///
    /// # Errors
    ///
    /// If it could not: the range may hold the old bytes, the new ones, or a mixture.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes durable what was written (S4).
    ///
    /// # Errors
    ///
    /// If it could not.
    fn sync(&self) -> io::Result<()>;

    /// Bytes that it has. Only `grow` changes that, while it is in use.
    ///
    /// # Errors
    ///
    /// If that is not known.
    fn len(&self) -> io::Result<u64>;

    /// Makes it `len` bytes long if it is shorter, durably (S5). Set the room aside here, if you
    /// can: a write that finds none stops the engine.
    ///
    /// # Errors
    ///
    /// `Unsupported` if its length is fixed; `StorageFull` if there is no room. It is then as long
    /// as before.
    fn grow(&self, len: u64) -> io::Result<()>;

    /// Gives the room of `offset..offset + len` back, if it can (S6), and says whether. By default
    /// nothing is given back.
    ///
    /// # Errors
    ///
    /// If it could not; the range reads as before, or as zeroes.
    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        let _ = (offset, len);
        Ok(Punched::Kept)
    }

    /// Makes sure that writes to `offset..offset + len` will find room, for a storage whose `grow`
    /// does not, or which has holes; what is stored there stays. By default there is nothing to do.
    ///
    /// # Errors
    ///
    /// `StorageFull` if there is no room.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// What errors call it.
    fn name(&self) -> String {
        String::from("a storage without a name")
    }
}
