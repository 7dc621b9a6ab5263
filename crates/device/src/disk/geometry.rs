//! Where a logical sector lies: cylinder, surface, and angle on its track.
//!
//! ```text
//! zone 0 (outer, long tracks)           zone 1               ...
//! +--------------------------------------+-----------------------
//! | reserved | track | track | ... spare | track | track | ...
//! +--------------------------------------+-----------------------
//!              one cylinder = one track on each surface; next track: head switch,
//!              after the last surface: next cylinder. Each switch shifts sector 0 by a skew.
//! ```
//!
//! - G1: sectors map to distinct places, in order within a track.
//! - G2: zones are in order of sectors and of cylinders, and do not overlap.
//! - Slipped sectors are skipped in place: all later sectors of the zone move on by one.

use super::mechanism::Turn;

/// The order of tracks over the surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Every cylinder begins on surface 0.
    Conventional,
    /// Odd cylinders run through the surfaces backwards, so that a cylinder switch switches no
    /// head.
    Serpentine,
}

/// A run of cylinders with equally long tracks.
#[derive(Clone, Debug)]
pub struct Zone {
    /// First cylinder, counted from the outer edge.
    pub first_cylinder: u32,
    /// Cylinders in the zone.
    pub cylinders: u32,
    /// Physical sectors on a track.
    pub sectors_per_track: u32,
    /// Of these, spares at the end of each track, which hold no data.
    pub spares_per_track: u32,
    /// Sectors at the start of the zone that hold no data.
    pub reserved: u64,
    /// Sectors in the zone that hold no data, beside the above and the slips.
    pub spares: u64,
    /// Angle of the zone's first sector, in sectors.
    pub offset: f64,
    /// Shift of sector 0 after a head switch, in sectors.
    pub track_skew: f64,
    /// Shift of sector 0 after a cylinder switch, in sectors.
    pub cylinder_skew: f64,
    /// Physical sectors, counted from the zone's start, that are skipped. Ascending.
    pub slips: Vec<u64>,
}

/// A place on the disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Cylinder from the outer edge.
    pub cylinder: u32,
    /// Surface.
    pub surface: u32,
    /// Angle at which the sector starts.
    pub angle: Turn,
    /// Sectors that follow on this track, this one included.
    pub sectors_left: u32,
    /// Length of the track.
    pub sectors_per_track: u32,
}

/// The layout of a disk.
#[derive(Clone, Debug)]
pub struct Geometry {
    surfaces: u32,
    layout: Layout,
    zones: Vec<Zone>,
    /// First logical sector of each zone, and the number of all sectors at the end.
    starts: Vec<u64>,
}

impl Geometry {
    /// A disk of `zones` on `surfaces` recording surfaces.
    ///
    /// # Panics
    ///
    /// If zones are absent, empty, or out of order.
    #[must_use]
    pub fn new(surfaces: u32, layout: Layout, zones: Vec<Zone>) -> Geometry {
        assert!(surfaces > 0, "a disk without surfaces");
        assert!(!zones.is_empty(), "a disk without zones");
        let mut starts = vec![0];
        for (index, zone) in zones.iter().enumerate() {
            let previous = index.checked_sub(1).map(|before| &zones[before]);
            let free_from = previous.map_or(0, |before| before.first_cylinder + before.cylinders);
            assert!(zone.first_cylinder >= free_from, "zone {index} overlaps");
            assert!(zone.spares_per_track < zone.sectors_per_track, "zone {index} is all spares");
            let tracks = u64::from(zone.cylinders) * u64::from(surfaces);
            let held = tracks * u64::from(zone.sectors_per_track - zone.spares_per_track);
            let lost = zone.reserved + zone.spares + zone.slips.len() as u64;
            assert!(held > lost, "zone {index} holds nothing");
            starts.push(starts[index] + held - lost);
        }
        Geometry { surfaces, layout, zones, starts }
    }

    /// Logical sectors of the disk.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.starts[self.zones.len()]
    }

    /// Where logical `sector` lies.
    ///
    /// # Panics
    ///
    /// If the disk has no such sector.
    #[must_use]
    pub fn locate(&self, sector: u64) -> Place {
        assert!(sector < self.sectors(), "sector {sector} is past the end of the disk");
        let index = self.starts.partition_point(|&start| start <= sector) - 1;
        let zone = &self.zones[index];
        let mut physical = sector - self.starts[index] + zone.reserved;
        for &slip in &zone.slips {
            if slip > physical {
                break;
            }
            physical += 1;
        }
        let used = u64::from(zone.sectors_per_track - zone.spares_per_track);
        let (track, on_track) = (physical / used, (physical % used) as u32);
        let cylinder = (track / u64::from(self.surfaces)) as u32;
        let order = (track % u64::from(self.surfaces)) as u32;
        let absolute = zone.first_cylinder + cylinder;
        let surface = match self.layout {
            Layout::Serpentine if !absolute.is_multiple_of(2) => self.surfaces - 1 - order,
            _ => order,
        };
        let head_switches = track - u64::from(cylinder);
        let skew = zone.offset
            + zone.track_skew * head_switches as f64
            + zone.cylinder_skew * f64::from(cylinder);
        let angle = (skew + f64::from(on_track)) / f64::from(zone.sectors_per_track);
        Place {
            cylinder: absolute,
            surface,
            angle: Turn::new(angle),
            sectors_left: used as u32 - on_track,
            sectors_per_track: zone.sectors_per_track,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(first_cylinder: u32, cylinders: u32, sectors_per_track: u32) -> Zone {
        Zone {
            first_cylinder,
            cylinders,
            sectors_per_track,
            spares_per_track: 0,
            reserved: 0,
            spares: 0,
            offset: 0.0,
            track_skew: 2.0,
            cylinder_skew: 5.0,
            slips: Vec::new(),
        }
    }

    #[test]
    fn sectors_fill_track_then_cylinder_then_zone() {
        let disk = Geometry::new(2, Layout::Conventional, vec![zone(0, 3, 10), zone(3, 2, 8)]);
        assert_eq!(disk.sectors(), 60 + 32);
        let place = disk.locate(13);
        assert_eq!((place.cylinder, place.surface, place.sectors_left), (0, 1, 7));
        assert_eq!(disk.locate(20).cylinder, 1);
        let inner = disk.locate(60);
        assert_eq!((inner.cylinder, inner.sectors_per_track), (3, 8));
    }

    #[test]
    fn skews_add_up_over_switches() {
        let disk = Geometry::new(2, Layout::Conventional, vec![zone(0, 3, 10)]);
        // Track 3 of the zone: two head switches and one cylinder switch from the first.
        assert_eq!(disk.locate(30).angle, Turn::new((2.0 * 2.0 + 5.0) / 10.0));
    }

    #[test]
    fn serpentine_cylinders_start_where_the_last_one_ended() {
        let disk = Geometry::new(3, Layout::Serpentine, vec![zone(0, 3, 10)]);
        assert_eq!(disk.locate(29).surface, 2);
        assert_eq!(disk.locate(30).surface, 2);
        assert_eq!(disk.locate(59).surface, 0);
    }

    #[test]
    fn slipped_sectors_are_skipped() {
        let mut slipped = zone(0, 1, 10);
        slipped.slips = vec![3, 4];
        let disk = Geometry::new(1, Layout::Conventional, vec![slipped]);
        assert_eq!(disk.sectors(), 8);
        assert_eq!(disk.locate(2).angle, Turn::new(0.2));
        assert_eq!(disk.locate(3).angle, Turn::new(0.5));
    }
}
