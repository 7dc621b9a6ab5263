//! In a virtual world: a backup whose output stands still, beside writers, and beside nobody.

use std::io::{self, Write};

use terrace::{BackupError, BackupOptions, Checkpoints, Database, Devices, Durability, Nanos};
use terrace_rt::{now, sleep, spawn};

use super::{ROWS, in_world, memory, rows_of};

const CHECKPOINTS: Nanos = Nanos::from_millis(8);
/// How long it stands still. So many checkpoints take more than the whole log.
const STILL: Nanos = Nanos::from_secs(120);

/// An output that takes so many bytes, and then stands still.
struct Still {
    left: u64,
    until: Nanos,
}

impl Write for Still {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if self.left == 0 {
            sleep(self.until.saturating_sub(now()));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn fill(db: &Database, part: u64) {
    let put = |txn: &terrace::WriteTransaction| {
        let mut rows = txn.open_table(ROWS)?;
        (0..40).try_for_each(|row| rows.insert((part, row), &[part as u8; 100]).map(drop))
    };
    db.write_with(Durability::None, put).expect("there is room for a writer");
}

/// The bug: checkpoints beside a backup that stood still used up the room that is held back for
/// them, though they could cut nothing. No writer found room then, nor did the last checkpoint, so
/// the database could not even be closed.
#[test]
fn a_backup_that_stands_still_gives_way_to_checkpoints_and_to_writers() {
    // Whether anybody writes meanwhile.
    for writes in [false, true] {
        in_world(7, 0, || {
            let devices = Devices { home: memory(64 << 20), flash: None, log: memory(1 << 20) };
            let builder = Database::builder().memory(4 << 20);
            let builder = builder.checkpoints(Checkpoints::Every(CHECKPOINTS));
            let db = builder.clone().devices(devices.clone()).create_on_devices().expect("blank");
            (0..40).for_each(|part| fill(&db, part));
            let until = now().saturating_add(STILL);
            let taker = db.clone();
            let backup = spawn("backup", move || {
                let mut output = Still { left: 100_000, until };
                let ended = taker.backup(&mut output, &BackupOptions::new());
                assert!(matches!(ended, Err(BackupError::Behind)), "{ended:?}");
            });
            sleep(Nanos::from_millis(100));
            let mut part = 40;
            let log = || db.stats().log;
            while log().used_bytes * 100 < log().capacity_bytes * 60 {
                fill(&db, part);
                part += 1;
                sleep(Nanos::from_micros(100));
            }
            let end = part + 400;
            while writes && part < end {
                fill(&db, part);
                part += 1;
            }
            sleep(until.saturating_sub(now()));
            backup.join();
            fill(&db, part);
            db.check().expect("sound");
            db.close().expect("there is room for the last checkpoint");
            let db = builder.devices(devices).open_on_devices().expect("closed well");
            assert_eq!(rows_of(&db).len() as u64, (part + 1) * 40);
        });
    }
}
