//! The trees of a database, by number.
use std::sync::Arc;

use terrace_pool::BufferPool;

use crate::Error;
use crate::context::Context;
use crate::engine::Engine;
use crate::writer::Undo;

pub(crate) struct Trees {}

impl Trees {
    pub(crate) fn new(_pool: &BufferPool, _home_pages: u64) -> Trees {
        Trees {}
    }

    pub(crate) fn load(&self, _engine: &Arc<Engine>) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn tidy(&self, _engine: &Arc<Engine>) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn undo(
        &self,
        _pool: &BufferPool,
        _context: &mut Context,
        _undo: Undo<'_>,
    ) -> Result<(), Error> {
        unimplemented!()
    }
}
