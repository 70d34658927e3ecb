//! Memory of the host's by way of which devices copy.

use std::sync::Arc;

use super::Contexts;
use crate::cuda::{Context, Registration};

/// A range of the host's memory, pinned if the driver does that; copies are slower where it does not.
pub struct Bounce {
    registration: Option<Registration>,
}

impl Bounce {
    /// Pins a range of the host's, for all contexts. It must stay mapped as long as this lives.
    pub fn new(contexts: &Arc<Contexts>, context: Context, start: usize, len: usize) -> Self {
        Self { registration: Registration::new(contexts.driver(), context, start, len).ok() }
    }

    /// Whether it is pinned.
    pub fn is_pinned(&self) -> bool {
        self.registration.is_some()
    }
}
