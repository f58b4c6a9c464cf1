//! What threads of a task do to what they share between two barriers.
//!
//! Two threads that access the same element, one of them writing, are a race. Of the readers of an element two different
//! ones are kept, since a later writer is in conflict with one of these or with none. Where an asynchronous copy will
//! write nobody may read or write, not even after a barrier, until its thread has waited for it.

use std::collections::HashMap;

use tilewright_te::kernel::MemRef;

/// What a thread does to an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// A copy begins that will write it.
    BeginCopy,
    /// A copy that was waited for has written it.
    EndCopy,
}

/// What an access must not meet.
#[derive(Debug)]
pub(super) struct Conflict {
    /// What is wrong.
    pub(super) what: &'static str,
    /// The thread that came first.
    pub(super) thread: usize,
    /// What it did.
    pub(super) at: String,
}

type Party = (usize, String);

#[derive(Default)]
struct Mark {
    writer: Option<Party>,
    readers: [Option<Party>; 2],
}

/// Everything since the last barrier, and the copies under way.
#[derive(Default)]
pub(super) struct Races {
    marks: HashMap<(MemRef, i64), Mark>,
    copies: HashMap<(MemRef, i64), Party>,
}

impl Races {
    /// What was before is seen by all.
    pub(super) fn barrier(&mut self) {
        self.marks.clear();
    }

    /// Notes an access.
    pub(super) fn access(
        &mut self,
        thread: usize,
        place: MemRef,
        index: i64,
        access: Access,
        at: &str,
    ) -> Result<(), Conflict> {
        let found = |what, (thread, at): &Party| Err(Conflict { what, thread: *thread, at: at.clone() });
        match access {
            Access::EndCopy => drop(self.copies.remove(&(place, index))),
            Access::Read | Access::Write | Access::BeginCopy => {
                if let Some(copy) = self.copies.get(&(place, index)) {
                    return found("missing wait", copy);
                }
            }
        }
        let mark = self.marks.entry((place, index)).or_default();
        let is_other = |party: &&Party| party.0 != thread;
        if let Some(writer) = mark.writer.as_ref().filter(is_other) {
            return found("race", writer);
        }
        let own = || Some((thread, at.to_owned()));
        match access {
            Access::Read => {
                let is_free = |reader: &&mut Option<Party>| reader.as_ref().is_none_or(|r| r.0 == thread);
                if let Some(free) = mark.readers.iter_mut().find(is_free) {
                    *free = own();
                }
            }
            Access::Write | Access::BeginCopy | Access::EndCopy => {
                if let Some(reader) = mark.readers.iter().flatten().find(is_other) {
                    return found("race", reader);
                }
                mark.writer = own();
            }
        }
        if access == Access::BeginCopy {
            self.copies.insert((place, index), (thread, at.to_owned()));
        }
        Ok(())
    }
}
