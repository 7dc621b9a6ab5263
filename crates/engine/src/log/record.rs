//! Log records: what they say, and their bytes.
//!
//! ```text
//! offset size field
//!      0    4 len        bytes of the whole record
//!      4    4 checksum   CRC-32C of bytes 8..len, the record's LSN and the log's salt
//!      8    4 epoch      how often the database had been opened when it was written
//!     12    1 kind       Kind
//!     13    3 durable    LSN up to which all was durable: 1 + (LSN / 16) mod (2^24 - 1), or 0
//!     16    8 txn        the transaction, or zero
//!     24    8 prev       LSN of the transaction's record before, or zero
//!     32      body       by kind
//!
//! UPDATE      page 8, page_prev 8, change_len 4, undo_len 4, change, undo
//! CLR         page 8, page_prev 8, change_len 4, undo_len 4 (0), change, undo_next 8
//! RESTORE     page 8, page_prev 8, undo_next 8, pieces
//! NESTED_END  undo_next 8
//! COMMIT      tree 4, difference of its rows 8, for each tree that has other rows now; tree 0 if
//!             there are more than fit: all counts are unknown then
//! END         nothing
//! BUF_WRITE   eol 8, pages 8 each
//! BEGIN_CHKPT nothing
//! TXN_TABLE   txn 8, first 8, last 8, for each transaction
//! END_CHKPT   begin 8
//! FLASH       bytes of the flash tier's own
//! COUNTS      at 8, next_tree 4, records 4, then tree 4, rows 8, for each tree
//!
//! pieces      at 2, len 2, bytes; repeated
//! undo        tag 1: 0 none; 1 insert, 2 delete, 3 update: tree 4, key_len 2, key, record;
//!             4 pieces of the page before the change, within a nested top action
//! ```
//!
//! - R1: LSN and salt are part of the checksum, so bytes of an earlier lap of the ring, which once
//!   were the record of another LSN, or of a database that was here before, are no record now.
//! - R2: `decode` never panics, whatever the bytes.
//! - R3: a COMMIT or END is a transaction's last record.
//!
//! Numbers are little-endian. UPDATE, BUF_WRITE and the checkpoint records are those of [S3
//! II-A]; CLR is that of ARIES, and NESTED_END its dummy CLR.

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId, TxnId};

pub(crate) use super::lists::ROWS_BYTES;
use super::lists::{Input, encode_rows, whole_items};
pub(crate) use super::lists::{PageList, Pieces, RowsList, TxnList};
use super::runs::encode_difference;
use crate::TreeId;
use crate::counts::CountsHead;
use crate::writer::Undo;

/// Bytes before a record's body.
pub(crate) const HEADER_BYTES: usize = 32;
/// No record is longer, in bytes.
pub(crate) const RECORD_MAX: usize = 64 << 10;
/// Most pages in one BUF_WRITE [S3 II-A].
pub(crate) const BUF_WRITE_PAGES_MAX: usize = 2048;
/// Most bytes of the flash tier in one record.
pub(crate) const FLASH_BYTES_MAX: usize = 16 << 10;
/// Most trees in one COUNTS, and in a COMMIT.
pub(crate) const COUNTS_MAX: usize = 4096;
/// Most transactions in one TXN_TABLE.
pub(crate) const TXN_TABLE_MAX: usize = 1024;

/// A COUNTS before its trees.
const COUNTS_HEAD: usize = 16;

const LEN_AT: usize = 0;
const CHECKSUM_AT: usize = 4;
const EPOCH_AT: usize = 8;
const KIND_AT: usize = 12;
const DURABLE_AT: usize = 13;
const TXN_AT: usize = 16;
const PREV_AT: usize = 24;

const _: () = assert!(PREV_AT + 8 == HEADER_BYTES && DURABLE_AT + 3 == TXN_AT);
const _: () = assert!(HEADER_BYTES + 8 + 8 * BUF_WRITE_PAGES_MAX <= RECORD_MAX);
const _: () = assert!(HEADER_BYTES + 24 * TXN_TABLE_MAX <= RECORD_MAX);
const _: () = assert!(HEADER_BYTES + COUNTS_HEAD + ROWS_BYTES * COUNTS_MAX <= RECORD_MAX);
const _: () = assert!(HEADER_BYTES + 64 + 4 * PAGE_SIZE <= RECORD_MAX);

/// A record stores the durable end in units of this many bytes, rounded down: no record is so
/// short.
pub(super) const DURABLE_UNIT: u64 = 16;
const DURABLE_MOD: u64 = (1 << 24) - 1;
const _: () = assert!(DURABLE_UNIT < HEADER_BYTES as u64);

/// The kind of a record, as stored. 4 was used by earlier formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Update = 1,
    Clr = 2,
    Restore = 3,
    NestedEnd = 5,
    Commit = 6,
    End = 7,
    BufWrite = 8,
    BeginCheckpoint = 9,
    TxnTable = 10,
    EndCheckpoint = 11,
    Flash = 12,
    Counts = 13,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::{
            BeginCheckpoint, BufWrite, Clr, Commit, Counts, End, EndCheckpoint, Flash, NestedEnd,
            Restore, TxnTable, Update,
        };
        let all = [
            Update,
            Clr,
            Restore,
            NestedEnd,
            Commit,
            End,
            BufWrite,
            BeginCheckpoint,
            TxnTable,
            EndCheckpoint,
            Flash,
            Counts,
        ];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// A record, decoded: it borrows from the bytes it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The transaction, or `TxnId(0)`.
    pub(crate) txn: TxnId,
    /// The transaction's record before, or `Lsn::ZERO`.
    pub(crate) prev: Lsn,
    /// What it says.
    pub(crate) body: Body<'a>,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// A page changed, by a transaction going forward.
    Update {
        page: PageId,
        page_prev: Lsn,
        change: &'a [u8],
        undo: StoredUndo<'a>,
        /// `undo`, encoded.
        undo_bytes: &'a [u8],
    },
    /// A page changed, by an undo. The transaction's undo goes on at `undo_next`.
    Clr { page: PageId, page_prev: Lsn, change: &'a [u8], undo_next: Lsn },
    /// Bytes of a page put back, undoing part of a nested action that never ended.
    Restore { page: PageId, page_prev: Lsn, undo_next: Lsn, pieces: Pieces<'a> },
    /// A nested action has ended: undo skips it and goes on at `undo_next`.
    NestedEnd { undo_next: Lsn },
    /// The transaction is committed, and made these differences.
    Commit { rows: RowsList<'a> },
    /// The transaction is rolled back, wholly.
    End,
    /// Home has these pages with every change up to `eol`.
    BufWrite { eol: Lsn, pages: PageList<'a> },
    /// A checkpoint begins.
    BeginCheckpoint,
    /// Transactions that were active at the checkpoint.
    TxnTable { entries: TxnList<'a> },
    /// The checkpoint that began at `begin` has ended.
    EndCheckpoint { begin: Lsn },
    /// Something of the flash tier's own.
    Flash { payload: &'a [u8] },
    /// The rows of some trees, as a checkpoint counts them.
    Counts { head: CountsHead, rows: RowsList<'a> },
}

/// How an `Update` is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredUndo<'a> {
    /// By key, or not at all.
    Logical(Undo<'a>),
    /// By putting bytes back, as long as its nested action has not ended.
    Physical(Pieces<'a>),
}

impl StoredUndo<'_> {
    /// Whether there is nothing to undo.
    pub(crate) fn is_none(self) -> bool {
        self == StoredUndo::Logical(Undo::None)
    }
}

impl Body<'_> {
    /// The page that it changes.
    pub(crate) fn page(&self) -> Option<PageId> {
        match *self {
            Body::Update { page, .. } | Body::Clr { page, .. } | Body::Restore { page, .. } => {
                Some(page)
            }
            _ => None,
        }
    }
}

fn encode_undo(undo: &Undo<'_>, out: &mut Vec<u8>) {
    let (tag, tree, key, record): (u8, TreeId, &[u8], &[u8]) = match *undo {
        Undo::None => {
            out.push(0);
            return;
        }
        Undo::Insert { tree, key } => (1, tree, key, &[]),
        Undo::Delete { tree, key, record } => (2, tree, key, record),
        Undo::Update { tree, key, old } => (3, tree, key, old),
    };
    let key_len = u16::try_from(key.len()).expect("keys fit a page");
    let mut head = [tag; 7];
    head[1..5].copy_from_slice(&tree.0.to_le_bytes());
    head[5..].copy_from_slice(&key_len.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(key);
    out.extend_from_slice(record);
}

/// The undo that `bytes` encode, for the list in memory.
pub(crate) fn decode_undo(bytes: &[u8]) -> Option<StoredUndo<'_>> {
    let mut input = Input(bytes);
    let tag = input.chunk::<1>()?[0];
    if tag == 4 {
        return Some(StoredUndo::Physical(Pieces::decode(input.rest())?));
    }
    if tag == 0 {
        return input.0.is_empty().then_some(StoredUndo::Logical(Undo::None));
    }
    let tree = TreeId(input.u32()?);
    let key_len = usize::from(input.u16()?);
    let key = input.take(key_len)?;
    let record = input.rest();
    Some(StoredUndo::Logical(match tag {
        1 if record.is_empty() => Undo::Insert { tree, key },
        2 => Undo::Delete { tree, key, record },
        3 => Undo::Update { tree, key, old: record },
        _ => return None,
    }))
}

/// A record being built, in memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    bytes: Vec<u8>,
}

/// The length of a COUNTS of `trees`.
pub(crate) fn counts_bytes(trees: usize) -> u64 {
    (HEADER_BYTES + COUNTS_HEAD + ROWS_BYTES * trees) as u64
}

impl Draft {
    fn begin(&mut self, kind: Kind, txn: TxnId, prev: Lsn) -> &mut Vec<u8> {
        let mut header = [0; HEADER_BYTES];
        header[KIND_AT] = kind as u8;
        header[TXN_AT..TXN_AT + 8].copy_from_slice(&txn.0.to_le_bytes());
        header[PREV_AT..PREV_AT + 8].copy_from_slice(&prev.0.to_le_bytes());
        self.bytes.clear();
        self.bytes.extend_from_slice(&header);
        &mut self.bytes
    }

    /// An UPDATE; returns where the undo begins in `bytes`. `change` and `undo` append themselves.
    pub(crate) fn update(
        &mut self,
        txn: TxnId,
        prev: Lsn,
        (page, page_prev): (PageId, Lsn),
        change: impl FnOnce(&mut Vec<u8>),
        undo: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let out = self.begin(Kind::Update, txn, prev);
        let lengths_at = out.len() + 16;
        let change_at = lengths_at + 8;
        let mut head = [0; 24];
        head[..8].copy_from_slice(&page.0.to_le_bytes());
        head[8..16].copy_from_slice(&page_prev.0.to_le_bytes());
        out.extend_from_slice(&head);
        change(out);
        let undo_at = out.len();
        undo(out);
        let change_len = (undo_at - change_at) as u32;
        let undo_len = (out.len() - undo_at) as u32;
        out[lengths_at..lengths_at + 4].copy_from_slice(&change_len.to_le_bytes());
        out[lengths_at + 4..lengths_at + 8].copy_from_slice(&undo_len.to_le_bytes());
        undo_at
    }

    /// A CLR.
    pub(crate) fn clr(
        &mut self,
        txn: TxnId,
        prev: Lsn,
        (page, page_prev): (PageId, Lsn),
        change: impl FnOnce(&mut Vec<u8>),
        undo_next: Lsn,
    ) {
        self.update(txn, prev, (page, page_prev), change, |_| {});
        self.bytes[KIND_AT] = Kind::Clr as u8;
        self.bytes.extend_from_slice(&undo_next.0.to_le_bytes());
    }

    /// A RESTORE of `pieces` as found in an UPDATE.
    pub(crate) fn restore(
        &mut self,
        txn: TxnId,
        prev: Lsn,
        (page, page_prev): (PageId, Lsn),
        pieces: Pieces<'_>,
        undo_next: Lsn,
    ) {
        let out = self.begin(Kind::Restore, txn, prev);
        for number in [page.0, page_prev.0, undo_next.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(pieces.0);
    }

    /// A NESTED_END.
    pub(crate) fn nested_end(&mut self, txn: TxnId, prev: Lsn, undo_next: Lsn) {
        let out = self.begin(Kind::NestedEnd, txn, prev);
        out.extend_from_slice(&undo_next.0.to_le_bytes());
    }

    /// A COMMIT with the differences of rows that are not zero: none of them, but that they are
    /// not known, if they are more than `COUNTS_MAX`.
    pub(crate) fn commit(&mut self, txn: TxnId, prev: Lsn, differences: &[(TreeId, i64)]) {
        let out = self.begin(Kind::Commit, txn, prev);
        for &(tree, rows) in differences.iter().filter(|(_, rows)| *rows != 0) {
            encode_rows((tree, rows), out);
            if out.len() > HEADER_BYTES + COUNTS_MAX * ROWS_BYTES {
                out.truncate(HEADER_BYTES);
                return encode_rows((TreeId(0), 0), out);
            }
        }
    }

    /// A COUNTS of at most `COUNTS_MAX` trees.
    pub(crate) fn counts(&mut self, head: CountsHead, rows: &[(TreeId, i64)]) {
        assert!(rows.len() <= COUNTS_MAX, "{} in a COUNTS", rows.len());
        let out = self.begin(Kind::Counts, TxnId(0), Lsn::ZERO);
        out.extend_from_slice(&head.at.0.to_le_bytes());
        out.extend_from_slice(&head.next_tree.to_le_bytes());
        out.extend_from_slice(&head.records.to_le_bytes());
        rows.iter().for_each(|rows| encode_rows(*rows, out));
    }

    /// An END.
    pub(crate) fn end(&mut self, txn: TxnId, prev: Lsn) {
        self.begin(Kind::End, txn, prev);
    }

    /// A FLASH of at most `FLASH_BYTES_MAX` bytes.
    pub(crate) fn flash(&mut self, payload: &[u8]) {
        assert!(payload.len() <= FLASH_BYTES_MAX, "{} bytes for the flash tier", payload.len());
        self.begin(Kind::Flash, TxnId(0), Lsn::ZERO).extend_from_slice(payload);
    }

    /// A BUF_WRITE of at most `BUF_WRITE_PAGES_MAX` pages.
    pub(crate) fn buf_write(&mut self, pages: &[PageId], eol: Lsn) {
        assert!(pages.len() <= BUF_WRITE_PAGES_MAX, "{} pages in a BUF_WRITE", pages.len());
        let out = self.begin(Kind::BufWrite, TxnId(0), Lsn::ZERO);
        out.extend_from_slice(&eol.0.to_le_bytes());
        for page in pages {
            out.extend_from_slice(&page.0.to_le_bytes());
        }
    }

    /// A BEGIN_CHKPT.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.begin(Kind::BeginCheckpoint, TxnId(0), Lsn::ZERO);
    }

    /// A TXN_TABLE of at most `TXN_TABLE_MAX` transactions.
    pub(crate) fn txn_table(&mut self, entries: &[(TxnId, Lsn, Lsn)]) {
        assert!(entries.len() <= TXN_TABLE_MAX, "{} in a TXN_TABLE", entries.len());
        let out = self.begin(Kind::TxnTable, TxnId(0), Lsn::ZERO);
        for (txn, first, last) in entries {
            for number in [txn.0, first.0, last.0] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// An END_CHKPT.
    pub(crate) fn end_checkpoint(&mut self, begin: Lsn) {
        let out = self.begin(Kind::EndCheckpoint, TxnId(0), Lsn::ZERO);
        out.extend_from_slice(&begin.0.to_le_bytes());
    }

    /// Bytes of the record.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The encoded undo of an `update` that began at `undo_at`.
    pub(crate) fn undo_bytes(&self, undo_at: usize) -> &[u8] {
        &self.bytes[undo_at..]
    }

    /// Fills in all of the header but what depends on the LSN; returns the checksum so far. The log
    /// is `durable` up to there, and ends near `end`.
    pub(crate) fn close(&mut self, epoch: u32, durable: u64, end: u64) -> u32 {
        let len = self.bytes.len();
        assert!(len <= RECORD_MAX, "a record of {len} bytes");
        self.bytes[LEN_AT..LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
        self.bytes[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&epoch.to_le_bytes());
        let said = said_durable(durable, end);
        self.bytes[DURABLE_AT..DURABLE_AT + 3].copy_from_slice(&said.to_le_bytes()[..3]);
        crc32c::crc32c(&self.bytes[EPOCH_AT..])
    }

    /// Fills in the checksum for `lsn`: the record is ready.
    pub(crate) fn seal(&mut self, checksum: u32, lsn: Lsn, salt: u64) -> &[u8] {
        let checksum = bind(checksum, lsn, salt);
        self.bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }
}

/// Encodes a logical undo.
pub(crate) fn undo_writer<'u>(undo: &'u Undo<'u>) -> impl FnOnce(&mut Vec<u8>) + 'u {
    move |out| encode_undo(undo, out)
}

/// Encodes the undo of a change within a nested action: what `now` has changed of `before`.
pub(crate) fn undo_difference<'u>(
    before: &'u PageBuf,
    now: &'u PageBuf,
) -> impl FnOnce(&mut Vec<u8>) + 'u {
    move |out| {
        out.push(4);
        encode_difference(before, now, out);
    }
}

/// The length that the record at the front of `bytes` claims, if it is possible.
pub(crate) fn claimed_len(bytes: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    (HEADER_BYTES..=RECORD_MAX).contains(&len).then_some(len)
}

/// What a record says of `durable`: zero if that could be taken for another lap of the numbers.
fn said_durable(durable: u64, end: u64) -> u32 {
    // Half: others append meanwhile.
    if end.saturating_sub(durable) / DURABLE_UNIT >= DURABLE_MOD / 2 {
        return 0;
    }
    (1 + durable / DURABLE_UNIT % DURABLE_MOD) as u32
}

/// How far the log was durable when the record of `lsn` with this header was appended, rounded
/// down; `None` if it does not say.
pub(crate) fn durable_before(header: &[u8], lsn: Lsn) -> Option<Lsn> {
    let said = header[DURABLE_AT..DURABLE_AT + 3].iter().rev();
    let said = said.fold(0, |number, &byte| number << 8 | u64::from(byte)).checked_sub(1)?;
    let units = lsn.0 / DURABLE_UNIT;
    let back = (units % DURABLE_MOD + DURABLE_MOD - said % DURABLE_MOD) % DURABLE_MOD;
    Some(Lsn(units.checked_sub(back)? * DURABLE_UNIT))
}

/// Whether these bytes could be the header of a record that says how far the log was durable, of
/// the opening `epoch` or an earlier one.
pub(crate) fn may_begin(header: &[u8], epoch: u32) -> bool {
    claimed_len(header).is_some()
        && header[DURABLE_AT..DURABLE_AT + 3] != [0; 3]
        && Kind::of(header[KIND_AT]).is_some()
        && (1..=epoch)
            .contains(&u32::from_le_bytes(header[EPOCH_AT..EPOCH_AT + 4].try_into().expect("four")))
}

/// Binds a checksum to a place of a log.
fn bind(checksum: u32, lsn: Lsn, salt: u64) -> u32 {
    let place = (u128::from(salt) << 64) | u128::from(lsn.0);
    crc32c::crc32c_append(checksum, &place.to_le_bytes())
}

/// Whether `bytes` (as long as claimed) are the record of `lsn`; returns its epoch.
pub(crate) fn verify(bytes: &[u8], lsn: Lsn, salt: u64) -> Option<u32> {
    let stored = u32::from_le_bytes(bytes.get(CHECKSUM_AT..EPOCH_AT)?.try_into().ok()?);
    let checksum = bind(crc32c::crc32c(bytes.get(EPOCH_AT..)?), lsn, salt);
    if stored != checksum {
        return None;
    }
    Some(u32::from_le_bytes(bytes.get(EPOCH_AT..KIND_AT)?.try_into().ok()?))
}

/// Makes the record of `lsn` one of a copy of its database, whose log has another salt. Home of the
/// copy is not the home that a BUF_WRITE tells of: it then tells nothing, unless it `is_kept`.
/// Verify first.
pub(crate) fn reseal(bytes: &mut [u8], lsn: Lsn, salt: u64, is_kept: bool) {
    if bytes[KIND_AT] == Kind::BufWrite as u8 && !is_kept {
        bytes[HEADER_BYTES..HEADER_BYTES + 8].fill(0);
    }
    let checksum = bind(crc32c::crc32c(&bytes[EPOCH_AT..]), lsn, salt);
    bytes[CHECKSUM_AT..EPOCH_AT].copy_from_slice(&checksum.to_le_bytes());
}

/// The record that `bytes` encode, or `None` if they encode none. Verify first.
pub(crate) fn decode(bytes: &[u8]) -> Option<Record<'_>> {
    let header = bytes.get(..HEADER_BYTES)?;
    let kind = Kind::of(header[KIND_AT])?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight"));
    let body = decode_body(kind, &mut Input(&bytes[HEADER_BYTES..]))?;
    Some(Record { txn: TxnId(number(TXN_AT)), prev: Lsn(number(PREV_AT)), body })
}

fn decode_body<'a>(kind: Kind, input: &mut Input<'a>) -> Option<Body<'a>> {
    let body = match kind {
        Kind::Update | Kind::Clr => return decode_change(kind, input),
        Kind::Restore => Body::Restore {
            page: PageId(input.u64()?),
            page_prev: Lsn(input.u64()?),
            undo_next: Lsn(input.u64()?),
            pieces: Pieces::decode(input.rest())?,
        },
        Kind::NestedEnd => Body::NestedEnd { undo_next: Lsn(input.u64()?) },
        Kind::Commit => Body::Commit { rows: RowsList(whole_items(input.rest(), ROWS_BYTES)?) },
        Kind::End => Body::End,
        Kind::BufWrite => {
            let eol = Lsn(input.u64()?);
            Body::BufWrite { eol, pages: PageList(whole_items(input.rest(), 8)?) }
        }
        Kind::BeginCheckpoint => Body::BeginCheckpoint,
        Kind::TxnTable => Body::TxnTable { entries: TxnList(whole_items(input.rest(), 24)?) },
        Kind::EndCheckpoint => Body::EndCheckpoint { begin: Lsn(input.u64()?) },
        Kind::Flash => Body::Flash { payload: input.rest() },
        Kind::Counts => {
            let at = Lsn(input.u64()?);
            let head = CountsHead { at, next_tree: input.u32()?, records: input.u32()? };
            Body::Counts { head, rows: RowsList(whole_items(input.rest(), ROWS_BYTES)?) }
        }
    };
    input.0.is_empty().then_some(body)
}

fn decode_change<'a>(kind: Kind, input: &mut Input<'a>) -> Option<Body<'a>> {
    let (page, page_prev) = (PageId(input.u64()?), Lsn(input.u64()?));
    let (change_len, undo_len) = (input.u32()? as usize, input.u32()? as usize);
    let change = input.take(change_len)?;
    let body = if kind == Kind::Clr {
        Body::Clr { page, page_prev, change, undo_next: Lsn(input.u64()?) }
    } else {
        let undo_bytes = input.take(undo_len)?;
        Body::Update { page, page_prev, change, undo: decode_undo(undo_bytes)?, undo_bytes }
    };
    input.0.is_empty().then_some(body)
}
