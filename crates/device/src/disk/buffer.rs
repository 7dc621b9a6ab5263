//! What a disk remembers: a few segments of contiguous sectors, the newest filled by read-ahead.
//!
//! - B1: a segment holds a contiguous range no longer than the segment size; reading on past that
//!   drops its front.
//! - B2: at most one segment is being read ahead, the most recently used one.
//! - Segments are reused in order of last use.

/// How far a disk reads on after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// Not at all.
    Off,
    /// Until this many sectors past a read from the medium, or until the drive has something else
    /// to do.
    Once(u64),
    /// As `Once`, and further past every read that the buffer serves: a stream never runs dry.
    Stream(u64),
}

/// The buffer of a disk in figures.
#[derive(Clone, Copy, Debug)]
pub struct Buffering {
    /// Segments; zero for a disk without a buffer.
    pub segments: usize,
    /// Length of a segment in sectors.
    pub segment_sectors: u64,
    /// What happens after a read.
    pub read_ahead: ReadAhead,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
}

/// Where a read finds its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// All are in the buffer.
    Held,
    /// The segment that is being read ahead has the first ones, or begins to read them next.
    Coming,
    /// The medium must be asked.
    Absent,
}

/// The segments of a disk.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    figures: Buffering,
    /// In order of last use, the newest last.
    segments: Vec<Segment>,
}

impl Buffer {
    pub(super) fn new(figures: Buffering) -> Buffer {
        Buffer { figures, segments: Vec::with_capacity(figures.segments) }
    }

    /// Finds `sector..end`; `reading` says whether the newest segment is being read ahead.
    pub(super) fn lookup(&self, sector: u64, end: u64, reading: Option<u64>) -> Lookup {
        let held = |segment: &Segment| segment.start <= sector && end <= segment.end;
        if self.segments.iter().any(held) {
            return Lookup::Held;
        }
        match (self.segments.last(), reading) {
            (Some(newest), Some(limit))
                if newest.start <= sector && sector <= newest.end && end <= limit =>
            {
                Lookup::Coming
            }
            _ => Lookup::Absent,
        }
    }

    /// Marks the segment that holds `sector` as the newest; returns its end.
    pub(super) fn touch(&mut self, sector: u64) -> u64 {
        let holds = |segment: &Segment| segment.start <= sector && sector < segment.end;
        let at = self.segments.iter().position(holds).expect("a held sector has a segment");
        let segment = self.segments.remove(at);
        self.segments.push(segment);
        segment.end
    }

    /// Puts `sector..end` into the oldest segment, or appends it to the one that ends there.
    pub(super) fn put(&mut self, sector: u64, end: u64) {
        if self.figures.segments == 0 {
            return;
        }
        let overlaps = |segment: &Segment| segment.start < end && sector < segment.end;
        let adjoins = |segment: &Segment| segment.end == sector;
        if let Some(at) = self.segments.iter().position(adjoins) {
            let segment = self.segments.remove(at);
            self.segments.push(segment);
            self.extend(end);
            return;
        }
        self.segments.retain(|segment| !overlaps(segment));
        if self.segments.len() == self.figures.segments {
            self.segments.remove(0);
        }
        self.segments.push(Segment { start: sector, end: sector });
        self.extend(end);
    }

    /// Lets the newest segment reach to `end`.
    pub(super) fn extend(&mut self, end: u64) {
        let limit = self.figures.segment_sectors;
        let newest = self.segments.last_mut().expect("a segment was put before it is extended");
        assert!(end >= newest.end, "a segment shrank");
        newest.end = end;
        newest.start = newest.start.max(end.saturating_sub(limit));
    }

    /// Forgets what overlaps `sector..end`, which is being overwritten on the medium.
    pub(super) fn forget(&mut self, sector: u64, end: u64) {
        self.segments.retain(|segment| segment.end <= sector || end <= segment.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(segments: usize) -> Buffer {
        let read_ahead = ReadAhead::Once(64);
        Buffer::new(Buffering { segments, segment_sectors: 100, read_ahead })
    }

    #[test]
    fn the_oldest_segment_goes_first() {
        let mut buffer = buffer(2);
        buffer.put(0, 10);
        buffer.put(100, 110);
        buffer.touch(5);
        buffer.put(200, 210);
        assert_eq!(buffer.lookup(0, 10, None), Lookup::Held);
        assert_eq!(buffer.lookup(100, 110, None), Lookup::Absent);
    }

    #[test]
    fn a_long_segment_loses_its_front() {
        let mut buffer = buffer(2);
        buffer.put(0, 10);
        buffer.extend(150);
        assert_eq!(buffer.lookup(40, 50, None), Lookup::Absent);
        assert_eq!(buffer.lookup(50, 150, None), Lookup::Held);
        assert_eq!(buffer.lookup(140, 160, Some(170)), Lookup::Coming);
    }

    #[test]
    fn overwritten_sectors_are_forgotten() {
        let mut buffer = buffer(2);
        buffer.put(0, 10);
        buffer.forget(9, 12);
        assert_eq!(buffer.lookup(0, 5, None), Lookup::Absent);
    }
}
