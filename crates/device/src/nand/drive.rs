//! A NAND drive: commands, host link, buffer, channels and dies, event by event.
//!
//! - N1: the controller takes commands one after the other, and their data cross the link so.
//! - N2: a write is acknowledged when it is in the buffer, or without one when it is programmed.
//! - N3: a die does one thing at a time, and a channel moves the data of one die at a time.
//! - N4: reads of the host go before what else waits for a die, `READS_IN_A_ROW` at most.
//! - N5: after a flush, all that was acknowledged is programmed, and so is the map of it.
//! - Simpler than firmware: a write of less than a unit costs what a unit does; collection keeps
//!   what it moves in memory of its own; the map is in memory, written by flushes only.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Sum;

use terrace_rt::{Nanos, Prng};

use super::flash::Flash;
use super::ftl::{Collected, Program};
use super::spec::{Content, NandSpec, Side};
use crate::Op;

/// Host reads that a die serves while something else waits for it: our choice, since no data sheet
/// says; fewer would let each program delay a read, and none would let writes starve.
const READS_IN_A_ROW: u32 = 8;

/// Random overwrites of the whole drive before it is measured, as `Content::Worn` has it.
const WEAR_IN_ROUNDS: u64 = 3;

/// What was written to flash, in bytes, since the drive was new to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// By the host.
    pub host_bytes: u64,
    /// Of the map, at barriers.
    pub map_bytes: u64,
    /// By garbage collection.
    pub moved_bytes: u64,
    /// Padding of programs that could not wait.
    pub padding_bytes: u64,
    /// Blocks erased, of one plane of a die each.
    pub erased_blocks: u64,
}

impl Wear {
    /// Write amplification: bytes programmed for a byte of the host; 1 if it wrote none.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        if self.host_bytes == 0 {
            return 1.0;
        }
        self.programmed_bytes() as f64 / self.host_bytes as f64
    }

    /// All bytes programmed.
    #[must_use]
    pub fn programmed_bytes(&self) -> u64 {
        self.host_bytes + self.map_bytes + self.moved_bytes + self.padding_bytes
    }
}

impl Sum for Wear {
    fn sum<I: Iterator<Item = Wear>>(all: I) -> Wear {
        all.fold(Wear::default(), |sum, next| Wear {
            host_bytes: sum.host_bytes + next.host_bytes,
            map_bytes: sum.map_bytes + next.map_bytes,
            moved_bytes: sum.moved_bytes + next.moved_bytes,
            padding_bytes: sum.padding_bytes + next.padding_bytes,
            erased_blocks: sum.erased_blocks + next.erased_blocks,
        })
    }
}

/// A command of the host.
#[derive(Clone, Copy)]
struct Command<T> {
    op: Op,
    first: u32,
    units: u32,
    len: u64,
    /// Reads or programs that it waits for, or units that are not in the buffer yet.
    left: u32,
    tag: T,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The controller has understood a command.
    Decoded(u32),
    /// The data of a write are here, those of a read are at the host.
    Crossed(u32),
    /// A command is over.
    Over(u32),
    /// A die has read, programmed or erased.
    Cell(u32),
    /// A channel has moved the data of its die.
    Moved(u32),
}

enum Work {
    /// Units into memory: for a command, or for garbage collection.
    Read { command: Option<u32>, units: u32 },
    /// The host's units, for which commands may wait; or the map's, or those that were moved.
    Program { kind: Kind, units: u32 },
    /// A block of each plane.
    Erase,
}

enum Kind {
    Host { units: Vec<u32>, command: Option<u32> },
    Map,
    Moved,
}

#[derive(Default)]
struct Die {
    reads: VecDeque<Work>,
    others: VecDeque<Work>,
    current: Option<Work>,
    reads_in_a_row: u32,
}

#[derive(Default)]
struct Channel {
    current: Option<u32>,
    waiting: VecDeque<u32>,
}

/// The drive. `T` names a request to its submitter.
pub(crate) struct NandDrive<T> {
    spec: NandSpec,
    erase: Nanos,
    flash: Flash,
    host_units: u32,
    units_per_program: u32,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    /// How far the events have been processed, which a flush does ahead of time.
    clock: Nanos,
    commands: Vec<Option<Command<T>>>,
    free: Vec<u32>,
    /// Commands that the drive does not see yet.
    unseen: VecDeque<u32>,
    seen: usize,
    controller_free: Nanos,
    link_free: [Nanos; 2],
    /// Writes whose data are here and do not fit in the buffer.
    arrived: VecDeque<u32>,
    /// Units in the buffer that wait until they fill a program of their domain.
    gathered: Vec<Vec<u32>>,
    buffered: u64,
    /// How often a unit is in the buffer.
    in_buffer: Vec<u16>,
    /// Programs of the host and the map that are not over.
    programs: u64,
    /// Units of the map that a flush must write.
    map_dirty: Vec<u32>,
    is_map_dirty: Vec<bool>,
    dies: Vec<Die>,
    channels: Vec<Channel>,
}

impl<T: Copy> NandDrive<T> {
    /// An idle drive of `bytes`.
    pub(crate) fn new(spec: &NandSpec, bytes: u64) -> NandDrive<T> {
        let mut flash = Flash::new(spec, bytes);
        if spec.content == Content::Worn {
            flash.wear_in(WEAR_IN_ROUNDS, &mut Prng::from_seed(0));
        }
        NandDrive::with(spec, flash)
    }

    /// The same drive after its power was off: idle, its flash as it is.
    pub(crate) fn restarted(&self) -> NandDrive<T> {
        NandDrive::with(&self.spec, self.flash.clone())
    }

    fn with(spec: &NandSpec, flash: Flash) -> NandDrive<T> {
        let layout = *flash.layout();
        let (host_units, map_units) = (flash.host_units(), flash.map_units());
        NandDrive {
            spec: spec.clone(),
            erase: spec.erase_time(layout.pages_per_block),
            host_units,
            units_per_program: layout.units_per_program,
            events: BinaryHeap::new(),
            sequence: 0,
            clock: Nanos::ZERO,
            commands: Vec::new(),
            free: Vec::new(),
            unseen: VecDeque::new(),
            seen: 0,
            controller_free: Nanos::ZERO,
            link_free: [Nanos::ZERO; 2],
            arrived: VecDeque::new(),
            gathered: vec![Vec::new(); flash.domains()],
            buffered: 0,
            in_buffer: vec![0; host_units as usize],
            programs: 0,
            map_dirty: Vec::new(),
            is_map_dirty: vec![false; map_units as usize],
            dies: (0..spec.dies()).map(|_| Die::default()).collect(),
            channels: (0..spec.channels).map(|_| Channel::default()).collect(),
            flash,
        }
    }

    /// What was written so far.
    pub(crate) fn wear(&self) -> Wear {
        let (units, unit) = (self.flash.programmed(), u64::from(self.spec.unit_bytes));
        let blocks = u64::from(self.flash.layout().dies * self.spec.planes);
        Wear {
            host_bytes: units.host * unit,
            map_bytes: units.map * unit,
            moved_bytes: units.moved * unit,
            padding_bytes: units.padding * unit,
            erased_blocks: units.erased * blocks,
        }
    }

    /// Forgets what the range holds, as far as it is whole units.
    pub(crate) fn trim(&mut self, offset: u64, len: u64) {
        let unit = u64::from(self.spec.unit_bytes);
        let (first, end) = (offset.div_ceil(unit), (offset + len) / unit);
        for unit in first..end.min(u64::from(self.host_units)) {
            if self.in_buffer[unit as usize] == 0 {
                self.flash.trim(unit as u32);
            }
        }
    }

    /// Accepts a request of the host at `now`; `run` afterwards.
    pub(crate) fn push(&mut self, now: Nanos, op: Op, offset: u64, len: u64, tag: T) {
        let unit = u64::from(self.spec.unit_bytes);
        let first = offset / unit;
        let units = (offset + len).div_ceil(unit) - first;
        let command =
            Command { op, first: first as u32, units: units as u32, len, left: units as u32, tag };
        let number = self.free.pop().unwrap_or_else(|| {
            self.commands.push(None);
            self.commands.len() as u32 - 1
        });
        self.commands[number as usize] = Some(command);
        self.unseen.push_back(number);
        self.see(now.max(self.clock));
    }

    /// Lets time pass until `now`: reports what is over, and says when to be asked again.
    pub(crate) fn run(&mut self, now: Nanos, mut over: impl FnMut(Nanos, T)) -> Option<Nanos> {
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= now
        {
            self.step(&mut over);
        }
        self.clock = self.clock.max(now);
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    /// When a flush that begins at `now`, with no command outstanding, is over.
    pub(crate) fn flushed_at(&mut self, now: Nanos) -> Nanos {
        let nobody = |_: Nanos, _: T| unreachable!("a flush overtook commands");
        self.run(now, nobody);
        (0..self.flash.domains()).for_each(|domain| self.program_gathered(self.clock, domain));
        self.finish_programs();
        let mut dirty = std::mem::take(&mut self.map_dirty);
        dirty.sort_unstable();
        for (domain, units) in self.programs_of(dirty) {
            units.iter().for_each(|unit| {
                self.is_map_dirty[(*unit - self.host_units) as usize] = false;
            });
            let program = self.flash.write(domain, &units);
            self.issue(self.clock, (domain, program), Kind::Map);
        }
        self.finish_programs();
        self.clock
    }

    fn finish_programs(&mut self) {
        while self.programs > 0 {
            self.step(&mut |_, _| unreachable!("a flush overtook commands"));
        }
    }

    fn step(&mut self, over: &mut impl FnMut(Nanos, T)) {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            unreachable!("something is under way");
        };
        self.clock = self.clock.max(at);
        match event {
            Event::Decoded(number) => self.decoded(at, number),
            Event::Crossed(number) => self.crossed(at, number),
            Event::Cell(die) => self.cell_over(at, die),
            Event::Moved(channel) => self.channel_over(at, channel),
            Event::Over(number) => {
                let command = self.commands[number as usize].take().expect("it was under way");
                self.free.push(number);
                self.seen -= 1;
                over(at, command.tag);
                self.see(at);
            }
        }
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn command(&mut self, number: u32) -> &mut Command<T> {
        self.commands[number as usize].as_mut().expect("a command under way")
    }

    fn side(&self, op: Op) -> &Side {
        match op {
            Op::Read => &self.spec.host_read,
            Op::Write => &self.spec.host_write,
        }
    }

    /// Gives commands to the controller, up to the number that it sees at once.
    fn see(&mut self, now: Nanos) {
        while self.seen < self.spec.queue_depth
            && let Some(number) = self.unseen.pop_front()
        {
            self.seen += 1;
            let op = self.command(number).op;
            self.controller_free = self.controller_free.max(now) + self.side(op).command;
            self.at(self.controller_free, Event::Decoded(number));
        }
    }

    fn decoded(&mut self, now: Nanos, number: u32) {
        let command = *self.command(number);
        match command.op {
            Op::Write => self.cross(now, number),
            Op::Read => self.read(now, number, command.first..command.first + command.units),
        }
    }

    /// Moves the data of a command over the link.
    fn cross(&mut self, now: Nanos, number: u32) {
        let (op, len) = (self.command(number).op, self.command(number).len);
        let time = Nanos((len as f64 / self.side(op).bytes_per_s * 1e9) as u64);
        let way = usize::from(op == Op::Write && !self.spec.half_duplex);
        let end = self.link_free[way].max(now) + time;
        self.link_free[way] = end;
        self.at(end, Event::Crossed(number));
    }

    fn crossed(&mut self, now: Nanos, number: u32) {
        if self.command(number).op == Op::Read {
            let latency = self.spec.host_read.latency;
            self.at(now + latency, Event::Over(number));
        } else if self.spec.buffer_bytes == 0 {
            self.write_through(now, number);
        } else {
            self.arrived.push_back(number);
            self.fill_buffer(now);
        }
    }

    /// Starts the reads of a command: one for neighbours in one program, none for what is in the
    /// buffer or was never written.
    fn read(&mut self, now: Nanos, number: u32, units: std::ops::Range<u32>) {
        let mut reads: Vec<((u32, u32), u32)> = Vec::new();
        for unit in units {
            if self.in_buffer[unit as usize] > 0 {
                continue;
            }
            let Some(place) = self.flash.find(unit) else { continue };
            match reads.last_mut() {
                Some((last, units)) if *last == place => *units += 1,
                _ => reads.push((place, 1)),
            }
        }
        self.command(number).left = reads.len() as u32;
        if reads.is_empty() {
            return self.cross(now, number);
        }
        for ((die, _), units) in reads {
            let work = Work::Read { command: Some(number), units };
            self.dies[die as usize].reads.push_back(work);
            self.start_die(now, die);
        }
    }

    fn write_through(&mut self, now: Nanos, number: u32) {
        let Command { first, units, .. } = *self.command(number);
        let programs = self.programs_of((first..first + units).collect());
        self.command(number).left = programs.len() as u32;
        for (domain, units) in programs {
            units.iter().for_each(|unit| self.enter_buffer(*unit));
            self.program_host(now, domain, units, Some(number));
        }
    }

    /// The programs that take `units`, each with its domain: in order as far as a domain allows.
    fn programs_of(&self, units: Vec<u32>) -> Vec<(usize, Vec<u32>)> {
        let at_once = self.units_per_program as usize;
        let mut programs: Vec<(usize, Vec<u32>)> = Vec::new();
        let mut open: Vec<Option<usize>> = vec![None; self.flash.domains()];
        for unit in units {
            let domain = self.flash.domain(unit);
            let at = *open[domain].get_or_insert_with(|| {
                programs.push((domain, Vec::new()));
                programs.len() - 1
            });
            programs[at].1.push(unit);
            if programs[at].1.len() == at_once {
                open[domain] = None;
            }
        }
        programs
    }

    /// Takes units of the writes that have arrived, as far as there is room.
    fn fill_buffer(&mut self, now: Nanos) {
        let room = self.spec.buffer_bytes / u64::from(self.spec.unit_bytes);
        while let Some(number) = self.arrived.front().copied() {
            while self.command(number).left > 0 && self.buffered < room {
                let command = self.command(number);
                let unit = command.first + command.units - command.left;
                command.left -= 1;
                self.enter_buffer(unit);
                let domain = self.flash.domain(unit);
                self.gathered[domain].push(unit);
                if self.gathered[domain].len() == self.units_per_program as usize {
                    self.program_gathered(now, domain);
                }
            }
            if self.command(number).left > 0 {
                return;
            }
            self.arrived.pop_front();
            let latency = self.spec.host_write.latency;
            self.at(now + latency, Event::Over(number));
        }
    }

    fn enter_buffer(&mut self, unit: u32) {
        self.buffered += 1;
        self.in_buffer[unit as usize] += 1;
    }

    fn program_gathered(&mut self, now: Nanos, domain: usize) {
        let units = std::mem::take(&mut self.gathered[domain]);
        if !units.is_empty() {
            self.program_host(now, domain, units, None);
        }
    }

    fn program_host(&mut self, now: Nanos, domain: usize, units: Vec<u32>, command: Option<u32>) {
        for unit in &units {
            let of_map = unit / self.spec.units_per_map_unit();
            if !std::mem::replace(&mut self.is_map_dirty[of_map as usize], true) {
                self.map_dirty.push(self.host_units + of_map);
            }
        }
        let program = self.flash.write(domain, &units);
        self.issue(now, (domain, program), Kind::Host { units, command });
    }

    /// Queues a program of the host or the map, and the garbage collection that it calls for.
    fn issue(&mut self, now: Nanos, (domain, program): (usize, Program), kind: Kind) {
        self.programs += 1;
        self.queue(now, program.die, Work::Program { kind, units: program.units });
        while let Some(collected) = self.flash.collect(domain) {
            match collected {
                Collected::Moved { reads, program } => {
                    for read in reads {
                        let work = Work::Read { command: None, units: read.units };
                        self.queue(now, read.die, work);
                    }
                    let work = Work::Program { kind: Kind::Moved, units: program.units };
                    self.queue(now, program.die, work);
                }
                Collected::Erased => {
                    let dies = self.flash.dies(domain);
                    dies.for_each(|die| self.queue(now, die, Work::Erase));
                }
            }
        }
    }

    fn queue(&mut self, now: Nanos, die: u32, work: Work) {
        self.dies[die as usize].others.push_back(work);
        self.start_die(now, die);
    }

    fn start_die(&mut self, now: Nanos, number: u32) {
        let die = &mut self.dies[number as usize];
        if die.current.is_some() {
            return;
        }
        let others_turn = die.reads.is_empty() || die.reads_in_a_row >= READS_IN_A_ROW;
        let work = if others_turn && !die.others.is_empty() {
            die.reads_in_a_row = 0;
            die.others.pop_front()
        } else {
            die.reads_in_a_row += u32::from(!die.others.is_empty());
            die.reads.pop_front()
        };
        let Some(work) = work else { return };
        let time = match work {
            Work::Read { .. } => Some(self.spec.read),
            Work::Program { .. } => None,
            Work::Erase => Some(self.erase),
        };
        die.current = Some(work);
        match time {
            Some(time) => self.at(now + time, Event::Cell(number)),
            None => self.want_channel(now, number),
        }
    }

    fn want_channel(&mut self, now: Nanos, die: u32) {
        let channel = die % self.spec.channels;
        self.channels[channel as usize].waiting.push_back(die);
        self.start_channel(now, channel);
    }

    fn start_channel(&mut self, now: Nanos, number: u32) {
        let channel = &mut self.channels[number as usize];
        if channel.current.is_some() {
            return;
        }
        channel.current = channel.waiting.pop_front();
        let Some(die) = channel.current else { return };
        let units = match &self.dies[die as usize].current {
            Some(Work::Read { units, .. } | Work::Program { units, .. }) => *units,
            _ => unreachable!("a die that wants the channel reads or programs"),
        };
        let bytes = f64::from(units * self.spec.unit_bytes);
        let time = Nanos((bytes / self.spec.channel_bytes_per_s * 1e9) as u64);
        self.at(now + time, Event::Moved(number));
    }

    fn channel_over(&mut self, now: Nanos, number: u32) {
        let die = self.channels[number as usize].current.take().expect("it was moving data");
        match &self.dies[die as usize].current {
            Some(Work::Program { .. }) => self.at(now + self.spec.program, Event::Cell(die)),
            _ => self.die_over(now, die),
        }
        self.start_channel(now, number);
    }

    fn cell_over(&mut self, now: Nanos, die: u32) {
        match &self.dies[die as usize].current {
            Some(Work::Read { .. }) => self.want_channel(now, die),
            _ => self.die_over(now, die),
        }
    }

    fn die_over(&mut self, now: Nanos, die: u32) {
        let work = self.dies[die as usize].current.take().expect("it was busy");
        match work {
            Work::Read { command: Some(number), .. } => {
                let command = self.command(number);
                command.left -= 1;
                if command.left == 0 {
                    self.cross(now, number);
                }
            }
            Work::Program { kind: Kind::Host { units, command }, .. } => {
                self.programs -= 1;
                self.buffered -= units.len() as u64;
                units.iter().for_each(|unit| self.in_buffer[*unit as usize] -= 1);
                match command {
                    Some(number) => self.programmed(now, number),
                    None => self.fill_buffer(now),
                }
            }
            Work::Program { kind: Kind::Map, .. } => self.programs -= 1,
            Work::Read { command: None, .. } | Work::Program { .. } | Work::Erase => {}
        }
        self.start_die(now, die);
    }

    /// A program of a command that waits for its programs is over.
    fn programmed(&mut self, now: Nanos, number: u32) {
        let command = self.command(number);
        command.left -= 1;
        if command.left == 0 {
            let latency = self.spec.host_write.latency;
            self.at(now + latency, Event::Over(number));
        }
    }
}
