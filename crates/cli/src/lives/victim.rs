//! One seed: a database that lives and dies many times, and what befalls it in between.

use super::child::{self, Ending, Kill, Lived};
use super::fault::Fault;
use super::life;
use super::mishap::{self, Damage, Mishap};
use super::region::{Part, Regions};
use super::report::{KILL, Outcome, Report};
use crate::command::{Life, Torture};
use crate::scratch::Scratch;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_policy::{DESIGNS, Design, FlashRole, RESTARTS, Restart, restarts};
use terrace_rt::Prng;

/// Lives of a seed, before the trials of damage.
const LIVES: u64 = 9;
/// Places that are damaged, one after the other, each in the same database.
const TRIALS: u64 = 16;
const RUNS_MS_MAX: u64 = 120;
/// The life before which the disk is full, and the one before which there is room again.
const FULL: (u64, u64) = (1, 6);
const FILES: [&str; 3] = ["db", "db.log", "flash"];
/// How a full disk is called in reports.
const FULL_DISK: &str = "disk full";
/// Failed seeds of a run whose files are kept.
const KEPT_MAX: u64 = 8;

/// What a seed decides before its first life.
struct Setting {
    seed: u64,
    design: Design,
    restart: Restart,
    role: FlashRole,
    /// The disk is full at times.
    fills_disk: bool,
    folder: Scratch,
    ledger: Scratch,
}

struct Victim {
    setting: Setting,
    prng: Prng,
    report: Report,
    /// There is no room on the disk now.
    is_full: bool,
    /// What befell since the database was last held against the ledger, and what came of it unless
    /// something is missing now.
    pending: Vec<(String, Outcome)>,
}

/// Tortures one database.
///
/// # Errors
///
/// Its files or processes cannot be created.
pub fn torture(seed: u64, options: &Torture) -> io::Result<Report> {
    let mut prng = Prng::from_seed(seed);
    let setting = draw(seed, options, &mut prng)?;
    let mut report = Report::default();
    for name in
        [format!("design {}", setting.design.name), format!("restart {}", setting.restart.name)]
    {
        report.settings.insert(name, 1);
    }
    let mut victim = Victim { setting, prng, report, is_full: false, pending: Vec::new() };
    if victim.lives()? && !victim.setting.fills_disk {
        victim.trials()?;
    }
    Ok(victim.report)
}

fn draw(seed: u64, options: &Torture, prng: &mut Prng) -> io::Result<Setting> {
    let pick = |prng: &mut Prng, count: usize| prng.below(count as u64) as usize;
    let is_persistent = options.persistent_flash || prng.below(4) == 0;
    let mut design = options.design.unwrap_or(DESIGNS[pick(prng, DESIGNS.len())]);
    while options.design.is_none() && design.name == "ssd-only" {
        design = DESIGNS[pick(prng, DESIGNS.len())];
    }
    let wanted = if is_persistent { FlashRole::Persistent } else { FlashRole::Cache };
    // Every restart that can go with the design, if any can, where flash is what it should be.
    let fitting = |role: FlashRole| -> Vec<Restart> {
        let fits =
            |it: &Restart| it.refusal(&design).is_none() && role.refusal(&design, it).is_none();
        options
            .restart
            .map_or(RESTARTS.to_vec(), |one| vec![one])
            .into_iter()
            .filter(fits)
            .collect()
    };
    let (role, fitting) = match fitting(wanted) {
        none if none.is_empty() => (FlashRole::Cache, fitting(FlashRole::Cache)),
        some => (wanted, some),
    };
    let restart = match (fitting.as_slice(), options.restart) {
        // Refused when the database is made, with its reason.
        ([], asked) => asked.unwrap_or(restarts::find("forget").expect("a row")),
        (some, _) => some[pick(prng, some.len())],
    };
    let fills_disk = options.full_disk.is_some();
    let folder = options.full_disk.as_deref().or(options.folder.as_deref());
    // A full disk must not keep the ledger from being written.
    let (folder, ledger) = (Scratch::make(folder)?, Scratch::make(options.folder.as_deref())?);
    Ok(Setting { seed, design, restart, role, fills_disk, folder, ledger })
}

impl Victim {
    fn folder(&self) -> &Path {
        self.setting.folder.path()
    }

    /// The life with this number, which is killed if `kill` says when.
    fn live(
        &self,
        number: u64,
        runs_ms: u64,
        fault: Option<Fault>,
        kill: Option<Kill>,
    ) -> io::Result<Lived> {
        let setting = &self.setting;
        let life = Life {
            folder: self.folder().to_path_buf(),
            ledger: setting.ledger.path().to_path_buf(),
            seed: setting.seed.wrapping_mul(1_000).wrapping_add(number),
            design: setting.design,
            restart: setting.restart,
            persistent_flash: setting.role == FlashRole::Persistent,
            runs_ms,
            is_first: runs_ms > 0,
            grows: setting.fills_disk,
            rests: number == LIVES,
            fault,
        };
        child::run(&life, kill)
    }

    /// Runs the lives; false if one of them found something.
    fn lives(&mut self) -> io::Result<bool> {
        let (older, foreign) =
            (self.folder().join("flash.older"), self.folder().join("flash.foreign"));
        if !self.setting.fills_disk && self.prng.chance(3) {
            self.make_foreign(&foreign)?;
        }
        for number in 0..LIVES {
            if self.setting.fills_disk {
                self.fill_disk(number)?;
            }
            let fails = number > 0 && self.prng.below(5) < 2;
            let fault =
                fails.then(|| Fault::draw(self.setting.design.uses_flash(), &mut self.prng));
            let is_killed = self.prng.below(4) > u64::from(fails) * 2;
            let kill = is_killed.then(|| Kill::draw(&mut self.prng));
            let runs_ms = 1 + self.prng.below(RUNS_MS_MAX);
            let lived = self.live(number, runs_ms, fault, kill)?;
            let what = match fault {
                Some(fault) => format!("life {number}, {fault}"),
                None => format!("life {number}"),
            };
            if !self.judge(&lived, fault, &what) {
                return Ok(false);
            }
            // The trials harm the flash that the last life left.
            if self.setting.role == FlashRole::Cache && number + 1 < LIVES {
                self.befall_flash(&older, &foreign)?;
            }
            let flash = self.folder().join("flash");
            if !self.setting.fills_disk && self.prng.below(3) == 0 && flash.exists() {
                fs::copy(&flash, &older)?;
            }
        }
        Ok(true)
    }

    /// Makes the flash of another database: the same file names, another identity.
    fn make_foreign(&mut self, foreign: &Path) -> io::Result<()> {
        let lived = self.live(0, 5, None, None)?;
        let is_good = self.judge(&lived, None, "the other database");
        for file in FILES.map(|name| self.folder().join(name)) {
            if is_good && file.ends_with("flash") && file.exists() {
                fs::rename(&file, foreign)?;
            } else if file.exists() {
                fs::remove_file(&file)?;
            }
        }
        for client in fs::read_dir(self.setting.ledger.path())? {
            fs::remove_file(client?.path())?;
        }
        Ok(())
    }

    /// Fills the disk before one life, and makes room before another.
    fn fill_disk(&mut self, number: u64) -> io::Result<()> {
        let filler = self.folder().join("filler");
        if number == FULL.1 {
            self.is_full = false;
            return fs::remove_file(filler);
        }
        if number != FULL.0 {
            return Ok(());
        }
        self.is_full = true;
        let mut file = File::create(filler)?;
        for bytes in [1 << 20, 1 << 12] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
        Ok(())
    }

    fn befall_flash(&mut self, older: &Path, foreign: &Path) -> io::Result<()> {
        let can_be = |mishap: &Mishap| match mishap {
            Mishap::Older => older.exists(),
            Mishap::Foreign => foreign.exists(),
            // What is made anew needs room.
            Mishap::Deleted | Mishap::Cut => !self.setting.fills_disk,
            _ => true,
        };
        let flash = self.folder().join("flash");
        let all: Vec<_> = Mishap::ALL.into_iter().filter(can_be).collect();
        let mishap = all[self.prng.below(all.len() as u64) as usize];
        let is_blank = fs::metadata(&flash).map_or(true, |it| it.len() == 0);
        if mishap == Mishap::Spared || is_blank {
            return Ok(());
        }
        mishap.befall(&flash, older, foreign, &mut self.prng)?;
        self.pending.push((mishap.name().into(), Outcome::Repaired));
        Ok(())
    }

    /// Counts a life, and what it says of all that befell before; false if it found something.
    fn judge(&mut self, lived: &Lived, fault: Option<Fault>, what: &str) -> bool {
        self.report.lives += 1;
        self.report.transactions += lived.transactions;
        self.report.full += lived.full;
        self.report.verified += u64::from(lived.is_verified);
        if lived.is_verified {
            for (kind, outcome) in self.pending.drain(..) {
                self.report.count(kind, outcome);
            }
        }
        let fault = fault.filter(|_| lived.faults > 0);
        let may_be_told = fault.is_some_and(|fault| fault.may_be_told(self.setting.role));
        let outcome = match (lived.flaw(), lived.ending) {
            (Some(flaw), _) => flaw,
            (None, Ending::Exited(life::TOLD)) if may_be_told => Outcome::Told,
            (None, Ending::Exited(life::REFUSED)) if may_be_told => Outcome::Refused,
            (None, Ending::Exited(life::FOREIGN)) if self.is_spoilt() => Outcome::Refused,
            (None, Ending::Exited(life::FULL)) if self.is_full => Outcome::Told,
            (None, Ending::Exited(life::TOLD | life::REFUSED | life::FOREIGN | life::FULL)) => {
                Outcome::Stopped
            }
            (None, _) => Outcome::Repaired,
        };
        if lived.ending == Ending::Exited(life::FOREIGN) && outcome == Outcome::Refused {
            // As an operator does who knows what the file is.
            let _gone = fs::remove_file(self.folder().join("flash"));
            self.pending.iter_mut().for_each(|(_, outcome)| *outcome = Outcome::Refused);
            return true;
        }
        if !outcome.is_fine() {
            let before: Vec<_> = self.pending.iter().map(|(kind, _)| kind.as_str()).collect();
            let what = format!("{what}, after {before:?}");
            self.blame(fault, outcome);
            self.fail(outcome, &what, &lived.last_words());
            return false;
        }
        self.pending.extend(fault.map(|fault| (fault.name(), outcome)));
        if lived.ending == Ending::Killed {
            self.pending.push((KILL.into(), Outcome::Repaired));
        }
        if lived.ending == Ending::Exited(life::FULL) {
            self.pending.push((FULL_DISK.into(), Outcome::Told));
        } else if lived.full > 0 {
            self.pending.push((FULL_DISK.into(), Outcome::Repaired));
        }
        true
    }

    /// Whether so little of the flash may be left that an opening cannot tell what it was.
    fn is_spoilt(&self) -> bool {
        let spoils = [Mishap::Cut, Mishap::Flipped, Mishap::Zeroed].map(Mishap::name);
        self.setting.role == FlashRole::Cache
            && self.pending.iter().any(|(kind, _)| spoils.contains(&kind.as_str()))
    }

    /// Counts an outcome that may not be for what befell last, or since the last verification.
    fn blame(&mut self, fault: Option<Fault>, outcome: Outcome) {
        let mut blamed: Vec<String> = self.pending.drain(..).map(|(kind, _)| kind).collect();
        blamed.extend(fault.map(Fault::name));
        if blamed.is_empty() {
            blamed.push("nothing".into());
        }
        blamed.into_iter().for_each(|kind| self.report.count(kind, outcome));
    }

    fn fail(&mut self, outcome: Outcome, what: &str, said: &str) {
        let kept = self.keep();
        let Setting { seed, design, restart, role, .. } = &self.setting;
        let about =
            format!("{} {what} ({}, {}, {role:?})", outcome.name(), design.name, restart.name);
        self.report.fail(*seed, format!("{about}: {said}{kept}"));
    }

    /// Has the files stay where they are, and says where; of the first failures alone.
    fn keep(&mut self) -> String {
        static KEPT: AtomicU64 = AtomicU64::new(0);
        if self.setting.fills_disk || KEPT.fetch_add(1, Ordering::Relaxed) >= KEPT_MAX {
            return String::new();
        }
        let Setting { folder, ledger, .. } = &mut self.setting;
        folder.keep();
        ledger.keep();
        let (folder, ledger) = (folder.path().display(), ledger.path().display());
        format!("; its files are kept in {folder}, its ledger in {ledger}")
    }

    /// Damages the files, one place after the other, and opens what is left, until something is
    /// found: then the files stay as they are.
    fn trials(&mut self) -> io::Result<()> {
        // Of damage to what was forced last nothing can tell, unless the log was idle after it.
        let runs_ms = 1 + self.prng.below(RUNS_MS_MAX);
        let lived = self.live(LIVES, runs_ms, None, None)?;
        if !self.judge(&lived, None, "the life before the trials") {
            return Ok(());
        }
        let files = FILES.map(|name| self.folder().join(name));
        let kept = FILES.map(|name| self.folder().join(format!("{name}.kept")));
        for (file, kept) in files.iter().zip(&kept).filter(|(file, _)| file.exists()) {
            fs::copy(file, kept)?;
        }
        // As it is it must be whole.
        let lived = self.live(LIVES + 1, 0, None, None)?;
        if !self.judge(&lived, None, "the undamaged database") {
            return Ok(());
        }
        let mut regions = Vec::new();
        for (part, kept) in Part::ALL.into_iter().zip(&kept).filter(|(_, kept)| kept.exists()) {
            let found = Regions::of(part, kept, &self.setting.restart)?;
            regions.extend((!found.is_empty()).then_some(found));
        }
        for trial in 0..TRIALS {
            let of_file = &regions[self.prng.below(regions.len() as u64) as usize];
            let (region, sectors) = of_file.draw(&mut self.prng);
            let damage = Damage::draw(sectors, &mut self.prng);
            if !self.trial(trial, (of_file.part, region), damage, (&files, &kept))? {
                break;
            }
        }
        Ok(())
    }

    /// False if something was found.
    fn trial(
        &mut self,
        trial: u64,
        (part, region): (Part, &str),
        damage: Damage,
        (files, kept): (&[PathBuf; 3], &[PathBuf; 3]),
    ) -> io::Result<bool> {
        for (file, kept) in files.iter().zip(kept) {
            match kept.exists() {
                true => drop(fs::copy(kept, file)?),
                false if file.exists() => fs::remove_file(file)?,
                false => (),
            }
        }
        damage.to(&files[part as usize])?;
        let lived = self.live(LIVES + 2 + trial, 0, None, None)?;
        self.report.lives += 1;
        self.report.verified += u64::from(lived.is_verified);
        let is_cache = self.setting.role == FlashRole::Cache;
        let outcome = match (lived.flaw(), lived.ending) {
            (Some(flaw), _) => flaw,
            (None, Ending::Exited(0)) => Outcome::Repaired,
            _ if part == Part::Flash && is_cache => Outcome::Stopped,
            (None, Ending::Exited(life::REFUSED)) => {
                let is_as_it_was = Part::ALL.into_iter().all(|one| {
                    let at = one as usize;
                    let damage = Some(damage).filter(|_| one == part);
                    mishap::is_as_it_was(&files[at], &kept[at], damage)
                        || (one == Part::Flash && is_cache && is_made_anew(&kept[at]))
                });
                if is_as_it_was { Outcome::Refused } else { Outcome::Changed }
            }
            (None, _) => Outcome::Told,
        };
        let role = if part == Part::Flash && !is_cache { "part of the database, " } else { "" };
        let place = format!("{} {role}{region}", part.name());
        let what = format!("{} at {} of {place}, trial {trial}", damage.name(), damage.at());
        if !outcome.is_fine() {
            self.fail(outcome, &what, &lived.last_words());
        }
        *self.report.damages.entry(damage.name()).or_default() += 1;
        self.report.count(format!("damage: {place}"), outcome);
        Ok(outcome.is_fine())
    }
}

/// Whether this flash, a cache, is so short, or not there at all, that each opening makes it anew.
fn is_made_anew(flash: &Path) -> bool {
    fs::metadata(flash).map_or(true, |it| it.len() < life::FLASH_BYTES)
}
