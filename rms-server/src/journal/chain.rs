//! The running digest over all facts: a row that was lost or altered on the disk is noticed at the next start.

use ring::digest::{Context, SHA256};

/// The digest over every fact up to one. SQLite has no checksums of its own for pages that were once written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain(pub [u8; Chain::LEN]);

impl Chain {
    /// Half of a SHA-256: it guards against accidents of disks, not against somebody who can write the file.
    pub const LEN: usize = 16;
    pub const EMPTY: Chain = Chain([0; Chain::LEN]);

    /// The digest after one more fact.
    #[must_use]
    pub fn then(self, environment_of: Option<u64>, body: &[u8]) -> Chain {
        let mut context = Context::new(&SHA256);
        context.update(&self.0);
        // Facts count from 1, so 0 stands for none.
        context.update(&environment_of.unwrap_or(0).to_be_bytes());
        context.update(body);
        let digest = context.finish();
        let mut chain = [0; Chain::LEN];
        chain.copy_from_slice(&digest.as_ref()[..Chain::LEN]);
        Chain(chain)
    }

    /// As it is stored; `None` for anything of another length.
    pub fn from_stored(bytes: &[u8]) -> Option<Chain> {
        bytes.try_into().ok().map(Chain)
    }
}
