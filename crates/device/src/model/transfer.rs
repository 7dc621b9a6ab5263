//! Bytes between the buffers of a request and a store: the only place where a model touches memory
//! that it was only lent.

use crate::IoBuf;
use crate::slab::{IMAGE_SIZE, ImageBytes};
use crate::store::{Dropped, Piece, Store};

/// Copies the buffers of a write for `offset` to pieces.
///
/// # Safety
///
/// The buffers can be read for their whole length.
pub(super) unsafe fn gather(store: &Store, offset: u64, bufs: &[IoBuf]) -> Vec<Piece> {
    if offset.is_multiple_of(IMAGE_SIZE as u64) && bufs.iter().all(|buf| buf.len() == IMAGE_SIZE) {
        let first = offset / IMAGE_SIZE as u64;
        let whole = |(buf, page): (&IoBuf, u64)| {
            // SAFETY: the buffer is as long as an image, and the caller vouches for it.
            store.capture_page(page, unsafe { &*buf.ptr().cast::<ImageBytes>() })
        };
        return bufs.iter().zip(first..).map(whole).collect();
    }
    let len = bufs.iter().map(|buf| buf.len() as u64).sum();
    let (mut rest, mut skip) = (bufs, 0);
    store.capture(offset, len, |to| {
        let mut filled = 0;
        while filled < to.len() {
            let buf = rest[0];
            let run = (buf.len() - skip).min(to.len() - filled);
            // SAFETY: `skip + run` is within the buffer, which the caller vouches for.
            let from = unsafe { std::slice::from_raw_parts(buf.ptr().add(skip), run) };
            to[filled..filled + run].copy_from_slice(from);
            filled += run;
            skip += run;
            if skip == buf.len() {
                rest = &rest[1..];
                skip = 0;
            }
        }
    })
}

/// Copies what the store has at `offset` to the buffers of a read.
///
/// # Safety
///
/// The buffers can be written for their whole length, and nothing else uses them.
pub(super) unsafe fn scatter(store: &Store, offset: u64, bufs: &[IoBuf]) -> Result<(), Dropped> {
    let mut at = offset;
    for buf in bufs {
        // SAFETY: the caller vouches for the buffer.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buf.ptr(), buf.len()) };
        store.read(at, bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}
