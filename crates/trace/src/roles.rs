//! What a file is to a database, by its path: a cache of pages gains by its data only.
//!
//! - O1: a path that no rule knows is one of data.
//!
//! Sources: the chapters on the layout of files of PostgreSQL ("Database File Layout"), MySQL
//! ("InnoDB On-Disk Structures", "The Binary Log"), SQLite ("Temporary Files Used By SQLite"),
//! RocksDB and WiredTiger.

/// What a file is to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileRole {
    /// Pages of tables and indexes.
    Data,
    /// Written in order and read after a crash: logs, journals, double-write areas; and messages.
    Log,
    /// Runs of sorts, temporary tables, statistics.
    Temporary,
    /// Programs, libraries, their settings and messages.
    Library,
}

/// Folders of logs.
const LOG_FOLDERS: [&[u8]; 4] = [b"pg_wal", b"pg_xlog", b"#innodb_redo", b"journal"];
/// Beginnings of the names of logs.
const LOG_BEGINNINGS: [&[u8]; 7] = [
    b"ib_logfile",
    b"mysql-bin.",
    b"binlog.",
    b"relay-bin",
    b"aria_log.",
    b"#ib_redo",
    b"WiredTigerLog",
];
/// Ends of the names of logs.
const LOG_ENDS: [&[u8]; 6] = [b"-wal", b"-journal", b"-shm", b".dblwr", b".wal", b".log"];
const TEMPORARY_FOLDERS: [&[u8]; 4] = [b"pgsql_tmp", b"pg_stat_tmp", b"pg_stat", b"#innodb_temp"];
const TEMPORARY_BEGINNINGS: [&[u8]; 4] = [b"ibtmp", b"etilqs_", b"#sql", b"pgsql_tmp"];
/// Where programs and what belongs to them are. Not all of `/usr`: databases are below
/// `/usr/local`, too.
const LIBRARY_FOLDERS: [&[u8]; 13] = [
    b"/bin/",
    b"/sbin/",
    b"/lib/",
    b"/lib32/",
    b"/lib64/",
    b"/etc/",
    b"/usr/bin/",
    b"/usr/sbin/",
    b"/usr/lib/",
    b"/usr/lib64/",
    b"/usr/share/",
    b"/usr/local/lib/",
    b"/usr/local/share/",
];

impl FileRole {
    /// All.
    pub const ALL: [FileRole; 4] =
        [FileRole::Data, FileRole::Log, FileRole::Temporary, FileRole::Library];

    /// Its name: `data`, `log`, `temporary` or `library`.
    pub fn name(self) -> &'static str {
        match self {
            FileRole::Data => "data",
            FileRole::Log => "log",
            FileRole::Temporary => "temporary",
            FileRole::Library => "library",
        }
    }

    /// The role of the file at `path`, or of what is called so in a list of files.
    pub fn of(path: &[u8]) -> FileRole {
        let parts = || path.split(|byte| *byte == b'/');
        let name = parts().next_back().unwrap_or_default();
        let is_in = |folders: &[&[u8]]| parts().any(|part| folders.contains(&part));
        let begins = |beginnings: &[&[u8]]| beginnings.iter().any(|begin| name.starts_with(begin));
        if LIBRARY_FOLDERS.iter().any(|folder| path.starts_with(folder)) || is_shared_object(name) {
            FileRole::Library
        } else if is_in(&LOG_FOLDERS)
            || begins(&LOG_BEGINNINGS)
            || LOG_ENDS.iter().any(|end| name.ends_with(end))
        {
            FileRole::Log
        } else if is_in(&TEMPORARY_FOLDERS) || begins(&TEMPORARY_BEGINNINGS) {
            FileRole::Temporary
        } else {
            FileRole::Data
        }
    }
}

/// `libc.so`, `libc.so.6`.
fn is_shared_object(name: &[u8]) -> bool {
    let Some(at) = memchr::memmem::rfind(name, b".so") else { return false };
    name[at + 3..].iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_databases_have_their_roles() {
        for (path, role) in [
            ("/var/lib/postgresql/15/main/base/5/16384", FileRole::Data),
            ("/var/lib/postgresql/15/main/base/5/16384.1", FileRole::Data),
            ("/usr/local/pgsql/data/base/5/16384_vm", FileRole::Data),
            ("/var/lib/postgresql/15/main/pg_wal/000000010000000000000001", FileRole::Log),
            ("pg_wal", FileRole::Log),
            ("/d/base/pgsql_tmp/pgsql_tmp123.0", FileRole::Temporary),
            ("/var/lib/mysql/shop/orders.ibd", FileRole::Data),
            ("/var/lib/mysql/undo_001", FileRole::Data),
            ("/var/lib/mysql/#innodb_redo/#ib_redo12", FileRole::Log),
            ("/var/lib/mysql/ib_logfile0", FileRole::Log),
            ("/var/lib/mysql/#ib_16384_0.dblwr", FileRole::Log),
            ("/var/lib/mysql/binlog.000007", FileRole::Log),
            ("/var/lib/mysql/#innodb_temp/temp_1.ibt", FileRole::Temporary),
            ("/home/me/shop.db", FileRole::Data),
            ("/home/me/shop.db-wal", FileRole::Log),
            ("/home/me/shop.db-journal", FileRole::Log),
            ("/var/tmp/etilqs_a1", FileRole::Temporary),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", FileRole::Library),
            ("/opt/db/lib/libdb-5.3.so", FileRole::Library),
            ("/etc/passwd", FileRole::Library),
            ("/data/it.solves", FileRole::Data),
            ("", FileRole::Data),
        ] {
            assert_eq!(FileRole::of(path.as_bytes()), role, "{path}");
        }
    }
}
