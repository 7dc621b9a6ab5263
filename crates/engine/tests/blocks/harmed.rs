//! Blocks of which a device has damaged pages, or older ones.

use super::*;

/// A page of home.
fn page_of(store: &Store, page: u64) -> [u8; 8192] {
    let mut bytes = [0; 8192];
    store.read(page * 8192, &mut bytes).expect("it is kept");
    bytes
}

/// Page kinds, as in the second field of a page's header.
fn kind_of(bytes: &[u8; 8192]) -> u16 {
    u16::from_le_bytes([bytes[4], bytes[5]])
}
const RAW: u16 = 7;
const LEAF: u16 = 2;
const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");

impl Rig {
    /// This one, with other bytes of home.
    fn with_home(&self, world: &World, store: Store) -> Rig {
        let spec = Preset::Ram.spec().with_write_cache();
        Rig { home: SimDevice::new(spec, world.clone(), store), ..self.in_world(world) }
    }
}

/// Reads all rows, each by itself: how many cannot be read, and whether the others are right.
fn read_all(db: &Database, rows: &Ledger) -> (usize, bool) {
    let txn = db.begin_read().expect("no error");
    let Ok(table) = txn.open_table(BLOCKS) else { return (rows.len(), true) };
    let (mut unread, mut are_right) = (0, true);
    for (key, content) in rows {
        match table.get(*key) {
            Ok(Some(found)) => are_right &= found.value() == content.bytes(),
            Ok(None) => are_right = false,
            Err(_) => unread += 1,
        }
    }
    (unread, are_right)
}

/// A database that a power cut has ended just after a checkpoint: there is nothing to redo, and
/// pages are left over.
fn cut_after_checkpoint(seed: u64) -> (Rig, Ledger) {
    let (mut prng, rows) = (Prng::from_seed(seed), LeafMutex::new(Ledger::new()));
    let first = world(seed);
    let rig = Rig::blank(&first.world(), 32 * MIB);
    first.cut_at_event(200_000);
    let stopped = first.run(|| {
        let db = rig.open(&NO_FLASH).expect("a new one");
        for round in 0..60 {
            let content = Content { len: 8192, mark: prng.next_u64() as u32 };
            let key = round % 23;
            db.write(|txn| txn.open_table(BLOCKS)?.insert(key, &content.bytes())).expect("room");
            rows.lock().insert(key, content);
        }
        db.checkpoint(Checkpoint::Sharp).expect("good devices");
        loop {
            sleep(Nanos::from_millis(1));
        }
    });
    assert!(matches!(stopped, Err(Stopped::PowerCut { .. })), "{stopped:?}");
    rig.cut(&mut Prng::from_seed(seed));
    let rows = rows.lock().clone();
    (rig, rows)
}

/// A review's find of an earlier attempt: one page with a list of what was to be freed, damaged,
/// stopped every opening.
#[test]
fn damage_of_blocks_stops_no_opening() {
    let (rig, rows) = cut_after_checkpoint(11);
    let home = rig.home.store();
    let pages = (64..home.len() / 8192).filter(|&page| kind_of(&page_of(&home, page)) != 0);
    let (mut damaged, mut unread_rows) = (0, 0);
    for page in pages {
        let mut home = home.clone();
        home.write(page * 8192 + 4_000, &[0xa5; 64]);
        let world = world(page);
        let rig = rig.with_home(&world.world(), home);
        let run = || {
            let db = rig.open(&NO_FLASH).unwrap_or_else(|error| panic!("page {page}: {error}"));
            sleep(Nanos::from_secs(1));
            let (unread, are_right) = read_all(&db, &rows);
            assert!(are_right, "page {page}: another value");
            // Others are put and removed all the same.
            let fresh = db.write(|txn| txn.open_table(VOLUME)?.insert(1, [1; 8192]));
            fresh.expect("room");
            db.close().expect("good devices");
            unread
        };
        let unread = world.run(run).expect("nobody waits for ever");
        damaged += 1;
        unread_rows += unread;
    }
    println!("{damaged} pages damaged, {unread_rows} rows unread");
    assert!(damaged > 30 && unread_rows >= rows.len(), "{damaged} {unread_rows}");
}

/// How many of the older versions of pages are told, and whether one was taken for the value.
fn older_pages(mutations: Mutations) -> (usize, bool) {
    let (rig, rows) = cut_after_checkpoint(12);
    let now = world(13);
    let rig = rig.in_world(&now.world());
    let mut rows = rows;
    let run = || {
        let db = rig.open(&NO_FLASH).expect("good devices");
        for round in 0..60 {
            let content = Content { len: 8192, mark: round };
            let key = u64::from(round) % 23;
            db.write(|txn| txn.open_table(BLOCKS)?.insert(key, &content.bytes())).expect("room");
            rows.insert(key, content);
            if round == 29 {
                db.checkpoint(Checkpoint::Sharp).expect("good devices");
            }
        }
        let before = rig.home.store();
        db.close().expect("good devices");
        before
    };
    let before = now.run(run).expect("nobody waits for ever");
    let home = rig.home.store();
    let (mut told, mut is_served) = (0, false);
    for page in 64..home.len() / 8192 {
        let (old, new) = (page_of(&before, page), page_of(&home, page));
        if old == new || kind_of(&old) != RAW || kind_of(&new) != RAW {
            continue;
        }
        let mut home = home.clone();
        home.write(page * 8192, &old);
        let world = world(page);
        let rig = rig.with_home(&world.world(), home);
        let shape = Shape { mutations, ..NO_FLASH };
        let run = || {
            let db = rig.open(&shape).expect("nothing is read yet");
            let (unread, are_right) = read_all(&db, &rows);
            db.close().expect("good devices");
            (unread, are_right)
        };
        let (unread, are_right) = world.run(run).expect("nobody waits for ever");
        told += unread;
        is_served |= !are_right;
    }
    (told, is_served)
}

/// A device that brings an older version of a page back is found out by the stamp.
#[test]
fn an_older_page_is_told() {
    let (told, is_served) = older_pages(Mutations::NONE);
    println!("{told} older pages told");
    assert!(told > 5 && !is_served, "{told} told");
    let (_, is_served) = older_pages(Mutation::TrustBlocks.into());
    assert!(is_served, "without the stamp one is taken for the value");
}

/// Homes in which one leaf is of an older day, and refers to pages that are another table's by now:
/// whether that table is whole once each block was overwritten, for how many leaves it was so.
fn older_leaves(mutations: Mutations) -> (usize, bool) {
    const BLOCKS_MAX: u64 = 160;
    let world = world(15);
    let rig = Rig::blank(&world.world(), 32 * MIB);
    let other = |key: u64| vec![key as u8; 1_000];
    let put_all = |db: &Database, mark: u32| {
        let content = Content { len: 8192, mark };
        db.write(|txn| {
            let mut table = txn.open_table(BLOCKS)?;
            (0..BLOCKS_MAX).try_for_each(|key| table.insert(key, &content.bytes()))
        })
        .expect("room");
    };
    let run = || {
        let db = rig.open(&NO_FLASH).expect("a new one");
        put_all(&db, 1);
        db.checkpoint(Checkpoint::Sharp).expect("good devices");
        let before = rig.home.store();
        // All pages of before are free after this.
        put_all(&db, 2);
        db.close().expect("good devices");
        before
    };
    let before = world.run(run).expect("nobody waits for ever");
    let next = super::world(16);
    let rig = rig.in_world(&next.world());
    let run = || {
        let db = rig.open(&NO_FLASH).expect("good devices");
        db.write(|txn| {
            let mut table = txn.open_table(OTHERS)?;
            (0..3_000).try_for_each(|key| table.insert(key, &other(key)))
        })
        .expect("room");
        db.close().expect("good devices");
    };
    next.run(run).expect("nobody waits for ever");
    let home = rig.home.store();
    let (mut leaves, mut are_whole) = (0, true);
    for page in 64..home.len() / 8192 {
        let (old, new) = (page_of(&before, page), page_of(&home, page));
        if old == new || kind_of(&old) != LEAF || kind_of(&new) != LEAF {
            continue;
        }
        leaves += 1;
        let mut home = home.clone();
        home.write(page * 8192, &old);
        let world = super::world(page);
        let rig = rig.with_home(&world.world(), home);
        let shape = Shape { mutations, ..NO_FLASH };
        let run = || {
            let db = rig.open(&shape).expect("nothing is read yet");
            for round in 0..4 {
                put_all(&db, 10 + round);
            }
            let txn = db.begin_read().expect("no error");
            let table = txn.open_table(OTHERS).expect("there");
            let is_whole = |key: u64| match table.get(key) {
                Ok(found) => found.is_some_and(|found| found.value() == other(key)),
                Err(_) => false,
            };
            let are_whole = (0..3_000).all(is_whole);
            drop(table);
            drop(txn);
            db.close().expect("good devices");
            are_whole
        };
        are_whole &= world.run(run).expect("nobody waits for ever");
    }
    (leaves, are_whole)
}

/// What a leaf of an older day refers to is used again only if it is the table's.
#[test]
fn an_older_leaf_harms_no_other_table() {
    let (leaves, are_whole) = older_leaves(Mutations::NONE);
    assert!(leaves > 0 && are_whole, "{leaves} leaves");
    let survived = std::panic::catch_unwind(|| older_leaves(Mutation::TrustGiven.into()));
    assert!(!survived.is_ok_and(|(_, are_whole)| are_whole), "without a look at the map it is not");
}
