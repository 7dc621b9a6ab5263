//! All flash of a drive: one translation layer over all dies, or one for each die.
//!
//! ```text
//!  Mapped     unit --> the map of all dies --> a die, a program
//!  Striped    unit --> its chunk c --> die c % dies --> that die's own map --> a program
//! ```
//!
//! - H1: units are numbered over the whole drive, the host's first, then those of the map; a domain
//!   numbers its own in the same order. `locate` leads from one to the other, one to one.
//! - H2: striped, garbage collection stays on its die, so a unit never leaves its domain.

use terrace_rt::Prng;

use super::ftl::{Collected, Ftl, Program, Programmed};
use super::spec::{NandLayout, NandSpec, Placement};

/// How chunks lie over the domains.
#[derive(Clone, Copy)]
struct Striping {
    units_per_chunk: u32,
    /// Units of the host in each domain.
    host_units: u32,
}

/// The translation layers of a drive.
#[derive(Clone)]
pub(super) struct Flash {
    /// One for each domain.
    ftls: Vec<Ftl>,
    striping: Option<Striping>,
    host_units: u32,
    map_units: u32,
}

impl Flash {
    /// Erased, for `bytes` of the host.
    pub(super) fn new(spec: &NandSpec, bytes: u64) -> Flash {
        match spec.placement {
            Placement::Mapped => {
                let layout = spec.layout(bytes);
                let (host_units, map_units) = (layout.host_units, layout.map_units);
                Flash { ftls: vec![Ftl::new(layout)], striping: None, host_units, map_units }
            }
            Placement::Striped { chunk_bytes } => {
                let (dies, chunk) = (u64::from(spec.dies()), u64::from(chunk_bytes));
                let layout = spec.layout_of(1, bytes.div_ceil(chunk).div_ceil(dies) * chunk);
                let units_per_chunk = chunk_bytes / spec.unit_bytes;
                let striping = Striping { units_per_chunk, host_units: layout.host_units };
                let ftls = vec![Ftl::new(layout); dies as usize];
                let [host_units, map_units] =
                    [layout.host_units, layout.map_units].map(|units| units * dies as u32);
                Flash { ftls, striping: Some(striping), host_units, map_units }
            }
        }
    }

    /// Fills and overwrites it, see `Ftl::wear_in`.
    pub(super) fn wear_in(&mut self, rounds: u64, prng: &mut Prng) {
        self.ftls.iter_mut().for_each(|ftl| ftl.wear_in(rounds, prng));
    }

    /// Units that the host sees.
    pub(super) fn host_units(&self) -> u32 {
        self.host_units
    }

    /// Units of the map.
    pub(super) fn map_units(&self) -> u32 {
        self.map_units
    }

    /// Domains: parts that place and collect by themselves.
    pub(super) fn domains(&self) -> usize {
        self.ftls.len()
    }

    /// The layout of each domain.
    pub(super) fn layout(&self) -> &NandLayout {
        self.ftls[0].layout()
    }

    /// The domain of a unit.
    pub(super) fn domain(&self, unit: u32) -> usize {
        self.locate(unit).0
    }

    /// The die that holds `unit`, and which of the programs there.
    pub(super) fn find(&self, unit: u32) -> Option<(u32, u32)> {
        let (domain, unit) = self.locate(unit);
        let (die, program) = self.ftls[domain].find(unit)?;
        Some((self.first_die(domain) + die, program))
    }

    /// Forgets a unit.
    pub(super) fn trim(&mut self, unit: u32) {
        let (domain, unit) = self.locate(unit);
        self.ftls[domain].trim(unit);
    }

    /// Writes units of one domain, see `Ftl::write`.
    pub(super) fn write(&mut self, domain: usize, units: &[u32]) -> Program {
        let program = match self.striping {
            None => self.ftls[domain].write(units),
            Some(_) => {
                let own: Vec<u32> = units.iter().map(|unit| self.locate(*unit).1).collect();
                self.ftls[domain].write(&own)
            }
        };
        self.of_drive(domain, program)
    }

    /// A step of garbage collection in a domain, if one is due.
    pub(super) fn collect(&mut self, domain: usize) -> Option<Collected> {
        let collected = self.ftls[domain].collect()?;
        Some(match collected {
            Collected::Moved { reads, program } => Collected::Moved {
                reads: reads.into_iter().map(|read| self.of_drive(domain, read)).collect(),
                program: self.of_drive(domain, program),
            },
            Collected::Erased => Collected::Erased,
        })
    }

    /// The dies of a domain.
    pub(super) fn dies(&self, domain: usize) -> std::ops::Range<u32> {
        let first = self.first_die(domain);
        first..first + self.layout().dies
    }

    /// What has been programmed.
    pub(super) fn programmed(&self) -> Programmed {
        self.ftls.iter().map(Ftl::programmed).fold(Programmed::default(), |sum, next| Programmed {
            host: sum.host + next.host,
            map: sum.map + next.map,
            moved: sum.moved + next.moved,
            padding: sum.padding + next.padding,
            erased: sum.erased + next.erased,
        })
    }

    fn first_die(&self, domain: usize) -> u32 {
        domain as u32 * self.layout().dies
    }

    fn of_drive(&self, domain: usize, program: Program) -> Program {
        Program { die: self.first_die(domain) + program.die, ..program }
    }

    /// The domain of a unit, and its number there (H1).
    fn locate(&self, unit: u32) -> (usize, u32) {
        let Some(striping) = self.striping else { return (0, unit) };
        let domains = self.ftls.len() as u32;
        match unit.checked_sub(self.host_units) {
            None => {
                let chunk = unit / striping.units_per_chunk;
                let within = unit % striping.units_per_chunk;
                let own = chunk / domains * striping.units_per_chunk + within;
                ((chunk % domains) as usize, own)
            }
            Some(of_map) => ((of_map % domains) as usize, striping.host_units + of_map / domains),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MemberSpec, Preset};
    use std::collections::BTreeSet;

    fn nand(name: &str) -> NandSpec {
        let preset: Preset = name.parse().expect("a preset");
        let MemberSpec::Nand(nand) = preset.spec().member else { panic!("a flash drive") };
        nand
    }

    #[test]
    fn every_unit_has_a_place_of_its_own_in_the_domain_of_its_chunk() {
        for name in ["ssd-s", "ssd-m", "p300", "iodrive-geometry", "dc-nvme"] {
            let nand = nand(name);
            let flash = Flash::new(&nand, 48 << 20);
            let units = flash.host_units() + flash.map_units();
            let places: BTreeSet<_> = (0..units).map(|unit| flash.locate(unit)).collect();
            assert_eq!(places.len(), units as usize, "{name}");
            let own = flash.layout().host_units + flash.layout().map_units;
            assert!(places.iter().all(|(_, unit)| *unit < own), "{name}");
            let Some((domains, chunk)) = nand.domains() else { continue };
            for unit in 0..flash.host_units() {
                let chunk = u64::from(unit) * u64::from(nand.unit_bytes) / chunk;
                assert_eq!(flash.domain(unit) as u64, chunk % u64::from(domains), "{name}");
            }
        }
    }

    #[test]
    fn collection_leaves_units_in_their_domains() {
        let mut flash = Flash::new(&nand("ssd-m"), 24 << 20);
        let mut prng = Prng::from_seed(3);
        flash.wear_in(2, &mut prng);
        for _ in 0..20_000 {
            let unit = prng.below(u64::from(flash.host_units())) as u32;
            let domain = flash.domain(unit);
            assert!(flash.dies(domain).contains(&flash.write(domain, &[unit]).die));
            while let Some(collected) = flash.collect(domain) {
                if let Collected::Moved { reads, program } = collected {
                    let dies = flash.dies(domain);
                    assert!(reads.iter().all(|read| dies.contains(&read.die)));
                    assert!(dies.contains(&program.die));
                }
            }
        }
        let programmed = flash.programmed();
        assert!(programmed.erased > 100 && programmed.moved > programmed.host / 10);
        for unit in 0..flash.host_units() {
            let (die, _) = flash.find(unit).expect("it was written");
            assert!(flash.dies(flash.domain(unit)).contains(&die));
        }
    }
}
