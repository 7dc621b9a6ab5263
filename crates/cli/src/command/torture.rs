//! The options of `torture`.

use super::lists::{log_age, one_design, one_fate, one_restart, one_script};
use super::{Shown, WorldName};
use crate::lives::Fault;
use crate::quantity::Span;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_policy::{Design, Restart};
use terrace_workload::torture::matrix::Fate;

#[derive(Args)]
pub struct Torture {
    #[command(flatten)]
    pub shown: Shown,
    /// Virtual: power cuts in virtual time. Real: processes with threads and real files are killed,
    /// and their files damaged in between
    #[arg(long, value_enum, default_value_t = WorldName::Virtual)]
    pub world: WorldName,
    /// The seed to run; with --seeds, the first
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Number of seeds to run [default: 100, in the real world 20; 1 with --seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// Test only this design [default: chosen by the seed; with --matrix, all]
    #[arg(long, value_name = "NAME", value_parser = one_design)]
    pub design: Option<Design>,
    /// Test only this restart [default: chosen by the seed; with --matrix, all]
    #[arg(long, value_name = "NAME", value_parser = one_restart)]
    pub restart: Option<Restart>,
    /// Make flash a part of the database: either it survives the cut, or opening must be refused
    #[arg(long)]
    pub persistent_flash: bool,
    /// Write each change home after this much further log [default: chosen by the seed]
    #[arg(long, value_name = "SIZE", value_parser = log_age, conflicts_with = "matrix")]
    pub clean_age: Option<u64>,
    /// Number of seeds in parallel [default: the cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,
    #[command(flatten)]
    pub matrix: Matrix,
    #[command(flatten)]
    pub histories: Histories,
    /// With --world real: a folder on a small file system of its own, which is filled up while
    /// databases run there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["matrix", "histories"])]
    pub full_disk: Option<PathBuf>,
    /// Where the files of the real world are [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

#[derive(Args)]
pub struct Histories {
    /// With --world real: run random transactions in four threads, and check that they are
    /// serializable
    #[arg(id = "histories", long = "histories", conflicts_with = "matrix")]
    pub is_asked: bool,
    /// Least number of transactions for each design [default: 20000; one database with --seed]
    #[arg(long, value_name = "N", requires = "histories",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: Option<u64>,
    /// How long each design runs, instead of a number of transactions
    #[arg(long, value_name = "TIME", requires = "histories", conflicts_with = "transactions")]
    pub duration: Option<Span>,
}

#[derive(Args)]
pub struct Matrix {
    /// Run the crash matrix instead: cut the power at every event of scripted paths at which a
    /// device changes, and reopen with each possible state of the flash [default: 1 seed]
    #[arg(id = "matrix", long = "matrix")]
    pub is_asked: bool,
    /// This script only, or `tpcc`
    #[arg(long, value_name = "NAME", requires = "matrix", value_parser = one_script)]
    pub script: Option<&'static str>,
    /// Run only one in N cases, chosen by the seed [default: 1, all]
    #[arg(long, value_name = "N", requires = "matrix",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub one_in: Option<u64>,
    /// Only the case that is cut at this event
    #[arg(long, value_name = "EVENT",
          requires_all = ["matrix", "script", "design", "restart", "fate"])]
    pub cut: Option<u64>,
    /// With --cut: the state of the flash after the cut
    #[arg(long, value_name = "NAME", requires = "cut", value_parser = one_fate)]
    pub fate: Option<Fate>,
    /// With --cut: cut the power again at this event of the reopening
    #[arg(long, value_name = "EVENT", requires = "cut")]
    pub second: Option<u64>,
}

/// One life of a database that is tortured in the real world, in a process of its own.
#[derive(Args)]
pub struct Life {
    #[arg(long)]
    pub folder: PathBuf,
    /// The folder of the ledger
    #[arg(long)]
    pub ledger: PathBuf,
    #[arg(long)]
    pub seed: u64,
    #[arg(long, value_parser = one_design)]
    pub design: Design,
    #[arg(long, value_parser = one_restart)]
    pub restart: Restart,
    #[arg(long)]
    pub persistent_flash: bool,
    /// Milliseconds that clients run; zero to look only
    #[arg(long)]
    pub runs_ms: u64,
    /// There may be no database yet
    #[arg(long)]
    pub is_first: bool,
    /// Its home is as large as the disk lets it be, and transactions may get the error that it is
    /// full
    #[arg(long)]
    pub grows: bool,
    /// It is idle for a while after its clients, and dies without closing
    #[arg(long)]
    pub rests: bool,
    /// A device that fails: PART:KIND:SEED
    #[arg(long)]
    pub fault: Option<Fault>,
}

impl Life {
    /// The arguments of the command that lives so.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["torture-life".into(), "--folder".into()];
        arguments.push(self.folder.clone().into());
        arguments.extend(["--ledger".into(), self.ledger.clone().into()]);
        arguments.extend(["--seed".into(), self.seed.to_string().into()]);
        arguments.extend(["--design".into(), self.design.name.into()]);
        arguments.extend(["--restart".into(), self.restart.name.into()]);
        arguments.extend(["--runs-ms".into(), self.runs_ms.to_string().into()]);
        arguments.extend(self.persistent_flash.then(|| "--persistent-flash".into()));
        arguments.extend(self.is_first.then(|| "--is-first".into()));
        arguments.extend(self.grows.then(|| "--grows".into()));
        arguments.extend(self.rests.then(|| "--rests".into()));
        if let Some(fault) = self.fault {
            arguments.extend(["--fault".into(), fault.to_string().into()]);
        }
        arguments
    }
}
