//! Hosts that an application has for a time: when that is over they are asked back, and then taken.

use negotiation::{Direction, NegotiationId};
use rms_api::refusal::Refusal;
use rms_model::{JobId, NodeId, Time};

use super::Negotiations;
use super::open::Wanted;
use crate::state::fact::Fact;
use crate::state::talks::Loan;
use crate::step::Step;

impl Negotiations<'_> {
    /// Loans that are due are called, and what was called in vain is taken.
    pub(super) fn call_loans(&mut self, now: Time, step: &mut Step, job: JobId) {
        let loans = self.talks(job).map(|talks| talks.loans.clone()).unwrap_or_default();
        for loan in loans.into_iter().filter(|loan| loan.until <= now) {
            match loan.called {
                Some(by) => self.collect(now, step, job, &loan, by),
                None => self.call(now, step, job, &loan),
            }
        }
    }

    fn call(&mut self, now: Time, step: &mut Step, job: JobId, loan: &Loan) {
        let n_hosts = self.n_lent(job, loan);
        let opened = match n_hosts {
            0 => Err(Refusal::NotNegotiable(job)),
            _ => self.open_shrink(now, step, (job, loan.cluster), &Wanted::Count(n_hosts, n_hosts), None),
        };
        match opened {
            Ok(by) => {
                let cluster = Some(loan.cluster);
                self.context.record(step, Fact::LoanCalled { job, negotiation: loan.id, cluster, by });
            }
            // It is giving something back already: what then is left of the loan is called after that.
            Err(Refusal::AlreadyNegotiating { .. }) => return,
            Err(_) => self.take_loan(now, step, job, loan),
        }
        // It may have been declined at once.
        if let Ok(by) = opened {
            self.collect(now, step, job, loan, by);
        }
    }

    /// The shrink that called it is over: what was not given back is taken.
    fn collect(&mut self, now: Time, step: &mut Step, job: JobId, loan: &Loan, by: NegotiationId) {
        let is_open = self.case(job, by).is_some_and(|case| !case.phase().is_over());
        let is_owed =
            self.talks(job).is_some_and(|talks| talks.loans.iter().any(|owed| owed.is_of(loan.id, Some(loan.cluster))));
        if !is_open && is_owed {
            self.take_loan(now, step, job, loan);
        }
    }

    fn take_loan(&mut self, now: Time, step: &mut Step, job: JobId, loan: &Loan) {
        let n_hosts = self.n_lent(job, loan) as usize;
        self.context.record(step, Fact::LoanEnded { job, negotiation: loan.id, cluster: Some(loan.cluster) });
        let others = self.others_on(job, loan.cluster).rev();
        let nodes: Vec<NodeId> = others.filter(|node| self.can_be_taken(job, *node)).take(n_hosts).collect();
        self.free(now, step, job, nodes);
    }

    /// How many of the lent hosts it can still have.
    fn n_lent(&self, job: JobId, loan: &Loan) -> u32 {
        let mut loans = self.talks(job).into_iter().flat_map(|talks| &talks.loans);
        let owed = loans.find(|owed| owed.is_of(loan.id, Some(loan.cluster))).map_or(0, |owed| owed.hosts);
        let n_others = self.others_on(job, loan.cluster).count() as u32;
        u32::try_from(owed).unwrap_or(u32::MAX).min(n_others)
    }

    /// When a loan is next due that nobody has called and nothing else keeps from being called.
    pub(super) fn next_loan(&self, job: JobId) -> Option<Time> {
        let is_shrinking = self.open_for(job, Direction::Shrink).is_some();
        let uncalled = self.talks(job)?.loans.iter().filter(|loan| loan.called.is_none() && !is_shrinking);
        uncalled.map(|loan| loan.until).min()
    }
}
