//! Pages that are read one by one: a few are handed over at a time, and each is the caller's again
//! as it ends (`terrace_device::Reads`).
//!
//! - G1: what owns a page's memory is held here while a device may fill it, so that it cannot go.

use std::io;

use terrace_device::{Device, IoBuf, Reads};
use terrace_page::{PAGE_SIZE, PageBuf};

/// What owns the memory of a page.
///
/// # Safety
///
/// `bytes` is always the same address, wherever the value is moved, of memory that is a page's for
/// as long as the value lives. Until then nothing else writes there, or reads but word by word as
/// atomics.
pub unsafe trait PagePlace {
    /// The address of the page's memory.
    fn bytes(&mut self) -> *mut PageBuf;
}

/// One page to be read.
pub struct PageRead<P, T> {
    /// Its number on the device.
    pub number: u64,
    /// Where it goes.
    pub place: P,
    /// What its caller wants back with it.
    pub note: T,
}

/// Pages to be read. Neither function may wait for a task that may wait for a page that is being
/// read.
pub trait PageReads<P, T> {
    /// Appends the next few pages to `part`, which is empty; none: there are no more.
    fn next(&mut self, part: &mut Vec<PageRead<P, T>>);

    /// The read of a page has ended. If it failed, the bytes are undefined, though initialised.
    fn ended(&mut self, place: P, note: T, result: io::Result<()>);
}

/// Reads pages, and returns when all of them have ended.
pub fn read_each<P: PagePlace, T>(device: &dyn Device, pages: &mut impl PageReads<P, T>) {
    let mut held = Held { pages, part: Vec::new(), places: Vec::new() };
    // SAFETY: `held` owns what owns the memory of each page (G1) until its read has ended, or until
    // `read_each` has returned or was unwound, since it is declared before.
    unsafe { device.read_each(&mut held) }
}

/// The pages that are being read, by their numbers.
struct Held<'r, P, T, R> {
    pages: &'r mut R,
    part: Vec<PageRead<P, T>>,
    places: Vec<Option<(P, T)>>,
}

impl<P: PagePlace, T, R: PageReads<P, T>> Reads for Held<'_, P, T, R> {
    fn next(&mut self, part: &mut Vec<(u64, IoBuf)>) {
        self.pages.next(&mut self.part);
        for PageRead { number, mut place, note } in self.part.drain(..) {
            let buf = IoBuf::from_raw(place.bytes().cast(), PAGE_SIZE);
            part.push((number * PAGE_SIZE as u64, buf));
            self.places.push(Some((place, note)));
        }
    }

    fn ended(&mut self, index: usize, result: io::Result<()>) {
        let (place, note) = self.places[index].take().expect("a read ends once");
        self.pages.ended(place, note, result);
    }
}
